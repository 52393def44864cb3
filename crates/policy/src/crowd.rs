//! Spreading by the number of contenders.

use core::time::Duration;

/// How to spread the next try when it is known how many contend.
///
/// The next try falls anywhere in `[0, min(limit, contenders × slot)]`. A good slot is a little longer
/// than the work that is contended for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crowd {
    /// The time each contender is given.
    pub slot: Duration,
    /// The longest spread, however many contend.
    pub limit: Duration,
}

impl Crowd {
    /// The longest spread where none is given.
    pub const DEFAULT_LIMIT: Duration = Duration::from_secs(60);

    /// Gives each contender `slot`, within [`Self::DEFAULT_LIMIT`].
    pub const fn new(slot: Duration) -> Self {
        Self { slot, limit: Self::DEFAULT_LIMIT }
    }
}
