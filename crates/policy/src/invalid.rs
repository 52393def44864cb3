//! The reasons why a policy is invalid.

use alloc::string::String;
use core::time::Duration;

use crate::compiled::MAX_TABLE;

/// The reason why a policy is invalid. No policy was built; each message says what to change.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The number of attempts is zero.
    #[error("attempts is 0: the first try counts, so use at least 1")]
    NoAttempts,
    /// The factor is below 1, above 1000 or not a number.
    #[error("factor is {0}: use a number from 1 to 1000")]
    Factor(f64),
    /// A share of the ceiling is out of range.
    #[error("{what} is {value}: use a number from 0 to {most}")]
    Share {
        /// The name of the number.
        what: &'static str,
        /// The value.
        value: f64,
        /// The largest valid value.
        most: f64,
    },
    /// The scaled window's ends are swapped.
    #[error("the jitter's low share {low} is above its high share {high}: swap them")]
    Swapped {
        /// The low share.
        low: f64,
        /// The high share.
        high: f64,
    },
    /// The first ceiling exceeds the cap.
    #[error("base {base:?} is above the cap {cap:?}: raise the cap or lower the base")]
    BaseAboveCap {
        /// The first ceiling.
        base: Duration,
        /// The cap.
        cap: Duration,
    },
    /// The value is zero: a growth that starts at zero stays at zero.
    #[error("{0} is zero: use at least 1us")]
    Zero(&'static str),
    /// The duration is finer than a microsecond: delays are whole microseconds.
    #[error("{what} is {value:?}: use whole microseconds")]
    TooFine {
        /// The name of the duration.
        what: &'static str,
        /// The value.
        value: Duration,
    },
    /// The duration exceeds [`MAX_DELAY`](crate::MAX_DELAY).
    #[error("{what} is {value:?}: the longest time a policy may speak of is 365 days")]
    TooLong {
        /// The name of the duration.
        what: &'static str,
        /// The value.
        value: Duration,
    },
    /// The list is empty or too long.
    #[error("the list has {0} delays: use 1 to {MAX_TABLE}")]
    ListLength(usize),
    /// The growth is so slow that its table would be too long.
    #[error(
        "growth by {factor} does not reach the cap within {MAX_TABLE} tries: use a larger factor, a max_exponent below {MAX_TABLE}, or linear growth"
    )]
    TooSlow {
        /// The factor.
        factor: f64,
    },
    /// The compiled form from outside is inconsistent.
    #[error("not a compiled policy: {0}")]
    Compiled(String),
}
