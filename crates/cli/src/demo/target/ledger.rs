//! What the target has seen and done: each thing once, however often it is asked for.

use std::collections::{HashMap, HashSet, VecDeque};

/// The most keys that are remembered. More than a run with a summary has; one without end forgets the oldest.
const MOST_KEYS: usize = 50_000;

/// What the target has seen and done, by idempotency key.
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

/// How often what happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::demo) struct Totals {
    /// Requests that came.
    pub(in crate::demo) requests: u64,
    /// Those that were answered with no.
    pub(in crate::demo) refused: u64,
    /// Those whose answer took so long that nobody waited for it.
    pub(in crate::demo) late: u64,
    /// Those for something that was done already: it was not done again.
    pub(in crate::demo) repeated: u64,
}

/// What is known of a request that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// It is the how-manieth time, and not done yet.
    Undone { time: u32 },
    /// It was done before.
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

    /// Does it, unless somebody with the same key was quicker.
    pub(super) fn perform(&mut self, key: &str) {
        if let Some(seen) = self.seen.get_mut(key).filter(|seen| seen.done == 0) {
            seen.done += 1;
        }
    }

    pub(in crate::demo) const fn totals(&self) -> Totals {
        self.totals
    }

    /// The keys of everything that was done.
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
