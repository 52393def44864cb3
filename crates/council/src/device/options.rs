//! How a device goes about it.

use std::time::Duration;

use holdoff_policy::{Growth, Jitter, Policy, RetryAfter};

/// How a device goes about it.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long to wait when somebody stood in the way: beyond two measured round trips, which are given
    /// to the policy as what the other side asks for.
    pub policy: Policy,
    /// How long to wait for answers before asking again: beyond what is measured, which is given to the policy as what
    /// the other side asks for.
    pub asking: Policy,
    /// How often to ask for news that did not come by themselves.
    pub polling: Policy,
    /// How long to leave it to others to have the council compacted, and to hand in its snapshot where that is missing.
    pub upkeep: Policy,
    /// Whether to tell others what is wanted, and to have decided what they want.
    pub shares: bool,
    /// The largest number of operations to put together for one slot.
    pub batch: usize,
    /// As many operations may be under way.
    pub pending: usize,
    /// What a round trip may take, before one is measured.
    pub first_guess: Duration,
    /// After so many slots of its own log a device stores its state as a whole.
    pub store_every: u64,
    /// After so many slots a device has the council compacted: well before its acceptors are full.
    pub compact_slots: u64,
    /// And after so many bytes of values, as far as it knows of them.
    pub compact_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: waiting(),
            asking: asking(),
            polling: polling(),
            upkeep: upkeep(),
            shares: true,
            batch: 64,
            pending: 256,
            first_guess: Duration::from_millis(100),
            store_every: 100,
            compact_slots: 4096,
            compact_bytes: 8 * 1024 * 1024,
        }
    }
}

/// Full jitter on top of the two round trips; never gives up, for a deadline ends what must end.
fn waiting() -> Policy {
    let ms = Duration::from_millis;
    let spread = RetryAfter { spread: ms(50), ..RetryAfter::default() };
    let growth = Growth::exponential(ms(25), 2.0);
    let builder = Policy::builder(growth).jitter(Jitter::Full).cap(ms(1000)).attempts(u32::MAX);
    builder.retry_after(spread).build().unwrap_or_else(|_| Policy::standard())
}

/// Longer each time, for whoever is overrun needs that to catch its breath; what is measured is the least.
fn asking() -> Policy {
    let ms = Duration::from_millis;
    let growth = Growth::exponential(ms(50), 2.0);
    let builder = Policy::builder(growth).jitter(Jitter::Proportional(0.2)).cap(ms(4000)).attempts(u32::MAX);
    builder.build().unwrap_or_else(|_| Policy::standard())
}

/// Every two seconds, and not all at once.
fn polling() -> Policy {
    let builder = Policy::builder(Growth::constant(Duration::from_secs(2))).jitter(Jitter::Equal);
    builder.attempts(u32::MAX).build().unwrap_or_else(|_| Policy::standard())
}

/// At least two polls, in which to hear that somebody else has done it; later and later if it does not help.
fn upkeep() -> Policy {
    let growth = Growth::exponential(Duration::from_secs(8), 2.0);
    let builder = Policy::builder(growth).jitter(Jitter::Equal).cap(Duration::from_secs(300));
    builder.attempts(u32::MAX).build().unwrap_or_else(|_| Policy::standard())
}
