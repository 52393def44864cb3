//! When this process first saw what: the only clock that leases are measured with.
//!
//! What was written in a version was written before anybody saw that version, or a later one. So it has stood for at least
//! as long as that is ago, if it still stands; and whether it does, the transaction says which expects to find it. What
//! wall clocks say, ours or the holder's, has no part in it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::entry::Entry;
use crate::row::Row;

/// So many locks are remembered; of more, those that nobody has asked for longest are forgotten, and seen as new next time.
const MOST: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Observed(HashMap<[u8; 32], Sight>);

#[derive(Debug, Default)]
struct Sight {
    /// When each version was first seen, as far as something of it still stands.
    versions: BTreeMap<u64, Duration>,
    looked_at: Duration,
}

impl Observed {
    /// Takes in a row that came at this time; answers what it means on our clock.
    pub(super) fn look(&mut self, digest: &[u8; 32], entry: &Entry, came: Duration) -> Row {
        if self.0.len() >= MOST && !self.0.contains_key(digest) {
            self.forget_half();
        }
        let sight = self.0.entry(*digest).or_default();
        sight.looked_at = came;
        // What is at hand may be older than what was seen before, of which nothing may be forgotten then.
        let is_newest = sight.versions.last_key_value().is_none_or(|(newest, _)| *newest <= entry.version);
        if is_newest {
            sight.versions.entry(entry.version).or_insert(came);
        }
        let first = |beat: u64| sight.versions.range(beat..).next().map(|(version, at)| (*version, *at));
        let row = entry.row(|beat| first(beat).map_or(came, |(_, at)| at));
        if is_newest {
            sight.versions = entry.beats().filter_map(first).collect();
        }
        row
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
    use super::super::entry::Writing;
    use super::*;
    use crate::row::Ground;
    use crate::{Key, Nonce, Owner, Token};

    const SECOND: Duration = Duration::from_secs(1);

    /// A lock that was granted for ten seconds in this version.
    fn held(version: u64) -> Entry {
        let ground = Ground { era: 0, floor: Token::new(0) };
        let (key, mut row) = (Key::new("default", "a").unwrap(), Row::new(Duration::ZERO));
        let owner = Owner { nonce: Nonce::fresh(), name: String::new() };
        row.bid(&owner, SECOND * 10, None, ground, Duration::ZERO);
        let writing = Writing { version, now: Duration::ZERO, renews: Some(owner.nonce), written_s: 0 };
        Entry::written(&key, &row, None, writing)
    }

    fn until(row: &Row) -> Duration {
        row.lease.as_ref().unwrap().until
    }

    #[test]
    fn what_was_seen_first_counts_also_if_something_older_is_seen_later() {
        let (mut observed, older, newer) = (Observed::default(), held(3), held(7));
        let mut look = |entry: &Entry, second: u32| until(&observed.look(&[0; 32], entry, SECOND * second));
        assert_eq!(look(&newer, 1), SECOND * 11);
        assert_eq!(look(&older, 5), SECOND * 11, "it was written before what was seen then");
        assert_eq!(look(&newer, 6), SECOND * 11);
        assert_eq!(look(&held(8), 9), SECOND * 19, "something new");
    }

    #[test]
    fn it_does_not_grow_without_end() {
        let mut observed = Observed::default();
        for version in 1..100 {
            observed.look(&[0; 32], &held(version), SECOND);
        }
        assert_eq!(observed.0.get(&[0; 32]).unwrap().versions.len(), 1);
        let entry = held(1);
        for number in 0..3 * MOST {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_be_bytes());
            observed.look(&digest, &entry, Duration::from_millis(number as u64));
            assert!(observed.0.len() <= MOST);
        }
    }
}
