//! The growth of the ceiling from attempt to attempt.

use alloc::vec::Vec;
use core::time::Duration;

/// The growth of the wait's ceiling from attempt to attempt, before jitter and cap.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Growth {
    /// `base × factorⁿ` after the attempt with n attempts before it.
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
        /// The increment of each further attempt.
        step: Duration,
    },
    /// `base × 1, 1, 2, 3, 5, 8, …`
    Fibonacci {
        /// The first ceiling.
        base: Duration,
    },
    /// The same ceiling every time.
    Constant {
        /// The ceiling.
        delay: Duration,
    },
    /// The ceilings of a list; the last repeats.
    List {
        /// The ceilings, one for each attempt.
        delays: Vec<Duration>,
    },
}

impl Growth {
    /// Creates a growth that multiplies by `factor` after each attempt.
    pub const fn exponential(base: Duration, factor: f64) -> Self {
        Self::Exponential { base, factor, max_exponent: None }
    }

    /// Creates a growth that adds `step` after each attempt.
    pub const fn linear(base: Duration, step: Duration) -> Self {
        Self::Linear { base, step }
    }

    /// Creates a growth in which each ceiling is the sum of the two before.
    pub const fn fibonacci(base: Duration) -> Self {
        Self::Fibonacci { base }
    }

    /// Creates a constant ceiling.
    pub const fn constant(delay: Duration) -> Self {
        Self::Constant { delay }
    }

    /// Creates a growth that follows a list; its last entry repeats.
    pub fn list(delays: impl IntoIterator<Item = Duration>) -> Self {
        Self::List { delays: delays.into_iter().collect() }
    }

    /// Returns the word used in the policy file.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Exponential { .. } => "exponential",
            Self::Linear { .. } => "linear",
            Self::Fibonacci { .. } => "fibonacci",
            Self::Constant { .. } => "constant",
            Self::List { .. } => "list",
        }
    }

    /// Returns the first ceiling.
    pub(crate) fn first(&self) -> Duration {
        match self {
            Self::Exponential { base, .. } | Self::Linear { base, .. } | Self::Fibonacci { base } => *base,
            Self::Constant { delay } => *delay,
            Self::List { delays } => delays.first().copied().unwrap_or_default(),
        }
    }

    /// Returns the largest ceiling, for the kinds that have one without a cap.
    pub(crate) fn natural_top(&self) -> Option<Duration> {
        match self {
            Self::Constant { delay } => Some(*delay),
            Self::List { delays } => delays.iter().max().copied(),
            _ => None,
        }
    }
}
