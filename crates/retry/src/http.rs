//! Failures of HTTP responses.

use std::time::Duration;

use holdoff_policy::{ClassMap, Failure, Replay, retry_after_from_headers};
use http::StatusCode;
use http::header::{DATE, HeaderMap, RETRY_AFTER};

/// Returns the failure of a response; `None` if it is not a failure.
///
/// The class describes the server's health. A request that must not happen twice ([`Replay::Unsafe`]) and may have had its effect
/// is not repeatable. `Retry-After` is accepted in both forms.
///
/// ```
/// use holdoff_policy::{Class, ClassMap, Replay};
/// use holdoff_retry::response_failure;
/// use http::{HeaderMap, StatusCode};
///
/// let failure = |status, replay| response_failure(status, &HeaderMap::new(), replay, &ClassMap::new());
/// assert_eq!(failure(StatusCode::OK, Replay::Unsafe), None);
/// let unsafe_to_repeat = failure(StatusCode::BAD_GATEWAY, Replay::Unsafe).unwrap();
/// assert!(unsafe_to_repeat.class() == Class::Transient && !unsafe_to_repeat.is_repeatable());
/// ```
pub fn response_failure(
    status: StatusCode,
    headers: &HeaderMap,
    replay: Replay,
    classes: &ClassMap,
) -> Option<Failure> {
    let class = classes.http(status.as_u16(), replay)?;
    let health = classes.http(status.as_u16(), Replay::Safe)?;
    let failure = Failure::new(health);
    let failure = if class == health { failure } else { failure.not_repeatable() };
    Some(retry_after(headers).map_or(failure, |wait| failure.with_retry_after(wait)))
}

/// Returns the wait that a response asks for with `Retry-After`, in either of its forms.
///
/// A date counts from the response's `Date`, or from this machine's clock if the response has none.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    retry_after_from_headers(text(RETRY_AFTER)?, text(DATE), wall())
}

/// Returns the wall-clock time, for responses without a `Date`.
#[expect(clippy::disallowed_methods, reason = "the only access to the wall clock")]
fn wall() -> std::time::SystemTime {
    std::time::SystemTime::now()
}
