//! The errors of the client.

use std::time::Duration;

use serde::Deserialize;

/// An error between this program and the daemon. Every call may be repeated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The daemon's address is invalid. No request was sent.
    #[error("invalid daemon address `{address}`: {why}; use a URL such as http://127.0.0.1:7070")]
    Address {
        /// The address.
        address: String,
        /// The reason.
        why: String,
    },
    /// The API token is not a valid header value. No request was sent.
    #[error("the API token has characters that are not allowed in a header; copy it again")]
    ApiToken,
    /// The daemon did not respond within the policy. Whether it executed the request is unknown.
    #[error("no response from the daemon: {why}")]
    Unreachable {
        /// The cause.
        why: String,
        /// Whether the request timed out.
        timed_out: bool,
    },
    /// The daemon refused the request. It changed nothing unless the problem says so.
    #[error("{0}")]
    Refused(Box<ProblemDetails>),
    /// The daemon's response is not what this version expects.
    #[error("invalid response of the daemon: {0}; check that client and daemon have the same version")]
    InvalidResponse(String),
    /// The awaited task does not exist, or no longer exists.
    #[error("no such task: {0}")]
    NoSuchTask(String),
    /// The policy allows no attempt at all.
    #[error("no request was sent: the policy allows no attempt")]
    NoAttempt,
}

impl Error {
    pub(super) fn unreachable(error: &reqwest::Error) -> Self {
        // The innermost cause is the most specific and contains no address.
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        Self::Unreachable { why: cause.to_string(), timed_out: error.is_timeout() }
    }

    /// Returns the daemon's problem, if it refused the request.
    pub fn problem(&self) -> Option<&ProblemDetails> {
        if let Self::Refused(problem) = self { Some(problem) } else { None }
    }

    pub(super) fn is(&self, kind: &str) -> bool {
        self.problem().is_some_and(|problem| problem.kind() == kind)
    }
}

/// The daemon's description of a refused request.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, thiserror::Error)]
#[error("{title}: {detail}")]
#[non_exhaustive]
pub struct ProblemDetails {
    #[serde(rename = "type")]
    pub(super) uri: String,
    /// The kind of the problem, in words.
    pub title: String,
    /// The status of the response.
    #[serde(default)]
    pub status: u16,
    /// The current state, and the remedy.
    #[serde(default)]
    pub detail: String,
    /// The wait that the daemon asked for, if any.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
}

impl ProblemDetails {
    /// Returns the identifier of the kind: `no-such-task`, `lock-held`, `queue-full`.
    pub fn kind(&self) -> &str {
        self.uri.rsplit('/').next().unwrap_or_default()
    }

    /// Creates the problem for a response that does not come from the daemon, such as that of a proxy.
    pub(super) fn of_status(status: u16) -> Self {
        let title = format!("HTTP status {status}");
        let detail = "the response is not from the daemon; check the proxies in between".to_owned();
        Self { uri: String::new(), title, status, detail, retry_after: None }
    }
}
