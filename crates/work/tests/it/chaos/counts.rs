//! The number of times each fault occurred.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that only grows.
#[derive(Default)]
pub(crate) struct StepCount(AtomicU64);

impl StepCount {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The number of times each fault and each of its effects occurred.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) kills: StepCount,
    pub(crate) stops: StepCount,
    pub(crate) shutdowns: StepCount,
    pub(crate) slow_clocks: StepCount,
    pub(crate) fast_clocks: StepCount,
    pub(crate) zones: StepCount,
    pub(crate) terminations: StepCount,
    pub(crate) restarts: StepCount,
    pub(crate) pinned_millis: StepCount,
    pub(crate) resubmissions: StepCount,
}

impl Counts {
    /// Returns the counter of every fault, by name. Faults of a server occur only if there is one.
    fn named(&self, has_server: bool) -> Vec<(&'static str, u64)> {
        let mut named = vec![
            ("workers killed", self.kills.get()),
            ("workers stopped past the lease", self.stops.get()),
            ("workers shut down", self.shutdowns.get()),
            ("workers an hour behind", self.slow_clocks.get()),
            ("workers an hour ahead", self.fast_clocks.get()),
        ];
        if has_server {
            named.extend([
                ("workers asking for another time zone", self.zones.get()),
                ("connections terminated", self.terminations.get()),
                ("servers crashed", self.restarts.get()),
                ("milliseconds with a pinned snapshot", self.pinned_millis.get()),
            ]);
        }
        named
    }

    /// Returns a fault that has not occurred, if there is one.
    pub(crate) fn missing(&self, has_server: bool) -> Option<&'static str> {
        self.named(has_server).into_iter().find_map(|(what, count)| (count == 0).then_some(what))
    }

    /// Formats one line per fault.
    pub(crate) fn shown(&self, has_server: bool) -> String {
        let mut named = self.named(has_server);
        named.push(("batches submitted again", self.resubmissions.get()));
        named.iter().fold(String::new(), |mut lines, (what, count)| {
            // Writing into a string cannot fail.
            let _ = writeln!(lines, "  {count:>6} {what}");
            lines
        })
    }
}
