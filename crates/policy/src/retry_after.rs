//! `Retry-After`: what the other side said, and what the policy makes of it.
//!
//! | header | reads as |
//! |---|---|
//! | `120` | two minutes |
//! | `1.5` | a second and a half (not in the RFC, but sent, and meant) |
//! | `Sun, 06 Nov 1994 08:49:37 GMT` | the time from the response's `Date` to then |
//! | a date in the past, `0` | zero: the policy's own delay applies |
//! | `-5`, `soon`, an empty value | nothing: as if the header were absent |
//! | `99999999999999` | [`MAX_DELAY`], which most policies answer by giving up |

use core::time::Duration;

use crate::MAX_DELAY;

/// What a policy makes of the other side's `Retry-After`.
///
/// The value is a floor under the policy's own window, and exempt from its cap: the window's low end
/// becomes at least `retry_after`, its high end at least `retry_after + spread`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryAfter {
    /// How far to spread callers who were all told the same.
    pub spread: Duration,
    /// The longest value that is simply obeyed.
    pub limit: Duration,
    /// What to do when more than `limit` is asked for.
    pub beyond: Beyond,
}

impl RetryAfter {
    /// The limit where none is given: a day.
    pub const DEFAULT_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self { spread: Duration::ZERO, limit: Self::DEFAULT_LIMIT, beyond: Beyond::GiveUp }
    }
}

/// What to do with a `Retry-After` beyond the policy's limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beyond {
    /// Wait in full, however long.
    Wait,
    /// Do not wait at all: give up and say so.
    GiveUp,
    /// Wait for the limit, then try although the other side asked not to. Impolite; say it on purpose.
    Clip,
}

impl Beyond {
    /// The word used in the policy file and the compiled form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::GiveUp => "give_up",
            Self::Clip => "clip",
        }
    }

    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Wait, Self::GiveUp, Self::Clip];
}

/// Reads a `Retry-After` given in seconds; `None` if it is anything else.
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

/// The first nine digits after the decimal point, as nanoseconds.
fn nanos(fraction: &str) -> u32 {
    let digits = fraction.bytes().chain(core::iter::repeat(b'0')).take(9);
    digits.fold(0, |nanos, digit| nanos * 10 + u32::from(digit - b'0'))
}

/// Reads a `Retry-After` header in either form; `None` if it is neither.
///
/// A date is measured against `date`, the same response's `Date` header, so that the two clocks need
/// not agree; `now` stands in when there is none or it cannot be read.
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
    fn dates_of_all_three_forms() {
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
    fn without_a_date_header_the_own_clock_serves() {
        let now = httpdate::parse_http_date(DATE).unwrap();
        for date in [None, Some("no date")] {
            let wait = retry_after_from_headers("Sun, 06 Nov 1994 08:50:37 GMT", date, now);
            assert_eq!(wait, Some(Duration::from_secs(60)));
        }
    }

    #[test]
    fn nonsense_is_as_good_as_nothing() {
        for value in ["", " ", "-5", "+5", "soon", "1.", ".5", "1e3", "12 s", "1,5", "0x10", "∞"] {
            assert_eq!(read(value), None, "{value:?}");
        }
    }

    #[test]
    fn the_absurd_is_the_longest_delay() {
        assert_eq!(read("18446744073709551616"), Some(MAX_DELAY));
        assert_eq!(read("31536001"), Some(MAX_DELAY));
        assert_eq!(read("Fri, 31 Dec 9999 23:59:59 GMT"), Some(MAX_DELAY));
    }
}
