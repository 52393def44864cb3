//! A bounded table of this process's observations of locks, by digest.

use std::collections::HashMap;
use std::time::Duration;

/// The maximum number of entries. Beyond it, the least recently used half is removed, and observed anew next time.
const MOST: usize = 10_000;

#[derive(Debug)]
pub(super) struct Sights<S>(HashMap<[u8; 32], Sight<S>>);

#[derive(Debug)]
struct Sight<S> {
    seen: S,
    looked_at: Duration,
}

impl<S> Default for Sights<S> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<S> Sights<S> {
    /// Returns the observation of a lock that is read now; `first()` if there is none.
    pub(super) fn look(&mut self, digest: &[u8; 32], now: Duration, first: impl FnOnce() -> S) -> &mut S {
        if self.0.len() >= MOST && !self.0.contains_key(digest) {
            self.forget_half();
        }
        let sight = self.0.entry(*digest).or_insert_with(|| Sight { seen: first(), looked_at: now });
        sight.looked_at = now;
        &mut sight.seen
    }

    /// Removes the observation of a lock.
    #[cfg(feature = "kubernetes")]
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

    fn digest(number: usize) -> [u8; 32] {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_be_bytes());
        digest
    }

    #[test]
    fn it_does_not_grow_without_end_and_forgets_what_nobody_asks_for() {
        let mut sights = Sights::default();
        for number in 1..3 * MOST {
            let now = Duration::from_millis(number as u64);
            assert_eq!(*sights.look(&digest(number), now, || number), number);
            assert_eq!(*sights.look(&digest(0), now, || number), 1, "somebody asks for it all the time");
            assert!(sights.0.len() <= MOST);
        }
        assert_eq!(*sights.look(&digest(1), Duration::from_secs(60), || 7), 7, "seen as new");
    }
}
