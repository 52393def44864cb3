//! The dependency: of finite capacity, and for a while broken.

use std::collections::VecDeque;

use super::Params;

/// One call of one request; the calls of a request are numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Call {
    pub(super) request: u32,
    pub(super) number: u32,
}

/// The immediate outcome of a call.
pub(super) enum Reception {
    /// A worker begins at once.
    Begins,
    /// The call waits in the queue.
    Waits,
    /// The dependency is broken or the queue is full.
    Fails,
}

pub(super) struct Dependency {
    idle: u32,
    line: VecDeque<Call>,
    line_limit: usize,
    broken_from_us: u64,
    broken_until_us: u64,
}

impl Dependency {
    pub(super) fn new(params: &Params) -> Self {
        Self {
            idle: params.workers.max(1),
            line: VecDeque::new(),
            line_limit: params.line_limit as usize,
            broken_from_us: params.outage_start.0,
            broken_until_us: params.outage_end_us(),
        }
    }

    pub(super) fn is_broken(&self, now_us: u64) -> bool {
        (self.broken_from_us..self.broken_until_us).contains(&now_us)
    }

    pub(super) fn receive(&mut self, call: Call, now_us: u64) -> Reception {
        if self.is_broken(now_us) {
            return Reception::Fails;
        }
        if self.idle > 0 {
            self.idle -= 1;
            return Reception::Begins;
        }
        if self.line.len() >= self.line_limit {
            return Reception::Fails;
        }
        self.line.push_back(call);
        Reception::Waits
    }

    /// Frees a worker, and returns the next call that it begins.
    pub(super) fn finish(&mut self) -> Option<Call> {
        let next = self.line.pop_front();
        self.idle += u32::from(next.is_none());
        next
    }
}
