//! The responses to refused requests.

use serde_json::{Value, json};

pub(super) const RESOURCE: &str = "leases.coordination.k8s.io";
const KIND: &str = "Lease.coordination.k8s.io";

/// A refused request.
#[derive(Clone, Debug)]
pub(super) struct ApiError {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl ApiError {
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self { code: 400, reason: "BadRequest", message: message.into() }
    }

    pub(super) fn not_found(name: &str) -> Self {
        Self { code: 404, reason: "NotFound", message: format!("{RESOURCE} {name:?} not found") }
    }

    pub(super) fn already_exists(name: &str) -> Self {
        Self { code: 409, reason: "AlreadyExists", message: format!("{RESOURCE} {name:?} already exists") }
    }

    pub(super) fn conflict(name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {RESOURCE} {name:?}: {why}");
        Self { code: 409, reason: "Conflict", message }
    }

    /// The error of a write that is based on an old version.
    pub(super) fn modified(name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(name, why)
    }

    pub(super) fn invalid(name: &str, why: &str) -> Self {
        Self { code: 422, reason: "Invalid", message: format!("{KIND} {name:?} is invalid: {why}") }
    }

    /// The error of a request for history that was discarded.
    pub(super) fn expired(request: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {request} ({oldest})");
        Self { code: 410, reason: "Expired", message }
    }

    /// An error with this status and a generic message.
    pub(super) fn with_code(code: u16) -> Self {
        let (reason, message) = match code {
            401 => ("Unauthorized", "Unauthorized".to_owned()),
            403 => (
                "Forbidden",
                format!(
                    "{RESOURCE} is forbidden: User \"system:serviceaccount:default:guest\" cannot do this"
                ),
            ),
            429 => ("TooManyRequests", "Too many requests, please try again later.".to_owned()),
            500 => ("InternalError", "Internal error occurred: etcdserver: request timed out".to_owned()),
            503 => ("ServiceUnavailable", "the server is currently unable to handle the request".to_owned()),
            504 => ("Timeout", "Timeout: request did not complete within the allotted timeout".to_owned()),
            _ => ("Unknown", format!("refused with {code}")),
        };
        Self { code, reason, message }
    }

    pub(super) fn status(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        })
    }
}

/// Returns the response to a deletion.
pub(super) fn deleted(name: &str, uid: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": { "name": name, "group": "coordination.k8s.io", "kind": "leases", "uid": uid },
    })
}
