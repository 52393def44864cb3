//! The results of a retried call.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use holdoff_policy::GiveUpReason;

/// The error of a call that did not succeed: the last error, and the reason why there was no further attempt.
///
/// It converts into [`std::io::Error`], and with the features `sqlx`, `tonic` and `reqwest-middleware` into the errors of these
/// crates, so that `?` works in a function that returns one of them. For an error type of your own, write
/// `#[from] RetryError<…>`, or `map_err` with [`into_error`](Self::into_error).
///
/// It is as small as a pointer, so that the results of successful calls stay small.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetryError<E>(Box<Details<E>>);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Details<E> {
    pub(crate) stopped: StopReason,
    pub(crate) error: Option<E>,
    pub(crate) timed_out: bool,
    pub(crate) attempts: u32,
    pub(crate) elapsed: Duration,
}

impl<E> From<Details<E>> for RetryError<E> {
    fn from(details: Details<E>) -> Self {
        Self(Box::new(details))
    }
}

impl<E> RetryError<E> {
    /// Returns the reason why there was no further attempt.
    pub fn stopped(&self) -> StopReason {
        self.0.stopped
    }

    /// Returns the last error that an attempt returned; `None` if no attempt returned an error.
    pub fn error(&self) -> Option<&E> {
        self.0.error.as_ref()
    }

    /// Returns whether the timeout or the deadline cut off the last attempt. If so, its outcome is unknown,
    /// and [`error`](Self::error) is the error of an earlier attempt.
    pub fn timed_out(&self) -> bool {
        self.0.timed_out
    }

    /// Consumes the failure and returns the last error that an attempt returned.
    pub fn into_error(self) -> Option<E> {
        self.0.error
    }

    /// Returns the number of attempts.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// Returns the elapsed time since the first attempt first had to wait.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed
    }
}

impl<E> fmt::Display for RetryError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { stopped, timed_out, attempts, elapsed, .. } = &*self.0;
        let unit = if *attempts == 1 { "attempt" } else { "attempts" };
        let elapsed = Duration::from_millis(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
        write!(f, "gave up after {attempts} {unit} in {elapsed:?}: {stopped}")?;
        if *timed_out { f.write_str("; the last attempt was cut off") } else { Ok(()) }
    }
}

impl<E: Error + 'static> Error for RetryError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.error.as_ref().map(|error| error as &(dyn Error + 'static))
    }
}

/// The reason why an executor stopped without success.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum StopReason {
    /// The policy did not grant another attempt.
    Refused(GiveUpReason),
    /// The call conflicts with the server's state, and a person or program must resolve the conflict.
    Conflict,
    /// The server refused the credentials, and there is no refresher.
    Unauthorized,
    /// The shared retry budget is used up.
    Budget,
    /// The breaker is open: the dependency is down.
    BreakerOpen {
        /// The time until the breaker admits a probe.
        retry_in: Duration,
    },
    /// The caller cancelled its cancellation token.
    Cancelled,
}

impl StopReason {
    /// Returns the word used in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.name(),
            Self::Conflict => "conflict",
            Self::Unauthorized => "unauthorized",
            Self::Budget => "budget",
            Self::BreakerOpen { .. } => "breaker_open",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(GiveUpReason::Permanent) => {
                f.write_str("the failure is permanent, or the operation must not be repeated")
            }
            Self::Refused(GiveUpReason::Exhausted) => f.write_str("all attempts are used up"),
            Self::Refused(GiveUpReason::Deadline) => {
                f.write_str("the time left before the deadline is too short")
            }
            Self::Refused(GiveUpReason::RetryAfter) => {
                f.write_str("the server asked for a longer wait than the policy's limit")
            }
            Self::Refused(refusal) => f.write_str(refusal.name()),
            Self::Conflict => {
                f.write_str("the request conflicts with the current state; resolve the conflict")
            }
            Self::Unauthorized => {
                f.write_str("the server refused the credentials, and there is no refresher")
            }
            Self::Budget => f.write_str("the retry budget is used up"),
            Self::BreakerOpen { retry_in } => {
                write!(f, "the breaker is open; it admits a probe in {retry_in:?}")
            }
            Self::Cancelled => f.write_str("the caller cancelled the operation"),
        }
    }
}

/// A success, with the number of attempts and the elapsed time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report<T> {
    /// The value that the call returned.
    pub value: T,
    /// The number of attempts.
    pub attempts: u32,
    /// The elapsed time.
    pub elapsed: Duration,
}

/// The result of a judged call: the last outcome, success or failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JudgedReport<O> {
    /// The last outcome that an attempt returned; `None` if no attempt returned.
    pub outcome: Option<O>,
    /// Whether the last attempt was cut off. If so, the outcome is that of an earlier attempt.
    pub timed_out: bool,
    /// The reason why there was no further attempt; `None` if the last attempt succeeded.
    pub stopped: Option<StopReason>,
    /// The number of attempts.
    pub attempts: u32,
    /// The elapsed time.
    pub elapsed: Duration,
}

impl<O> JudgedReport<O> {
    /// Returns the last outcome, success or failure; an error if no attempt returned.
    pub fn into_outcome(self) -> Result<O, RetryError<Infallible>> {
        let Self { outcome, timed_out, stopped, attempts, elapsed } = self;
        let stopped = stopped.unwrap_or(StopReason::Cancelled);
        outcome.ok_or_else(|| Details { stopped, error: None, timed_out, attempts, elapsed }.into())
    }
}

impl<T, E> JudgedReport<Result<T, E>> {
    /// Returns the failure.
    pub(crate) fn into_error(self) -> RetryError<E> {
        let Self { outcome, timed_out, stopped, attempts, elapsed } = self;
        let (stopped, error) = (stopped.unwrap_or(StopReason::Cancelled), outcome.and_then(Result::err));
        Details { stopped, error, timed_out, attempts, elapsed }.into()
    }
}

impl<E> RetryError<E> {
    /// Returns the error of a call that was not attempted because of it.
    #[cfg(feature = "tower")]
    pub(crate) fn before_any_attempt(error: E) -> Self {
        let (stopped, error) = (StopReason::Refused(GiveUpReason::Permanent), Some(error));
        Details { stopped, error, timed_out: false, attempts: 0, elapsed: Duration::ZERO }.into()
    }

    /// Returns the last error that an attempt returned, or the stop as an error of the same type.
    fn into_error_or(self, convert: impl FnOnce(RetryError<Infallible>) -> E) -> E {
        let Details { stopped, error, timed_out, attempts, elapsed } = *self.0;
        error
            .unwrap_or_else(|| convert(Details { stopped, error: None, timed_out, attempts, elapsed }.into()))
    }
}

impl From<RetryError<Self>> for io::Error {
    fn from(failed: RetryError<Self>) -> Self {
        failed.into_error_or(|stopped| {
            let kind = if stopped.timed_out() { io::ErrorKind::TimedOut } else { io::ErrorKind::Other };
            Self::new(kind, stopped)
        })
    }
}

#[cfg(feature = "sqlx")]
impl From<RetryError<Self>> for sqlx_core::Error {
    fn from(failed: RetryError<Self>) -> Self {
        failed.into_error_or(|stopped| Self::Io(io::Error::other(stopped)))
    }
}

#[cfg(feature = "tonic")]
impl From<RetryError<Self>> for tonic::Status {
    fn from(failed: RetryError<Self>) -> Self {
        failed.into_error_or(|stopped| match stopped.stopped() {
            StopReason::Cancelled => Self::cancelled(stopped.to_string()),
            _ if stopped.timed_out() => Self::deadline_exceeded(stopped.to_string()),
            _ => Self::unavailable(stopped.to_string()),
        })
    }
}

#[cfg(feature = "reqwest-middleware")]
impl From<RetryError<Self>> for reqwest_middleware::Error {
    fn from(failed: RetryError<Self>) -> Self {
        failed.into_error_or(Self::middleware)
    }
}

#[cfg(feature = "reqwest-middleware")]
impl From<RetryError<reqwest::Error>> for reqwest_middleware::Error {
    fn from(failed: RetryError<reqwest::Error>) -> Self {
        match failed.0.error {
            Some(error) => Self::Reqwest(error),
            None => Self::middleware(failed),
        }
    }
}
