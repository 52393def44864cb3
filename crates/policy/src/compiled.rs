//! The compiled form of a policy.
//!
//! A few integers from which any language can compute; `docs/policy.md` has the arithmetic. The canonical
//! text ([`Compiled::canonical`]) is one line of JSON with its keys in a fixed order, and the policy's id is
//! the SHA-256 of that line. The meaning of version 1 never changes.

mod canonical;
mod compile;
#[cfg(feature = "std")]
mod read;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

pub use canonical::{InvalidPolicyId, PolicyId};
pub use compile::InvalidPolicy;
pub(crate) use compile::{compile, validate};

use crate::micros::{self, ONE_PPM};
use crate::{Attempt, Beyond, Contention, Failure, RetryAfter, Window};

/// The largest number of ceilings in a compiled policy.
pub const MAX_TABLE: usize = 1024;

/// A policy as integers: decides, serialises, and can be recomputed in any language.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    pub(crate) attempts: u32,
    pub(crate) deadline_us: Option<u64>,
    pub(crate) retry_after: RetryAfterUs,
    pub(crate) contention: Option<ContentionUs>,
    cap_us: u64,
    low_ppm: u32,
    high_ppm: u32,
    shape: DelayShape,
    /// The precomputed windows of a table; empty for the other shapes.
    windows: Box<[Window]>,
    /// The index of the table's last window.
    last_window: usize,
}

/// The rule for the ceilings.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DelayShape {
    /// The ceiling after attempt n is entry n; the last entry repeats.
    Table(
        /// The ceilings in microseconds, at least one.
        Vec<u64>,
    ),
    /// The ceiling after attempt n is `min(top, first + step × (n − 1))`.
    Line {
        /// The first ceiling.
        first_us: u64,
        /// The increment of each further attempt.
        step_us: u64,
        /// The largest ceiling.
        top_us: u64,
    },
    /// The window is `[base, min(cap, 3 × the last delay)]`.
    Decorrelated {
        /// The low end, which also stands in for the last delay before there was one.
        base_us: u64,
    },
}

/// [`RetryAfter`] in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RetryAfterUs {
    pub(crate) spread_us: u64,
    pub(crate) limit_us: u64,
    pub(crate) beyond: Beyond,
}

/// [`Contention`] in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ContentionUs {
    pub(crate) slot_us: u64,
    pub(crate) limit_us: u64,
}

impl From<RetryAfter> for RetryAfterUs {
    fn from(rule: RetryAfter) -> Self {
        Self {
            spread_us: micros::saturating(rule.spread),
            limit_us: micros::saturating(rule.limit),
            beyond: rule.beyond,
        }
    }
}

impl From<Contention> for ContentionUs {
    fn from(contention: Contention) -> Self {
        Self { slot_us: micros::saturating(contention.slot), limit_us: micros::saturating(contention.limit) }
    }
}

impl Compiled {
    /// Returns the number of attempts, the first included.
    #[inline]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the time limit of the whole operation.
    pub fn deadline(&self) -> Option<Duration> {
        self.deadline_us.map(Duration::from_micros)
    }

    /// Returns the longest delay, except for `Retry-After` and contention.
    pub fn cap(&self) -> Duration {
        Duration::from_micros(self.cap_us)
    }

    /// Returns the rule for the ceilings.
    pub fn shape(&self) -> &DelayShape {
        &self.shape
    }

    /// Returns the policy's own window after this attempt, before `Retry-After`, contention and deadline
    /// modify it.
    ///
    /// `last_delay` affects decorrelated jitter only; zero means that there was none yet.
    #[inline]
    pub fn window(&self, attempt: Attempt, last_delay: Duration) -> Window {
        self.tabled_window(attempt).unwrap_or_else(|| self.computed_window(attempt, last_delay))
    }

    /// Returns the window from the table, if there is a table; the last entry repeats.
    #[inline]
    pub(crate) fn tabled_window(&self, attempt: Attempt) -> Option<Window> {
        let index = usize::try_from(attempt.index()).unwrap_or(usize::MAX);
        self.windows.get(index.min(self.last_window)).copied()
    }

    /// Returns the window after this failure, without regard to the deadline; `None` if the server asks for a
    /// longer wait than the policy allows.
    #[inline]
    pub fn window_for(&self, attempt: Attempt, last_delay: Duration, failure: &Failure) -> Option<Window> {
        if failure.contenders().is_none() && failure.retry_after().is_none() {
            return Some(self.window(attempt, last_delay));
        }
        self.window_told(attempt, last_delay, failure)
    }

    /// Applies, in order of precedence, `Retry-After`, contention and the own window. Not inlined, because
    /// most failures carry neither of the first two.
    #[inline(never)]
    fn window_told(&self, attempt: Attempt, last_delay: Duration, failure: &Failure) -> Option<Window> {
        let own = match (self.contention, failure.contenders()) {
            (Some(contention), Some(contenders)) => contention.window(contenders.get()),
            _ => self.window(attempt, last_delay),
        };
        let Some(asked) = failure.retry_after() else { return Some(own) };
        self.retry_after.raise(own, micros::saturating_up(asked))
    }

    #[inline(never)]
    fn computed_window(&self, attempt: Attempt, last_delay: Duration) -> Window {
        match self.shape {
            DelayShape::Line { first_us, step_us, top_us } => {
                let grown = u64::from(attempt.index()).saturating_mul(step_us).saturating_add(first_us);
                around(grown.min(top_us), self.low_ppm, self.high_ppm, self.cap_us)
            }
            DelayShape::Decorrelated { base_us } => {
                let last_us = micros::saturating(last_delay).max(base_us);
                Window::new(base_us, (last_us * 3).min(self.cap_us))
            }
            // A table has precomputed windows, at least one, so this branch is unreachable.
            DelayShape::Table(_) => Window::new(0, self.cap_us),
        }
    }
}

impl RetryAfterUs {
    fn raise(&self, own: Window, asked_us: u64) -> Option<Window> {
        let floor_us = match self.beyond {
            _ if asked_us <= self.limit_us => asked_us,
            Beyond::Wait => asked_us,
            Beyond::Clip => self.limit_us,
            Beyond::GiveUp => return None,
        };
        Some(own.raised(floor_us, self.spread_us))
    }
}

impl ContentionUs {
    fn window(self, contenders: u32) -> Window {
        Window::new(0, self.slot_us.saturating_mul(u64::from(contenders)).min(self.limit_us))
    }
}

/// Returns the window around a ceiling: its shares, cut at the cap.
fn around(ceiling_us: u64, low_ppm: u32, high_ppm: u32, cap_us: u64) -> Window {
    Window::new(share(ceiling_us, low_ppm), share(ceiling_us, high_ppm).min(cap_us))
}

/// Returns this many millionths of a time, rounded down.
fn share(us: u64, ppm: u32) -> u64 {
    let product = u128::from(us) * u128::from(ppm) / u128::from(ONE_PPM);
    u64::try_from(product).unwrap_or(u64::MAX)
}
