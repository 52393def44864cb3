//! The errors of the client.

use std::error::Error as StdError;
use std::time::Duration;

use serde::Deserialize;

/// An error between this program and the daemon. Every call may be repeated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The daemon's address is invalid. No request was sent.
    #[error("invalid daemon address `{address}`: {source}; use a URL such as http://127.0.0.1:7070")]
    Address {
        /// The address.
        address: String,
        /// The reason.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The API token is not a valid header value. No request was sent.
    #[error("the API token has characters that are not allowed in a header; copy it again")]
    ApiToken,
    /// The HTTP client could not be created. No request was sent.
    #[error("cannot create the HTTP client: {}; check that the system's root certificates are installed", innermost(&**.0))]
    HttpClient(#[source] Box<dyn StdError + Send + Sync>),
    /// The request could not be encoded. It was not sent.
    #[error("cannot encode the request: {0}")]
    InvalidRequest(#[source] Box<dyn StdError + Send + Sync>),
    /// The daemon did not respond within the policy. Whether it executed the request is unknown.
    #[error("no response from the daemon: {}", innermost(&**.source))]
    Unreachable {
        /// The cause, without the address of the daemon.
        source: Box<dyn StdError + Send + Sync>,
        /// Whether the request timed out.
        timed_out: bool,
    },
    /// The daemon refused the request. It changed nothing unless the problem says so.
    #[error("{0}")]
    Refused(Box<ProblemDetails>),
    /// The daemon's response is not what this version expects.
    #[error("invalid response of the daemon: {0}; check that client and daemon have the same version")]
    InvalidResponse(#[source] Box<dyn StdError + Send + Sync>),
    /// The awaited task does not exist, or no longer exists.
    #[error("no such task: {0}")]
    NoSuchTask(String),
    /// The policy allows no attempt at all.
    #[error("no request was sent: the policy allows no attempt")]
    NoAttempt,
}

/// Returns the innermost cause, which is the most specific.
fn innermost<'a>(error: &'a (dyn StdError + Send + Sync + 'static)) -> &'a (dyn StdError + 'static) {
    let mut cause: &(dyn StdError + 'static) = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause
}

impl Error {
    /// Creates the error of a request without a response. The address may contain a password, so it is removed.
    pub(super) fn unreachable(error: reqwest::Error) -> Self {
        let timed_out = error.is_timeout();
        Self::Unreachable { source: Box::new(error.without_url()), timed_out }
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

#[cfg(test)]
mod tests {
    use holdoff_policy::{Class, ClassMap, Classify as _};

    use super::*;
    use crate::client::Client;

    fn class(error: &Error) -> Class {
        error.classify(&ClassMap::default()).class()
    }

    #[tokio::test]
    async fn an_unreachable_daemon_is_transient_and_keeps_the_cause() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let request = reqwest::Client::new().get(format!("http://user:hush@{address}/"));
        let error = Error::unreachable(request.send().await.unwrap_err());
        assert_eq!(class(&error), Class::Transient);
        assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
        let sources =
            std::iter::successors(error.source(), |error: &&(dyn StdError + 'static)| (*error).source());
        let refused = sources.filter_map(|source| source.downcast_ref::<std::io::Error>()).last().unwrap();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        assert_eq!(error.to_string(), format!("no response from the daemon: {}", innermost(refused)));
    }

    #[test]
    fn errors_that_no_retry_removes_are_permanent_and_keep_the_cause() {
        let address = Client::new("no url").unwrap_err();
        assert!(matches!(address, Error::Address { .. }), "{address}");
        let text = || "why".into();
        let errors = [
            address,
            Error::HttpClient(text()),
            Error::InvalidRequest(text()),
            Error::InvalidResponse(text()),
        ];
        for error in errors {
            assert_eq!(class(&error), Class::Permanent, "{error}");
            let source = error.source().unwrap().to_string();
            assert_eq!(error.to_string().matches(&source).count(), 1, "{error}");
        }
    }
}
