//! Contention-aware backoff: spreading by the number of contenders.

use core::time::Duration;

/// The spread of the next attempt if the number of contenders is known.
///
/// The next attempt is uniform over `[0, min(limit, contenders × slot)]`. A good slot is slightly longer than
/// the work under contention.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crowd {
    /// The time slot of each contender.
    pub slot: Duration,
    /// The longest spread, for any number of contenders.
    pub limit: Duration,
}

impl Crowd {
    /// The default limit of the spread.
    pub const DEFAULT_LIMIT: Duration = Duration::from_secs(60);

    /// Allots `slot` to each contender, within [`Self::DEFAULT_LIMIT`].
    pub const fn new(slot: Duration) -> Self {
        Self { slot, limit: Self::DEFAULT_LIMIT }
    }
}
