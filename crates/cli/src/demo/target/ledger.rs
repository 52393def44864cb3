//! The requests and effects that the target recorded. Each key takes effect once, however often it is requested.

use std::collections::{HashMap, HashSet, VecDeque};

/// The maximum number of remembered keys. A run with a summary has fewer; a run without end evicts the oldest.
const MOST_KEYS: usize = 50_000;

/// The requests and effects of the target, by idempotency key.
#[derive(Debug, Default)]
pub(in crate::demo) struct Ledger {
    seen: HashMap<String, Seen>,
    order: VecDeque<String>,
    totals: Totals,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    times: u32,
    done: u32,
}

/// The counters of the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::demo) struct Totals {
    /// All received requests.
    pub(in crate::demo) requests: u64,
    /// Refused requests.
    pub(in crate::demo) refused: u64,
    /// Requests whose response exceeded the caller's timeout.
    pub(in crate::demo) late: u64,
    /// Requests for a key that had already taken effect, which had no second effect.
    pub(in crate::demo) repeated: u64,
}

/// The state of a key when its request arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// The request has not taken effect yet. `time` counts its arrivals.
    Undone { time: u32 },
    /// The request has already taken effect.
    Done,
}

impl Ledger {
    pub(super) fn arrive(&mut self, key: &str) -> Arrival {
        self.totals.requests += 1;
        if !self.seen.contains_key(key) {
            self.make_room();
            self.order.push_back(key.to_owned());
        }
        let seen = self.seen.entry(key.to_owned()).or_default();
        seen.times += 1;
        if seen.done > 0 {
            self.totals.repeated += 1;
            return Arrival::Done;
        }
        Arrival::Undone { time: seen.times }
    }

    pub(super) fn refuse(&mut self) {
        self.totals.refused += 1;
    }

    pub(super) fn keep_waiting(&mut self) {
        self.totals.late += 1;
    }

    /// Applies the effect, unless a concurrent request with the same key already has.
    pub(super) fn perform(&mut self, key: &str) {
        if let Some(seen) = self.seen.get_mut(key).filter(|seen| seen.done == 0) {
            seen.done += 1;
        }
    }

    pub(in crate::demo) const fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the keys of all requests that took effect.
    pub(in crate::demo) fn done(&self) -> HashSet<String> {
        self.seen.iter().filter(|(_, seen)| seen.done > 0).map(|(key, _)| key.clone()).collect()
    }

    fn make_room(&mut self) {
        while self.order.len() >= MOST_KEYS
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_not_done_again() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.arrive("a"), Arrival::Undone { time: 1 });
        ledger.refuse();
        assert_eq!(ledger.arrive("a"), Arrival::Undone { time: 2 });
        ledger.perform("a");
        ledger.perform("a");
        assert_eq!(ledger.arrive("a"), Arrival::Done);
        assert_eq!(ledger.arrive("b"), Arrival::Undone { time: 1 });
        assert_eq!(ledger.done(), HashSet::from(["a".to_owned()]));
        assert_eq!(ledger.totals(), Totals { requests: 4, refused: 1, late: 0, repeated: 1 });
    }

    #[test]
    fn it_does_not_grow_without_end() {
        let mut ledger = Ledger::default();
        for number in 0..MOST_KEYS + 10 {
            ledger.arrive(&number.to_string());
        }
        assert_eq!((ledger.seen.len(), ledger.order.len()), (MOST_KEYS, MOST_KEYS));
        assert_eq!(ledger.arrive("0"), Arrival::Undone { time: 1 }, "the oldest is forgotten");
    }
}
