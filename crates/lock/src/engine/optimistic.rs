//! State that the engines with optimistic concurrency share: each reads a lock, changes it, and writes it back if it is
//! unchanged. Such an engine observes leases on its own clock, and may not learn the outcome of a write.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::Nonce;

/// The maximum number of entries. Beyond it, the least recently used half is removed, and observed anew next time.
const MAX_OBSERVATIONS: usize = 10_000;

/// A bounded table of this process's observations of locks, by digest.
#[derive(Debug)]
pub(super) struct ObservationTable<S>(HashMap<[u8; 32], Observation<S>>);

#[derive(Debug)]
struct Observation<S> {
    value: S,
    used_at: Duration,
}

impl<S> Default for ObservationTable<S> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<S> ObservationTable<S> {
    /// Returns the observation of a lock that is read now; `first()` if there is none.
    pub(super) fn get_or_insert(
        &mut self,
        digest: &[u8; 32],
        now: Duration,
        first: impl FnOnce() -> S,
    ) -> &mut S {
        if self.0.len() >= MAX_OBSERVATIONS && !self.0.contains_key(digest) {
            self.evict_half();
        }
        let observation =
            self.0.entry(*digest).or_insert_with(|| Observation { value: first(), used_at: now });
        observation.used_at = now;
        &mut observation.value
    }

    /// Removes the observation of a lock.
    #[cfg(feature = "kubernetes")]
    pub(super) fn remove(&mut self, digest: &[u8; 32]) {
        self.0.remove(digest);
    }

    fn evict_half(&mut self) {
        let mut times: Vec<Duration> = self.0.values().map(|observation| observation.used_at).collect();
        let middle = times.len() / 2;
        let (_, middle, _) = times.select_nth_unstable(middle);
        let middle = *middle;
        self.0.retain(|_, observation| observation.used_at > middle);
    }
}

/// The maximum number of unresolved writes. Each is resolved when its nonce asks again, is read back or is withdrawn, so
/// more are never needed.
const MAX_UNRESOLVED: usize = 10_000;

/// Writes with an unknown outcome, by the nonce that they were made for. An engine resolves a write before any other
/// operation for its nonce, so that a withdrawn acquisition cannot be granted later.
#[derive(Debug)]
pub(super) struct UnresolvedWrites<W>(Mutex<HashMap<Nonce, W>>);

impl<W> Default for UnresolvedWrites<W> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<W: Clone> UnresolvedWrites<W> {
    /// Records that a write for this nonce is about to be made. If its caller stops waiting, the record remains.
    pub(super) fn insert(&self, nonce: Nonce, write: W) {
        let mut writes = self.0.lock();
        if writes.len() >= MAX_UNRESOLVED && !writes.contains_key(&nonce) {
            tracing::warn!(limit = MAX_UNRESOLVED, "discarded the records of writes with an unknown outcome");
            writes.clear();
        }
        writes.insert(nonce, write);
    }

    /// Removes a write whose outcome is known.
    pub(super) fn resolve(&self, nonce: Nonce) {
        self.0.lock().remove(&nonce);
    }

    /// Removes a write if this condition shows that it cannot take effect any more.
    #[cfg(feature = "kubernetes")]
    pub(super) fn resolve_if(&self, nonce: Nonce, is_void: impl FnOnce(&W) -> bool) {
        let mut writes = self.0.lock();
        if writes.get(&nonce).is_some_and(is_void) {
            writes.remove(&nonce);
        }
    }

    pub(super) fn get(&self, nonce: Nonce) -> Option<W> {
        self.0.lock().get(&nonce).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> [u8; 32] {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_be_bytes());
        digest
    }

    #[test]
    fn the_table_is_bounded_and_evicts_the_least_recently_used_observations() {
        let mut table = ObservationTable::default();
        for number in 1..3 * MAX_OBSERVATIONS {
            let now = Duration::from_millis(number as u64);
            assert_eq!(*table.get_or_insert(&digest(number), now, || number), number);
            assert_eq!(
                *table.get_or_insert(&digest(0), now, || number),
                1,
                "a recently used observation is not evicted"
            );
            assert!(table.0.len() <= MAX_OBSERVATIONS);
        }
        assert_eq!(
            *table.get_or_insert(&digest(1), Duration::from_secs(60), || 7),
            7,
            "an evicted observation is created again"
        );
    }
}
