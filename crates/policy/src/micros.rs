//! Microseconds: the unit of all decisions.

use core::time::Duration;

/// The longest duration in any part of a policy: 365 days.
///
/// This limit keeps every product of a window and a roll within the integers of every engine that computes
/// delays, SQL included.
pub const MAX_DELAY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// [`MAX_DELAY`] in microseconds.
pub(crate) const MAX_DELAY_US: u64 = 365 * 24 * 60 * 60 * 1_000_000;

/// The number 1 in millionths, the unit of compiled jitter and growth factors.
pub(crate) const ONE_PPM: u64 = 1_000_000;

/// Converts a duration to whole microseconds, rounded down; saturates at `u64::MAX`.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(holdoff_policy::as_micros_u64(Duration::from_millis(3)), 3_000);
/// assert_eq!(holdoff_policy::as_micros_u64(Duration::MAX), u64::MAX);
/// ```
#[inline]
pub fn as_micros_u64(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Converts a duration to whole microseconds, rounded down, for signed columns; saturates at `i64::MAX`.
#[inline]
pub fn as_micros_i64(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Converts a duration to microseconds, rounded down, at most [`MAX_DELAY`].
pub(crate) fn saturating(duration: Duration) -> u64 {
    if duration >= MAX_DELAY {
        return MAX_DELAY_US;
    }
    duration.as_secs() * 1_000_000 + u64::from(duration.subsec_micros())
}

/// Like [`saturating`], but rounded up, for lower bounds.
pub(crate) fn saturating_up(duration: Duration) -> u64 {
    let rounded_down = saturating(duration);
    let is_whole = duration.subsec_nanos().is_multiple_of(1_000);
    if is_whole { rounded_down } else { (rounded_down + 1).min(MAX_DELAY_US) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saturates_at_the_longest_delay() {
        assert_eq!(saturating(Duration::MAX), MAX_DELAY_US);
        assert_eq!(saturating(MAX_DELAY), MAX_DELAY_US);
        assert_eq!(saturating_up(Duration::MAX), MAX_DELAY_US);
    }

    #[test]
    fn rounds_down_for_delays_and_up_for_floors() {
        let odd = Duration::from_nanos(1_500);
        assert_eq!(saturating(odd), 1);
        assert_eq!(saturating_up(odd), 2);
        assert_eq!(saturating_up(Duration::from_micros(2)), 2);
    }
}
