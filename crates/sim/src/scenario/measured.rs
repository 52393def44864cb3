//! The result of a run, common to all scenarios.

use super::duel::Ranks;
use super::election::Thought;
use crate::{Histogram, Series};

/// The result of a run of any scenario: a time, calls, unserved clients, and the scenario's own figures.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Measured {
    /// The time of the run.
    pub time_us: u64,
    /// The number of calls.
    pub calls: u64,
    /// The number of clients that gave up, timed out or were never served; of an outage, one if it did not end.
    pub failed: u64,
    /// The scenario's own figures, by name; every run of a scenario has the same names.
    pub figures: Vec<(&'static str, f64)>,
    /// Calls over time.
    pub calls_over_time: Series,
    /// The delays between attempts.
    pub delays: Histogram,
    /// The finishing order of clients, if the scenario records it.
    pub ranks: Ranks,
    /// Completed clients over time, if the scenario records them.
    pub done_over_time: Series,
    /// Times of which a run has many, by name, in microseconds.
    pub pooled: Vec<(&'static str, Vec<u64>)>,
    /// The changes of the nodes' views of the leader, if the scenario records them.
    pub thoughts: Vec<Thought>,
}

impl Measured {
    pub(super) fn new(time_us: u64, calls: u64, failed: u64) -> Self {
        Self { time_us, calls, failed, ..Self::default() }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of a simulation stay far below 2^52")]
    pub(super) fn figure(self, name: &'static str, count: u64) -> Self {
        self.number(name, count as f64)
    }

    pub(super) fn number(mut self, name: &'static str, value: f64) -> Self {
        self.figures.push((name, value));
        self
    }

    pub(super) fn done(self, ranks: Ranks, done_over_time: Series) -> Self {
        Self { ranks, done_over_time, ..self }
    }

    pub(super) fn pooled(mut self, name: &'static str, times_us: Vec<u64>) -> Self {
        self.pooled.push((name, times_us));
        self
    }

    pub(super) fn thoughts(self, thoughts: Vec<Thought>) -> Self {
        Self { thoughts, ..self }
    }

    pub(super) fn plots(self, calls_over_time: Series, delays: Histogram) -> Self {
        Self { calls_over_time, delays, ..self }
    }
}
