//! How the ceiling of the wait grows from try to try.

use alloc::vec::Vec;
use core::time::Duration;

/// How the ceiling of the wait grows from try to try, before jitter and cap.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Growth {
    /// `base × factorⁿ` after the try with n tries before it.
    Exponential {
        /// The first ceiling.
        base: Duration,
        /// At least 1; compiled to millionths.
        factor: f64,
        /// The largest n; `None` lets the cap end the growth.
        max_exponent: Option<u32>,
    },
    /// `base + step × n`.
    Linear {
        /// The first ceiling.
        base: Duration,
        /// What each further try adds.
        step: Duration,
    },
    /// `base × 1, 1, 2, 3, 5, 8, …`
    Fibonacci {
        /// The first ceiling.
        base: Duration,
    },
    /// The same every time.
    Constant {
        /// The ceiling.
        delay: Duration,
    },
    /// Exactly these; the last one repeats.
    List {
        /// The ceilings, one a try.
        delays: Vec<Duration>,
    },
}

impl Growth {
    /// Multiplies by `factor` each time.
    pub const fn exponential(base: Duration, factor: f64) -> Self {
        Self::Exponential { base, factor, max_exponent: None }
    }

    /// Adds `step` each time.
    pub const fn linear(base: Duration, step: Duration) -> Self {
        Self::Linear { base, step }
    }

    /// Adds the two before.
    pub const fn fibonacci(base: Duration) -> Self {
        Self::Fibonacci { base }
    }

    /// Does not grow.
    pub const fn constant(delay: Duration) -> Self {
        Self::Constant { delay }
    }

    /// Follows a list; its last entry repeats.
    pub fn list(delays: impl IntoIterator<Item = Duration>) -> Self {
        Self::List { delays: delays.into_iter().collect() }
    }

    /// The word used in the policy file.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Exponential { .. } => "exponential",
            Self::Linear { .. } => "linear",
            Self::Fibonacci { .. } => "fibonacci",
            Self::Constant { .. } => "constant",
            Self::List { .. } => "list",
        }
    }

    /// The first ceiling.
    pub(crate) fn first(&self) -> Duration {
        match self {
            Self::Exponential { base, .. } | Self::Linear { base, .. } | Self::Fibonacci { base } => *base,
            Self::Constant { delay } => *delay,
            Self::List { delays } => delays.first().copied().unwrap_or_default(),
        }
    }

    /// The largest ceiling, for the kinds that know it without a cap.
    pub(crate) fn natural_top(&self) -> Option<Duration> {
        match self {
            Self::Constant { delay } => Some(*delay),
            Self::List { delays } => delays.iter().max().copied(),
            _ => None,
        }
    }
}
