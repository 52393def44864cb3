//! Leases of other processes, as this process has observed them, and the time since which each has not been renewed.
//!
//! A lease has expired when it was unrenewed for its own duration between two observations, on this process's clock. No
//! wall clock, neither the observer's nor the holder's, takes part in it. A process that has just started to observe a
//! lock waits a whole lease for a dead holder. A process that learns of a renewal late only waits longer.

use std::time::Duration;

use super::entry::Beat;
use crate::engine::sights::Sights;

#[derive(Debug, Default)]
pub(super) struct Observed(Sights<Sight>);

#[derive(Debug)]
struct Sight {
    beat: Beat,
    /// The time at which this beat was first observed.
    since: Duration,
    /// The time at which this holder was first observed.
    held_since: Duration,
}

/// The observed age of a held lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Age {
    /// The lease was not renewed for at least this long.
    pub(super) unrenewed_for: Duration,
    /// This holder has held the lock for at least this long.
    pub(super) held_for: Duration,
}

impl Observed {
    /// Records an observation with its start and end, both on this process's clock.
    pub(super) fn look(&mut self, digest: [u8; 32], beat: Beat, begun: Duration, ended: Duration) -> Age {
        let sight =
            self.0.look(&digest, ended, || Sight { beat: beat.clone(), since: ended, held_since: ended });
        if sight.beat != beat {
            sight.since = ended;
        }
        if sight.beat.nonce != beat.nonce {
            sight.held_since = ended;
        }
        sight.beat = beat;
        // From the end of the first request to the start of this one: the responses were made between them.
        Age {
            unrenewed_for: begun.saturating_sub(sight.since),
            held_for: begun.saturating_sub(sight.held_since),
        }
    }

    /// Removes a lock that is no longer held.
    pub(super) fn forget(&mut self, digest: &[u8; 32]) {
        self.0.forget(digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::kubernetes::entry::Entry;
    use crate::{Key, Nonce, Owner, Token};
    use k8s_openapi::jiff::Timestamp;

    const SECOND: Duration = Duration::from_secs(1);

    fn held() -> Entry {
        let key = Key::new("default", "a").unwrap();
        let mut entry = Entry::unheld(&key);
        let owner = Owner { nonce: Nonce::fresh(), name: String::new() };
        entry.grant(&key, &owner, Token::new(1), SECOND, Timestamp::UNIX_EPOCH);
        entry
    }

    #[test]
    fn only_the_time_between_two_looks_counts() {
        let (mut observed, mut entry) = (Observed::default(), held());
        let mut look = |entry: &Entry, begun: u32, ended: u32| {
            observed.look([0; 32], entry.beat().unwrap(), SECOND * begun, SECOND * ended)
        };
        assert_eq!(look(&entry, 1, 5).unrenewed_for, Duration::ZERO);
        assert_eq!(look(&entry, 7, 20).unrenewed_for, SECOND * 2, "however long the answers took");
        entry.renew(SECOND, Timestamp::UNIX_EPOCH);
        let age = look(&entry, 30, 31);
        assert_eq!((age.unrenewed_for, age.held_for), (Duration::ZERO, SECOND * 25));
        assert_eq!(look(&held(), 40, 41).held_for, Duration::ZERO, "another holder");
    }
}
