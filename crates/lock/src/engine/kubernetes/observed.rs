//! Leases that others hold, as this process has seen them: since when each has not been renewed.
//!
//! A lease is over when it has stood unrenewed for its own duration between two looks of ours, on our own clock.
//! What wall clocks say, ours or the holder's, has no part in it. A process that has just begun to look waits a whole
//! lease for a holder that is dead; one that is told of a renewal late only waits longer.

use std::time::Duration;

use super::entry::Beat;
use crate::engine::sights::Sights;

#[derive(Debug, Default)]
pub(super) struct Observed(Sights<Sight>);

#[derive(Debug)]
struct Sight {
    beat: Beat,
    /// When this beat was first seen.
    since: Duration,
    /// When this holder was first seen.
    held_since: Duration,
}

/// What is known of a lease that somebody holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Age {
    /// It has surely not been renewed for so long.
    pub(super) unrenewed_for: Duration,
    /// This holder has surely had it for so long.
    pub(super) held_for: Duration,
}

impl Observed {
    /// Takes in a look that was begun and ended at these times, both on our clock.
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
        // From the end of the first look to the beginning of this one: the answers were made between them.
        Age {
            unrenewed_for: begun.saturating_sub(sight.since),
            held_for: begun.saturating_sub(sight.held_since),
        }
    }

    /// Nobody holds it any more.
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
