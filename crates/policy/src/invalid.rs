//! Why a policy cannot be built.

use alloc::string::String;
use core::time::Duration;

use crate::compiled::MAX_TABLE;

/// Why a policy cannot be built. Nothing was built; each sentence says what to change.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// No tries at all.
    #[error("attempts is 0: the first try counts, so use at least 1")]
    NoAttempts,
    /// A factor that does not grow, or not a number.
    #[error("factor is {0}: use a number from 1 to 1000")]
    Factor(f64),
    /// A share of the ceiling out of range.
    #[error("{what} is {value}: use a number from 0 to {most}")]
    Share {
        /// Which number.
        what: &'static str,
        /// What it was.
        value: f64,
        /// The largest it may be.
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
    /// The first wait alone exceeds the cap.
    #[error("base {base:?} is above the cap {cap:?}: raise the cap or lower the base")]
    BaseAboveCap {
        /// The first ceiling.
        base: Duration,
        /// The cap.
        cap: Duration,
    },
    /// A growth that starts at zero stays there.
    #[error("{0} is zero: use at least 1us")]
    Zero(&'static str),
    /// Delays are kept in whole microseconds.
    #[error("{what} is {value:?}: use whole microseconds")]
    TooFine {
        /// Which duration.
        what: &'static str,
        /// What it was.
        value: Duration,
    },
    /// Longer than [`MAX_DELAY`](crate::MAX_DELAY).
    #[error("{what} is {value:?}: the longest time a policy may speak of is 365 days")]
    TooLong {
        /// Which duration.
        what: &'static str,
        /// What it was.
        value: Duration,
    },
    /// A list without entries, or with too many.
    #[error("the list has {0} delays: use 1 to {MAX_TABLE}")]
    ListLength(usize),
    /// So slow a growth that its table would be too long.
    #[error(
        "growth by {factor} does not reach the cap within {MAX_TABLE} tries: use a larger factor, a max_exponent below {MAX_TABLE}, or linear growth"
    )]
    TooSlow {
        /// The factor.
        factor: f64,
    },
    /// The compiled form read from outside does not hold together.
    #[error("not a compiled policy: {0}")]
    Compiled(String),
}
