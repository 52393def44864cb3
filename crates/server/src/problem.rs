//! Problem responses: RFC 9457.

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use holdoff_lock::Holder;
use holdoff_work::InvalidTask;
use utoipa::ToSchema;

use crate::show::{ShownHolder, show_holder};

/// The `Retry-After` of a store that does not answer.
const STORE_PAUSE: Duration = Duration::from_secs(5);

/// What is said when something cannot be done (RFC 9457).
#[derive(ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "it stands in the document only")]
pub(crate) struct ProblemBody {
    /// What kind of problem it is. It stays the same.
    #[schema(pattern = "^/problems/[a-z-]+$")]
    r#type: String,
    title: String,
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What is true now, and what to do about it.
    detail: String,
    /// Who holds the lock, of a lock that is another's.
    #[schema(nullable = false)]
    holder: Option<ShownHolder>,
    /// Under which name to submit it again, of a transaction.
    #[schema(nullable = false)]
    tx_id: Option<String>,
    /// The first entry that is still kept, of a history whose beginning is gone.
    #[schema(nullable = false)]
    first: Option<u64>,
}

/// A response that is not a success.
#[derive(Debug)]
pub(crate) struct Problem {
    kind: Kind,
    detail: String,
    retry_after: Option<Duration>,
    /// An additional member: its name and value.
    more: Option<(&'static str, serde_json::Value)>,
}

/// The text of a problem, for a page that shows it.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) title: &'static str,
    pub(crate) detail: String,
}

/// The kinds of problems. Their names are part of the API and do not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    InvalidTask,
    InvalidSignal,
    InvalidLock,
    InvalidId,
    InvalidBody,
    NoSuchStep,
    NoSuchPolicy,
    StepNotHeld,
    NotInConflict,
    Changed,
    IfMatchRequired,
    KeyReused,
    TooManyLanes,
    InvalidQuery,
    InvalidPolicies,
    NotJson,
    TooLarge,
    NoSuchTask,
    NoSuchLock,
    LockHeld,
    LockLost,
    TooManyWaiters,
    NoAcceptor,
    NoLedger,
    NoSuchMember,
    NoSuchValue,
    NotNow,
    HistoryGone,
    NotJoined,
    NoQuorum,
    TooManyTransactions,
    LedgerStopped,
    OutcomeUnknown,
    NoSuchPage,
    NoSuchMethod,
    WrongHost,
    Unauthorized,
    Forbidden,
    TooManyRequests,
    QueueFull,
    StoreUnavailable,
    Stopping,
    TimedOut,
    Internal,
}

impl Kind {
    /// Returns the last segment of the problem's type, its title and its status.
    const fn said(self) -> (&'static str, &'static str, StatusCode) {
        match self {
            Self::InvalidTask => ("invalid-task", "The task cannot be taken in", StatusCode::BAD_REQUEST),
            Self::InvalidSignal => {
                ("invalid-signal", "The signal cannot be taken in", StatusCode::BAD_REQUEST)
            }
            Self::InvalidLock => ("invalid-lock", "This cannot be locked so", StatusCode::BAD_REQUEST),
            Self::NoSuchLock => ("no-such-lock", "There is no such lock", StatusCode::NOT_FOUND),
            Self::LockHeld => ("lock-held", "Somebody else holds the lock", StatusCode::CONFLICT),
            Self::LockLost => ("lock-lost", "The lock is not yours any more", StatusCode::CONFLICT),
            Self::TooManyWaiters => {
                ("too-many-waiters", "Too many wait already", StatusCode::TOO_MANY_REQUESTS)
            }
            Self::InvalidId => ("invalid-id", "This is no task's id", StatusCode::BAD_REQUEST),
            Self::InvalidBody => ("invalid-body", "What was sent is not understood", StatusCode::BAD_REQUEST),
            Self::NoSuchStep => ("no-such-step", "There is no such step", StatusCode::NOT_FOUND),
            Self::NoSuchPolicy => ("no-such-policy", "There is no such policy", StatusCode::NOT_FOUND),
            Self::StepNotHeld => ("step-not-held", "The step is not yours any more", StatusCode::CONFLICT),
            Self::NotInConflict => ("not-in-conflict", "The step is not in conflict", StatusCode::CONFLICT),
            Self::Changed => {
                ("changed-meanwhile", "It has changed meanwhile", StatusCode::PRECONDITION_FAILED)
            }
            Self::IfMatchRequired => {
                ("if-match-required", "If-Match is missing", StatusCode::PRECONDITION_REQUIRED)
            }
            Self::KeyReused => {
                ("key-reused", "The key stands for something else", StatusCode::UNPROCESSABLE_ENTITY)
            }
            Self::TooManyLanes => {
                ("too-many-lanes", "There are too many names already", StatusCode::UNPROCESSABLE_ENTITY)
            }
            Self::InvalidQuery => ("invalid-query", "The query is not understood", StatusCode::BAD_REQUEST),
            Self::InvalidPolicies => {
                ("invalid-policies", "The policies cannot be put in force", StatusCode::BAD_REQUEST)
            }
            Self::NotJson => {
                ("not-json", "Only application/json is read", StatusCode::UNSUPPORTED_MEDIA_TYPE)
            }
            Self::TooLarge => ("too-large", "The body is too large", StatusCode::PAYLOAD_TOO_LARGE),
            Self::NoSuchTask => ("no-such-task", "There is no such task", StatusCode::NOT_FOUND),
            Self::NoAcceptor => ("no-acceptor", "There is no acceptor here", StatusCode::NOT_FOUND),
            Self::NoLedger => ("no-ledger", "There is no such ledger here", StatusCode::NOT_FOUND),
            Self::NoSuchMember => ("no-such-member", "The ledger has no such member", StatusCode::NOT_FOUND),
            Self::NoSuchValue => ("no-such-value", "There is no such value", StatusCode::NOT_FOUND),
            Self::NotNow => ("not-now", "The ledger does not do this now", StatusCode::CONFLICT),
            Self::HistoryGone => ("history-gone", "These entries are not kept any more", StatusCode::GONE),
            Self::NotJoined => {
                ("not-joined", "This node has not joined the ledger yet", StatusCode::SERVICE_UNAVAILABLE)
            }
            Self::NoQuorum => ("no-quorum", "Nobody leads the ledger", StatusCode::SERVICE_UNAVAILABLE),
            Self::TooManyTransactions => {
                ("too-many-transactions", "Too many are under way", StatusCode::SERVICE_UNAVAILABLE)
            }
            Self::LedgerStopped => {
                ("ledger-stopped", "The ledger's node has stopped", StatusCode::SERVICE_UNAVAILABLE)
            }
            Self::OutcomeUnknown => {
                ("outcome-unknown", "What became of it is not known", StatusCode::GATEWAY_TIMEOUT)
            }
            Self::NoSuchPage => ("no-such-page", "There is nothing here", StatusCode::NOT_FOUND),
            Self::NoSuchMethod => {
                ("no-such-method", "This cannot be done here", StatusCode::METHOD_NOT_ALLOWED)
            }
            Self::WrongHost => ("wrong-host", "This name is not served", StatusCode::MISDIRECTED_REQUEST),
            Self::Unauthorized => ("unauthorized", "A token is needed", StatusCode::UNAUTHORIZED),
            Self::Forbidden => ("forbidden", "The token is not good for this", StatusCode::FORBIDDEN),
            Self::TooManyRequests => {
                ("too-many-requests", "Too many requests", StatusCode::TOO_MANY_REQUESTS)
            }
            Self::QueueFull => ("queue-full", "The queue is full", StatusCode::TOO_MANY_REQUESTS),
            Self::StoreUnavailable => {
                ("store-unavailable", "The store does not answer", StatusCode::SERVICE_UNAVAILABLE)
            }
            Self::Stopping => ("stopping", "The daemon is stopping", StatusCode::SERVICE_UNAVAILABLE),
            Self::TimedOut => ("timed-out", "It took too long", StatusCode::GATEWAY_TIMEOUT),
            Self::Internal => ("internal", "Something is broken in here", StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

impl Problem {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), retry_after: None, more: None }
    }

    pub(crate) fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// Returns the problem for a lock that another client holds.
    fn held(detail: String, holder: Option<&Holder>) -> Self {
        let problem = Self::new(Kind::LockHeld, detail);
        match holder {
            Some(holder) => problem.with("holder", serde_json::json!(show_holder(holder))),
            None => problem,
        }
    }

    /// Adds a member to the problem.
    pub(crate) fn with(self, name: &'static str, value: serde_json::Value) -> Self {
        Self { more: Some((name, value)), ..self }
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the problem for a store that did not answer.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(Kind::StoreUnavailable, detail).retry_after(STORE_PAUSE)
    }
}

impl From<holdoff_work::Error> for Problem {
    fn from(error: holdoff_work::Error) -> Self {
        use holdoff_work::Error;
        match &error {
            Error::Invalid(InvalidTask::PayloadTooLarge { .. }) => {
                Self::new(Kind::TooLarge, error.to_string())
            }
            Error::Invalid(InvalidTask::TooManyLanes { .. }) => {
                Self::new(Kind::TooManyLanes, error.to_string())
            }
            Error::Policies(_) => Self::new(Kind::InvalidPolicies, error.to_string()),
            Error::Invalid(_) => Self::new(Kind::InvalidTask, error.to_string()),
            Error::Fenced { .. } => Self::new(Kind::StepNotHeld, error.to_string()),
            Error::QueueFull { retry_after, .. } => {
                Self::new(Kind::QueueFull, error.to_string()).retry_after(*retry_after)
            }
            // The store's message may name hosts and users, so only the log has it.
            Error::Store { transient: true, .. } => {
                tracing::warn!(%error, "the store did not answer");
                Self::unavailable("the store did not answer in time; the request may be repeated")
            }
            _ => {
                tracing::error!(%error, "a request failed");
                Self::new(Kind::Internal, "the log says more, under this request's id")
            }
        }
    }
}

impl From<holdoff_lock::Error> for Problem {
    fn from(error: holdoff_lock::Error) -> Self {
        use holdoff_lock::Error;
        match &error {
            Error::Contended { holder, .. } | Error::DeadlineExceeded { holder, .. } => {
                Self::held(error.to_string(), holder.as_deref())
            }
            Error::Lost { .. } => Self::new(Kind::LockLost, error.to_string()),
            Error::InvalidKey(_) | Error::Settings(_) => Self::new(Kind::InvalidLock, error.to_string()),
            Error::TooManyWaiters { .. } => {
                Self::new(Kind::TooManyWaiters, error.to_string()).retry_after(spread())
            }
            // The store's message may name hosts and users, so only the log has it.
            Error::Store { transient: true, .. } => {
                tracing::warn!(%error, "the store of the locks did not answer");
                Self::unavailable("the store did not answer in time; the request may be repeated")
            }
            _ => {
                tracing::error!(%error, "a request failed");
                Self::new(Kind::Internal, "the log says more, under this request's id")
            }
        }
    }
}

impl From<holdoff_ledger::runtime::Error> for Problem {
    fn from(error: holdoff_ledger::runtime::Error) -> Self {
        use holdoff_ledger::runtime::Error;
        let kind = match &error {
            Error::NoLedger(_) => Kind::NoLedger,
            Error::NoLeader(_) => return Self::new(Kind::NoQuorum, error.to_string()).retry_after(spread()),
            Error::Busy => {
                return Self::new(Kind::TooManyTransactions, error.to_string()).retry_after(spread());
            }
            Error::NotNow(_) | Error::NotAVoter(_) => Kind::NotNow,
            _ => Kind::LedgerStopped,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<crate::Error> for Problem {
    fn from(error: crate::Error) -> Self {
        if let crate::Error::Keep { transient: true, .. } = error {
            tracing::warn!(%error, "the store did not answer");
            return Self::unavailable("the store did not answer in time; the request may be repeated");
        }
        tracing::error!(%error, "a request failed");
        Self::new(Kind::Internal, "the log says more, under this request's id")
    }
}

/// Returns a random `Retry-After`, so that refused clients do not all return at once.
pub(crate) fn spread() -> Duration {
    const MOST_SECONDS: u64 = 10;
    Duration::from_secs(fastrand::Rng::new().u64(1..=MOST_SECONDS))
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (name, title, status) = self.kind.said();
        let mut problem = serde_json::json!({
            "type": format!("/problems/{name}"),
            "title": title,
            "status": status.as_u16(),
            "detail": self.detail,
        });
        if let (Some((name, value)), Some(said)) = (self.more, problem.as_object_mut()) {
            said.insert(name.to_owned(), value);
        }
        let mut response = (status, problem.to_string()).into_response();
        response.extensions_mut().insert(Said { title, detail: self.detail });
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(wait) = self.retry_after {
            // Rounded up: a client that returns too early is refused again.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    /// Reads the names from this file's own table, so that a kind without documentation is found.
    #[test]
    fn every_type_is_documented() {
        let source = include_str!("problem.rs").split("#[cfg(test)]").next().unwrap();
        let page = include_str!("../../../docs/api.md");
        let names: Vec<&str> = (source.split("(\"").skip(1))
            .filter_map(|rest| rest.split_once("\", \"").map(|(name, _)| name))
            .filter(|name| name.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase()))
            .collect();
        assert!(names.len() > 20, "{names:?}");
        for name in names {
            assert!(page.contains(&format!("| `/problems/{name}` |")), "docs/api.md has no row for {name}");
        }
    }
}
