//! The times at which this process first saw each version: the only clock that leases are measured with.
//!
//! The content of a version was written before any process saw that version or a later one. If it is still current, it
//! has stood for at least the time since then. The transaction that expects the row checks that it is still current. No
//! wall clock, neither the observer's nor the holder's, takes part in it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::entry::Entry;
use crate::engine::sights::Sights;
use crate::row::Row;

#[derive(Debug, Default)]
pub(super) struct Observed(Sights<Versions>);

/// The time at which each version was first seen, while some part of the row still has it as its beat.
type Versions = BTreeMap<u64, Duration>;

impl Observed {
    /// Records a row that arrived at this time, and returns it on the local clock.
    pub(super) fn look(&mut self, digest: &[u8; 32], entry: &Entry, came: Duration) -> Row {
        let versions = self.0.look(digest, came, Versions::new);
        // The local copy may be older than a row seen before. No time of the newer row may be removed then.
        let is_newest = versions.last_key_value().is_none_or(|(newest, _)| *newest <= entry.version);
        if is_newest {
            versions.entry(entry.version).or_insert(came);
        }
        let first = |beat: u64| versions.range(beat..).next().map(|(version, at)| (*version, *at));
        let row = entry.row(|beat| first(beat).map_or(came, |(_, at)| at));
        if is_newest {
            *versions = entry.beats().filter_map(first).collect();
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Writing;
    use super::*;
    use crate::row::Ground;
    use crate::{Key, Nonce, Owner, Token};

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns a lock that was granted for ten seconds in this version.
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
        assert_eq!(observed.0.look(&[0; 32], SECOND, Versions::new).len(), 1);
    }
}
