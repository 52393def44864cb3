//! How a device goes about it.

use std::time::Duration;

use holdoff_policy::{Growth, Jitter, Policy, RetryAfter};

/// How a device goes about it.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long to wait when somebody stood in the way: beyond two measured round trips, which are given
    /// to the policy as what the other side asks for.
    pub policy: Policy,
    /// Whether to tell others what is wanted, and to have decided what they want.
    pub shares: bool,
    /// The largest number of operations to put together for one slot.
    pub batch: usize,
    /// As many operations may be under way.
    pub pending: usize,
    /// How often to ask for news that did not come by themselves.
    pub poll: Duration,
    /// What a round trip may take, before one is measured.
    pub first_guess: Duration,
    /// After so many slots of its own log a device stores its state as a whole.
    pub store_every: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: waiting(),
            shares: true,
            batch: 64,
            pending: 256,
            poll: Duration::from_secs(2),
            first_guess: Duration::from_millis(100),
            store_every: 100,
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
