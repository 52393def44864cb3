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
        sight.versions.entry(entry.version).or_insert(came);
        let first = |beat: u64| sight.versions.range(beat..).next().map(|(version, at)| (*version, *at));
        let row = entry.row(|beat| first(beat).map_or(came, |(_, at)| at));
        sight.versions = entry.beats().filter_map(first).collect();
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
