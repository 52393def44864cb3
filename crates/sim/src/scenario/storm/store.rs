//! The store that holds the lock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The workers of the store, and the lock.
pub(super) struct Store {
    cost_us: u64,
    /// The time when each worker is free again.
    workers: BinaryHeap<Reverse<u64>>,
    pub(super) holder: Option<u32>,
    pub(super) is_done: bool,
}

impl Store {
    pub(super) fn new(cost_us: u64, workers: u32) -> Self {
        let workers = (0..workers.max(1)).map(|_| Reverse(0)).collect();
        Self { cost_us, workers, holder: None, is_done: false }
    }

    /// Returns the time when a call that arrives now has been served. Calls are served in the order of arrival.
    pub(super) fn serve_us(&mut self, now_us: u64) -> u64 {
        let free_us = self.workers.pop().map_or(0, |Reverse(free_us)| free_us);
        let served_us = free_us.max(now_us).saturating_add(self.cost_us);
        self.workers.push(Reverse(served_us));
        served_us
    }
}

/// The peak number of events within one millisecond; times must be in order.
#[derive(Default)]
pub(super) struct Peak {
    millisecond: u64,
    count: u64,
    highest: u64,
}

impl Peak {
    pub(super) fn count(&mut self, at_us: u64) {
        let millisecond = at_us / 1000;
        if millisecond != self.millisecond {
            (self.millisecond, self.count) = (millisecond, 0);
        }
        self.count += 1;
        self.highest = self.highest.max(self.count);
    }

    pub(super) fn highest(&self) -> u64 {
        self.highest
    }
}
