//! Problem responses: RFC 9457.

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use holdoff_lock::Holder;
use holdoff_work::InvalidTask;
use utoipa::ToSchema;

use crate::view::HolderView;

/// The `Retry-After` of a store that does not answer.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(5);

/// An error response (RFC 9457).
#[derive(ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "only the API document uses it")]
pub(crate) struct ProblemBody {
    /// The kind of the problem. It is stable.
    #[schema(pattern = "^/problems/[a-z-]+$")]
    r#type: String,
    title: String,
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// The current state, and the next action.
    detail: String,
    /// The holder of the lock, if another client holds it.
    #[schema(nullable = false)]
    holder: Option<HolderView>,
    /// The id under which to submit a transaction again.
    #[schema(nullable = false)]
    tx_id: Option<String>,
    /// The oldest index that the node keeps, if the requested entries have been compacted.
    #[schema(nullable = false)]
    first: Option<u64>,
}

/// A response that is not a success.
#[derive(Debug)]
pub(crate) struct Problem {
    kind: Kind,
    detail: String,
    retry_after: Option<Duration>,
    /// Additional members: their names and values.
    more: Vec<(&'static str, serde_json::Value)>,
}

/// The text of a problem, for a page that shows it.
#[derive(Clone, Debug)]
pub(crate) struct ProblemText {
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
    PreconditionFailed,
    IfMatchRequired,
    KeyReused,
    TooManyQueues,
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
    UnknownLedger,
    NoSuchMember,
    NoSuchValue,
    NotNow,
    HistoryCompacted,
    NotJoined,
    NoQuorum,
    TooManyTransactions,
    LedgerFull,
    LedgerStopped,
    OutcomeUnknown,
    TransactionExpired,
    NotFound,
    MethodNotAllowed,
    WrongHost,
    Unauthorized,
    Forbidden,
    TooManyRequests,
    QueueFull,
    StoreUnavailable,
    Stopping,
    Overloaded,
    TimedOut,
    Internal,
}

impl Kind {
    /// Returns the last segment of the problem's type, its title and its status.
    const fn parts(self) -> (&'static str, &'static str, StatusCode) {
        match self {
            Self::InvalidTask => ("invalid-task", "Invalid task", StatusCode::BAD_REQUEST),
            Self::InvalidSignal => ("invalid-signal", "Invalid signal", StatusCode::BAD_REQUEST),
            Self::InvalidLock => ("invalid-lock", "Invalid lock request", StatusCode::BAD_REQUEST),
            Self::NoSuchLock => ("no-such-lock", "Unknown lock", StatusCode::NOT_FOUND),
            Self::LockHeld => ("lock-held", "Lock held by another client", StatusCode::CONFLICT),
            Self::LockLost => ("lock-lost", "Lock lost", StatusCode::CONFLICT),
            Self::TooManyWaiters => {
                ("too-many-waiters", "Too many waiting requests", StatusCode::TOO_MANY_REQUESTS)
            }
            Self::InvalidId => ("invalid-id", "Invalid id", StatusCode::BAD_REQUEST),
            Self::InvalidBody => ("invalid-body", "Invalid request body", StatusCode::BAD_REQUEST),
            Self::NoSuchStep => ("no-such-step", "Unknown step", StatusCode::NOT_FOUND),
            Self::NoSuchPolicy => ("no-such-policy", "Unknown policy", StatusCode::NOT_FOUND),
            Self::StepNotHeld => ("step-not-held", "Step lease lost", StatusCode::CONFLICT),
            Self::NotInConflict => ("not-in-conflict", "Step not in conflict", StatusCode::CONFLICT),
            Self::PreconditionFailed => {
                ("precondition-failed", "Precondition failed", StatusCode::PRECONDITION_FAILED)
            }
            Self::IfMatchRequired => {
                ("if-match-required", "If-Match required", StatusCode::PRECONDITION_REQUIRED)
            }
            Self::KeyReused => ("key-reused", "Idempotency-Key reused", StatusCode::UNPROCESSABLE_ENTITY),
            Self::TooManyQueues => ("too-many-queues", "Too many queues", StatusCode::UNPROCESSABLE_ENTITY),
            Self::InvalidQuery => ("invalid-query", "Invalid query", StatusCode::BAD_REQUEST),
            Self::InvalidPolicies => ("invalid-policies", "Invalid policies", StatusCode::BAD_REQUEST),
            Self::NotJson => ("not-json", "Unsupported media type", StatusCode::UNSUPPORTED_MEDIA_TYPE),
            Self::TooLarge => ("too-large", "Body too large", StatusCode::PAYLOAD_TOO_LARGE),
            Self::NoSuchTask => ("no-such-task", "Unknown task", StatusCode::NOT_FOUND),
            Self::NoAcceptor => ("no-acceptor", "No acceptor in this daemon", StatusCode::NOT_FOUND),
            Self::UnknownLedger => ("no-ledger", "Unknown ledger", StatusCode::NOT_FOUND),
            Self::NoSuchMember => ("no-such-member", "Unknown member", StatusCode::NOT_FOUND),
            Self::NoSuchValue => ("no-such-value", "Unknown value", StatusCode::NOT_FOUND),
            Self::NotNow => ("not-now", "Rejected by the ledger", StatusCode::CONFLICT),
            Self::HistoryCompacted => ("history-compacted", "History compacted", StatusCode::GONE),
            Self::NotJoined => ("not-joined", "Ledger not joined", StatusCode::SERVICE_UNAVAILABLE),
            Self::NoQuorum => ("no-quorum", "Ledger without a leader", StatusCode::SERVICE_UNAVAILABLE),
            Self::TooManyTransactions => {
                ("too-many-transactions", "Too many transactions", StatusCode::SERVICE_UNAVAILABLE)
            }
            Self::LedgerFull => ("ledger-full", "Ledger full", StatusCode::INSUFFICIENT_STORAGE),
            Self::LedgerStopped => ("ledger-stopped", "Ledger node stopped", StatusCode::SERVICE_UNAVAILABLE),
            Self::OutcomeUnknown => ("outcome-unknown", "Outcome unknown", StatusCode::GATEWAY_TIMEOUT),
            Self::TransactionExpired => ("transaction-expired", "Transaction expired", StatusCode::CONFLICT),
            Self::NotFound => ("not-found", "Not found", StatusCode::NOT_FOUND),
            Self::MethodNotAllowed => {
                ("method-not-allowed", "Method not allowed", StatusCode::METHOD_NOT_ALLOWED)
            }
            Self::WrongHost => ("wrong-host", "Host not served", StatusCode::MISDIRECTED_REQUEST),
            Self::Unauthorized => ("unauthorized", "Unauthorized", StatusCode::UNAUTHORIZED),
            Self::Forbidden => ("forbidden", "Forbidden", StatusCode::FORBIDDEN),
            Self::TooManyRequests => {
                ("too-many-requests", "Too many requests", StatusCode::TOO_MANY_REQUESTS)
            }
            Self::QueueFull => ("queue-full", "Queue full", StatusCode::TOO_MANY_REQUESTS),
            Self::StoreUnavailable => {
                ("store-unavailable", "Store unavailable", StatusCode::SERVICE_UNAVAILABLE)
            }
            Self::Stopping => ("stopping", "Daemon shutting down", StatusCode::SERVICE_UNAVAILABLE),
            Self::Overloaded => ("overloaded", "Too many connections", StatusCode::SERVICE_UNAVAILABLE),
            Self::TimedOut => ("timed-out", "Request timed out", StatusCode::GATEWAY_TIMEOUT),
            Self::Internal => ("internal", "Internal error", StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

impl Problem {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), retry_after: None, more: Vec::new() }
    }

    pub(crate) fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// Returns the problem for a lock that another client holds.
    fn lock_held(detail: String, holder: Option<&Holder>) -> Self {
        let problem = Self::new(Kind::LockHeld, detail);
        match holder {
            Some(holder) => problem.with("holder", serde_json::json!(HolderView::new(holder))),
            None => problem,
        }
    }

    /// Adds a member to the problem.
    pub(crate) fn with(mut self, name: &'static str, value: serde_json::Value) -> Self {
        self.more.push((name, value));
        self
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the problem for a store that did not answer.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(Kind::StoreUnavailable, detail).retry_after(STORE_RETRY_AFTER)
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
                Self::new(Kind::TooManyQueues, error.to_string())
            }
            Error::Policies(_) => Self::new(Kind::InvalidPolicies, error.to_string()),
            Error::Invalid(_) => Self::new(Kind::InvalidTask, error.to_string()),
            Error::Fenced { .. } => Self::new(Kind::StepNotHeld, error.to_string()),
            Error::QueueFull { retry_after, .. } => {
                Self::new(Kind::QueueFull, error.to_string()).retry_after(*retry_after)
            }
            // The store's message may name hosts and users, so only the log has it.
            Error::Store { transient: true, .. } | Error::Unresponsive { .. } => {
                tracing::warn!(%error, "store did not answer");
                Self::unavailable("the store did not answer in time; retry the request")
            }
            _ => {
                tracing::error!(%error, "failed to serve a request");
                Self::new(Kind::Internal, "internal error; the log has the details under this request's id")
            }
        }
    }
}

impl From<holdoff_lock::Error> for Problem {
    fn from(error: holdoff_lock::Error) -> Self {
        use holdoff_lock::Error;
        match &error {
            Error::Contended { holder, .. } | Error::DeadlineExceeded { holder, .. } => {
                Self::lock_held(error.to_string(), holder.as_deref())
            }
            Error::Lost { .. } => Self::new(Kind::LockLost, error.to_string()),
            Error::InvalidKey(_) | Error::Settings(_) | Error::FloorTooHigh { .. } => {
                Self::new(Kind::InvalidLock, error.to_string())
            }
            Error::TooManyWaiters { .. } => {
                Self::new(Kind::TooManyWaiters, error.to_string()).retry_after(jittered_retry_after())
            }
            // The store's message may name hosts and users, so only the log has it.
            Error::Store { transient: true, .. } => {
                tracing::warn!(%error, "store of the locks did not answer");
                Self::unavailable("the store did not answer in time; retry the request")
            }
            _ => {
                tracing::error!(%error, "failed to serve a request");
                Self::new(Kind::Internal, "internal error; the log has the details under this request's id")
            }
        }
    }
}

impl From<holdoff_ledger::runtime::Error> for Problem {
    fn from(error: holdoff_ledger::runtime::Error) -> Self {
        use holdoff_ledger::runtime::Error;
        let kind = match &error {
            Error::UnknownLedger { .. } => Kind::UnknownLedger,
            Error::NoLeader(_) => {
                return Self::new(Kind::NoQuorum, error.to_string()).retry_after(jittered_retry_after());
            }
            Error::Busy => {
                return Self::new(Kind::TooManyTransactions, error.to_string())
                    .retry_after(jittered_retry_after());
            }
            Error::NotTransferred(_) => Kind::NotNow,
            Error::TooLarge { .. } => Kind::TooLarge,
            _ => Kind::LedgerStopped,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<crate::Error> for Problem {
    fn from(error: crate::Error) -> Self {
        if let crate::Error::TokenStore { transient: true, .. } = error {
            tracing::warn!(%error, "store did not answer");
            return Self::unavailable("the store did not answer in time; retry the request");
        }
        tracing::error!(%error, "failed to serve a request");
        Self::new(Kind::Internal, "internal error; the log has the details under this request's id")
    }
}

/// Returns a random `Retry-After`, so that refused clients do not all return at once.
pub(crate) fn jittered_retry_after() -> Duration {
    const MAX_SECONDS: u64 = 10;
    Duration::from_secs(fastrand::Rng::new().u64(1..=MAX_SECONDS))
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (name, title, status) = self.kind.parts();
        let mut problem = serde_json::json!({
            "type": format!("/problems/{name}"),
            "title": title,
            "status": status.as_u16(),
            "detail": self.detail,
        });
        if let Some(members) = problem.as_object_mut() {
            members.extend(self.more.into_iter().map(|(name, value)| (name.to_owned(), value)));
        }
        let mut response = (status, problem.to_string()).into_response();
        response.extensions_mut().insert(ProblemText { title, detail: self.detail });
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
    use std::time::Duration;

    use super::{Kind, Problem};

    #[test]
    fn a_call_that_a_store_did_not_answer_can_be_repeated() {
        let problem = Problem::from(holdoff_work::Error::Unresponsive { after: Duration::from_secs(10) });
        assert!(matches!(problem.kind, Kind::StoreUnavailable), "{}", problem.detail());
    }

    /// Reads the names from this file's own table, so that a kind without documentation is found.
    #[test]
    fn every_problem_type_is_documented() {
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
