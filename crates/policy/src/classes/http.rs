//! HTTP statuses.

use crate::Class;

/// Whether a request may be sent again although it may already have had its effect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Replay {
    /// Two executions have the same effect as one: an idempotent method, or an `Idempotency-Key`.
    Safe,
    /// A second execution may have a second effect.
    Unsafe,
}

impl Replay {
    /// Classifies a request by its method and the presence of an `Idempotency-Key`.
    ///
    /// ```
    /// use holdoff_policy::Replay;
    ///
    /// assert_eq!(Replay::of("PUT", false), Replay::Safe);
    /// assert_eq!(Replay::of("POST", false), Replay::Unsafe);
    /// assert_eq!(Replay::of("POST", true), Replay::Safe);
    /// ```
    pub fn of(method: &str, has_idempotency_key: bool) -> Self {
        let idempotent = matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE");
        if idempotent || has_idempotency_key { Self::Safe } else { Self::Unsafe }
    }
}

/// A status and its class.
pub(super) struct Row {
    pub(super) status: u16,
    pub(super) name: &'static str,
    pub(super) class: Class,
    /// The class if replay is unsafe and the request may have had its effect; `None` means the same class.
    pub(super) once: Option<Class>,
}

/// The server refused before it acted, so requests of any method may be retried.
const fn refused(status: u16, name: &'static str, class: Class) -> Row {
    Row { status, name, class, once: None }
}

/// The server may have acted, so only requests with safe replay may be retried.
const fn perhaps_done(status: u16, name: &'static str, class: Class) -> Row {
    Row { status, name, class, once: Some(Class::Permanent) }
}

pub(super) const ROWS: &[Row] = &[
    refused(401, "Unauthorized", Class::Unauthorized),
    perhaps_done(408, "Request Timeout", Class::Timeout),
    refused(409, "Conflict", Class::Conflict),
    refused(412, "Precondition Failed", Class::Conflict),
    refused(421, "Misdirected Request", Class::Transient),
    refused(423, "Locked", Class::Contended),
    refused(425, "Too Early", Class::Transient),
    refused(429, "Too Many Requests", Class::RateLimited),
    perhaps_done(500, "Internal Server Error", Class::Transient),
    refused(501, "Not Implemented", Class::Permanent),
    perhaps_done(502, "Bad Gateway", Class::Transient),
    perhaps_done(503, "Service Unavailable", Class::Transient),
    perhaps_done(504, "Gateway Timeout", Class::Timeout),
    refused(505, "HTTP Version Not Supported", Class::Permanent),
    refused(506, "Variant Also Negotiates", Class::Permanent),
    perhaps_done(507, "Insufficient Storage", Class::Transient),
    refused(508, "Loop Detected", Class::Permanent),
    refused(510, "Not Extended", Class::Permanent),
    refused(511, "Network Authentication Required", Class::Permanent),
];

/// Returns the class of a status; `None` if it is not a failure.
pub(super) fn class(status: u16, replay: Replay) -> Option<Class> {
    if let Some(row) = ROWS.iter().find(|row| row.status == status) {
        let once = row.once.filter(|_| replay == Replay::Unsafe);
        return Some(once.unwrap_or(row.class));
    }
    match (status, replay) {
        (100..=399, _) => None,
        (500..=599, Replay::Safe) => Some(Class::Transient),
        // Other client errors, unknown server errors after an unsafe request, and numbers that are not HTTP
        // statuses.
        _ => Some(Class::Permanent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_statuses_follow_their_hundred() {
        assert_eq!(class(204, Replay::Safe), None);
        assert_eq!(class(304, Replay::Safe), None);
        assert_eq!(class(418, Replay::Safe), Some(Class::Permanent));
        assert_eq!(class(599, Replay::Safe), Some(Class::Transient));
        assert_eq!(class(599, Replay::Unsafe), Some(Class::Permanent));
        assert_eq!(class(0, Replay::Safe), Some(Class::Permanent));
    }

    #[test]
    fn a_refusal_may_be_retried_by_any_method() {
        for status in [401, 425, 429] {
            assert_eq!(class(status, Replay::Safe), class(status, Replay::Unsafe), "{status}");
        }
        for status in [408, 500, 502, 503, 504, 507] {
            assert_eq!(class(status, Replay::Unsafe), Some(Class::Permanent), "{status}");
        }
    }
}
