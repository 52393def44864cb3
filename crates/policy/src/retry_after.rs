//! `Retry-After`: the parser of the header, and the policy's rule for its value.
//!
//! | header | parsed as |
//! |---|---|
//! | `120` | two minutes |
//! | `1.5` | a second and a half (not in the RFC, but some servers send it) |
//! | `Sun, 06 Nov 1994 08:49:37 GMT` | the time from the response's `Date` to then |
//! | a date in the past, `0` | zero: the policy's own delay applies |
//! | `-5`, `soon`, an empty value | nothing: as if the header were absent |
//! | `99999999999999` | [`MAX_DELAY`]; with most policies the caller gives up |

use core::time::Duration;

use crate::MAX_DELAY;

/// A policy's rule for the server's `Retry-After`.
///
/// The value is a floor under the policy's own window and is exempt from the cap: the window's low end
/// becomes at least `retry_after`, its high end at least `retry_after + spread`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryAfter {
    /// The spread of callers that all received the same value.
    pub spread: Duration,
    /// The longest value that the policy honours in full.
    pub limit: Duration,
    /// The behaviour if the server asks for more than `limit`.
    pub beyond: Beyond,
}

impl RetryAfter {
    /// The default limit: a day.
    pub const DEFAULT_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self { spread: Duration::ZERO, limit: Self::DEFAULT_LIMIT, beyond: Beyond::GiveUp }
    }
}

/// The behaviour for a `Retry-After` beyond the policy's limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beyond {
    /// Wait for the full value, however long.
    Wait,
    /// Give up at once.
    GiveUp,
    /// Wait for the limit, then retry earlier than the server asked. Choose it deliberately, because it
    /// ignores the server's request.
    Clip,
}

impl Beyond {
    /// Returns the word used in the policy file and the compiled form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::GiveUp => "give_up",
            Self::Clip => "clip",
        }
    }

    /// Every variant.
    pub const ALL: [Self; 3] = [Self::Wait, Self::GiveUp, Self::Clip];
}

/// Parses a `Retry-After` value in seconds; returns `None` for any other form.
///
/// ```
/// use holdoff_policy::{retry_after_seconds, MAX_DELAY};
/// use std::time::Duration;
///
/// assert_eq!(retry_after_seconds(" 120 "), Some(Duration::from_secs(120)));
/// assert_eq!(retry_after_seconds("99999999999999999999999"), Some(MAX_DELAY));
/// assert_eq!(retry_after_seconds("-5"), None);
/// ```
pub fn retry_after_seconds(value: &str) -> Option<Duration> {
    let value = value.trim_matches([' ', '\t']);
    let (whole, fraction) = value.split_once('.').unwrap_or((value, "0"));
    if !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let Ok(seconds) = whole.parse::<u64>() else { return Some(MAX_DELAY) };
    Some(Duration::new(seconds, nanos(fraction)).min(MAX_DELAY))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Converts the first nine digits after the decimal point to nanoseconds.
fn nanos(fraction: &str) -> u32 {
    let digits = fraction.bytes().chain(core::iter::repeat(b'0')).take(9);
    digits.fold(0, |nanos, digit| nanos * 10 + u32::from(digit - b'0'))
}

/// Parses a `Retry-After` header in either form; returns `None` if it has neither.
///
/// A date is measured against `date`, the `Date` header of the same response, so that the two clocks need not
/// agree. If `date` is absent or unreadable, `now` replaces it.
///
/// ```
/// use holdoff_policy::retry_after_from_headers;
/// use std::time::{Duration, SystemTime};
///
/// // The server's clock is years behind ours; it asks for two minutes all the same.
/// let wait = retry_after_from_headers(
///     "Sun, 06 Nov 1994 08:51:37 GMT",
///     Some("Sun, 06 Nov 1994 08:49:37 GMT"),
///     SystemTime::UNIX_EPOCH,
/// );
/// assert_eq!(wait, Some(Duration::from_secs(120)));
/// ```
#[cfg(feature = "std")]
pub fn retry_after_from_headers(
    value: &str,
    date: Option<&str>,
    now: std::time::SystemTime,
) -> Option<Duration> {
    if let Some(seconds) = retry_after_seconds(value) {
        return Some(seconds);
    }
    let then = httpdate::parse_http_date(value.trim()).ok()?;
    let reference = date.and_then(|date| httpdate::parse_http_date(date.trim()).ok()).unwrap_or(now);
    Some(then.duration_since(reference).unwrap_or_default().min(MAX_DELAY))
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use std::time::SystemTime;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn read(value: &str) -> Option<Duration> {
        retry_after_from_headers(value, Some(DATE), SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn seconds() {
        assert_eq!(read("0"), Some(Duration::ZERO));
        assert_eq!(read("120"), Some(Duration::from_secs(120)));
        assert_eq!(read("1.5"), Some(Duration::from_millis(1500)));
        assert_eq!(read("0.1234567891"), Some(Duration::from_nanos(123_456_789)));
    }

    #[test]
    fn all_three_date_forms_parse() {
        let two_minutes = Some(Duration::from_secs(120));
        assert_eq!(read("Sun, 06 Nov 1994 08:51:37 GMT"), two_minutes);
        assert_eq!(read("Sunday, 06-Nov-94 08:51:37 GMT"), two_minutes);
        assert_eq!(read("Sun Nov  6 08:51:37 1994"), two_minutes);
    }

    #[test]
    fn a_date_in_the_past_is_zero() {
        assert_eq!(read("Sun, 06 Nov 1994 08:49:36 GMT"), Some(Duration::ZERO));
    }

    #[test]
    fn without_a_date_header_the_local_clock_applies() {
        let now = httpdate::parse_http_date(DATE).unwrap();
        for date in [None, Some("no date")] {
            let wait = retry_after_from_headers("Sun, 06 Nov 1994 08:50:37 GMT", date, now);
            assert_eq!(wait, Some(Duration::from_secs(60)));
        }
    }

    #[test]
    fn an_invalid_value_is_ignored() {
        for value in ["", " ", "-5", "+5", "soon", "1.", ".5", "1e3", "12 s", "1,5", "0x10", "∞"] {
            assert_eq!(read(value), None, "{value:?}");
        }
    }

    #[test]
    fn a_huge_value_is_limited_to_the_longest_delay() {
        assert_eq!(read("18446744073709551616"), Some(MAX_DELAY));
        assert_eq!(read("31536001"), Some(MAX_DELAY));
        assert_eq!(read("Fri, 31 Dec 9999 23:59:59 GMT"), Some(MAX_DELAY));
    }
}
