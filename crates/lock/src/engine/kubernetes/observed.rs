//! Leases that others hold, as this process has seen them: since when each has not been renewed.
//!
//! A lease is over when it has stood unrenewed for its own duration between two looks of ours, on our own clock.
//! What wall clocks say, ours or the holder's, has no part in it. A process that has just begun to look waits a whole
//! lease for a holder that is dead; one that is told of a renewal late only waits longer.

use std::collections::HashMap;
use std::time::Duration;

use super::entry::Beat;

/// So many are remembered; of more, those that nobody has asked for longest are forgotten, and seen as new next time.
const MOST: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Observed(HashMap<[u8; 32], Sight>);

#[derive(Debug)]
struct Sight {
    beat: Beat,
    /// When this beat was first seen.
    since: Duration,
    /// When this holder was first seen.
    held_since: Duration,
    looked_at: Duration,
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
        if self.0.len() >= MOST && !self.0.contains_key(&digest) {
            self.forget_half();
        }
        let mut new = Sight { beat, since: ended, held_since: ended, looked_at: ended };
        if let Some(old) = self.0.remove(&digest) {
            if old.beat == new.beat {
                new.since = old.since;
            }
            if old.beat.nonce == new.beat.nonce {
                new.held_since = old.held_since;
            }
        }
        // From the end of the first look to the beginning of this one: the answers were made between them.
        let age = Age {
            unrenewed_for: begun.saturating_sub(new.since),
            held_for: begun.saturating_sub(new.held_since),
        };
        self.0.insert(digest, new);
        age
    }

    /// Nobody holds it any more.
    pub(super) fn forget(&mut self, digest: &[u8; 32]) {
        self.0.remove(digest);
    }

    fn forget_half(&mut self) {
        let mut times: Vec<Duration> = self.0.values().map(|sight| sight.looked_at).collect();
        let middle = times.len() / 2;
        let (_, middle, _) = times.select_nth_unstable(middle);
        let middle = *middle;
        self.0.retain(|_, sight| sight.looked_at > middle);
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

    #[test]
    fn it_does_not_grow_without_end() {
        let (mut observed, entry) = (Observed::default(), held());
        for number in 0..3 * MOST {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_be_bytes());
            let now = Duration::from_millis(number as u64);
            observed.look(digest, entry.beat().unwrap(), now, now);
            assert!(observed.0.len() <= MOST);
        }
    }
}
