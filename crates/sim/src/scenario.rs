//! The scenarios: each has a description of its model, its parameters, and the outcome of a run.
//!
//! Every scenario is a function of its parameters, a strategy and a seed. Each actor draws from its own random number
//! stream, so that the same seed puts every strategy into the same situation (common random numbers).

mod check;
pub mod duel;
pub mod election;
pub mod limit;
pub mod outage;
pub mod row;
pub mod storm;

use std::time::Duration;

use holdoff_policy::{Attempt, SoFar};
use serde::{Deserialize, Serialize};

use crate::{Histogram, Series, Strategy};

pub use check::{InvalidParams, MAX_CLIENTS};

/// A scenario with its parameters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Scenario {
    /// N clients each update one versioned row once.
    Row(row::Params),
    /// N contenders acquire one lock at the same time.
    Storm(storm::Params),
    /// A fleet meets a rate limit.
    Limit(limit::Params),
    /// A dependency fails for a while, under layers that retry.
    Outage(outage::Params),
    /// N proposers have one operation each decided through Paxos, without a leader.
    Duel(duel::Params),
    /// N nodes elect one leader, by gossip and a log, or by the source document's algorithm.
    Election(election::Params),
}

impl Scenario {
    /// The names and descriptions of the scenarios.
    pub const ALL: [(&'static str, &'static str); 6] = [
        ("row", "N clients each update one versioned row once"),
        ("storm", "N contenders acquire one lock at the same time"),
        ("limit", "a fleet meets a rate limit that answers 429 and Retry-After"),
        ("outage", "a dependency fails for a while, under layers that retry"),
        ("duel", "N proposers have one operation each decided by Paxos, without a leader"),
        ("election", "N nodes elect one leader, with loss, crashes, partitions and churn"),
    ];

    /// Returns the scenario of this name with its default parameters.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "row" => Self::Row(row::Params::default()),
            "storm" => Self::Storm(storm::Params::default()),
            "limit" => Self::Limit(limit::Params::default()),
            "outage" => Self::Outage(outage::Params::default()),
            "duel" => Self::Duel(duel::Params::default()),
            "election" => Self::Election(election::Params::default()),
            _ => return None,
        })
    }

    /// Returns the name used in tables and on the command line.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Row(_) => "row",
            Self::Storm(_) => "storm",
            Self::Limit(_) => "limit",
            Self::Outage(_) => "outage",
            Self::Duel(_) => "duel",
            Self::Election(_) => "election",
        }
    }

    /// Returns the description of the scenario.
    pub fn about(&self) -> &'static str {
        Self::ALL.iter().find(|(name, _)| *name == self.name()).map_or("", |(_, about)| about)
    }

    /// Returns the strategies that the scenario compares by default.
    pub const fn usual_strategies(&self) -> &'static [&'static str] {
        match self {
            Self::Row(_) => {
                &["none", "exponential", "full", "equal", "decorrelated", "contended", "contention"]
            }
            Self::Storm(_) => &["fixed", "lock"],
            Self::Limit(_) => &["full", "retry-after", "retry-after-spread"],
            Self::Outage(_) => &["standard"],
            Self::Duel(_) => {
                &["linear-stale", "linear", "proposal-stale", "proposal", "contended", "council"]
            }
            Self::Election(_) => &election::Algorithm::NAMES,
        }
    }

    /// Returns the strategy of this name in this scenario: a leader election algorithm, or one of the lab's strategies
    /// and presets.
    pub fn strategy(&self, name: &str) -> Option<Strategy> {
        match self {
            Self::Election(_) => election::Algorithm::named(name).map(Strategy::election),
            _ => Strategy::named(name),
        }
    }

    /// Returns the number of clients or nodes.
    pub const fn clients(&self) -> u32 {
        match self {
            Self::Row(params) => params.clients,
            Self::Storm(params) => params.clients,
            Self::Limit(params) => params.clients,
            Self::Outage(params) => params.clients,
            Self::Duel(params) => params.clients,
            Self::Election(params) => params.nodes,
        }
    }

    /// Returns the scenario with this number of clients.
    #[must_use]
    pub fn with_clients(mut self, number: u32) -> Self {
        let clients = match &mut self {
            Self::Row(params) => &mut params.clients,
            Self::Storm(params) => &mut params.clients,
            Self::Limit(params) => &mut params.clients,
            Self::Outage(params) => &mut params.clients,
            Self::Duel(params) => &mut params.clients,
            Self::Election(params) => &mut params.nodes,
        };
        *clients = number;
        self
    }

    /// Runs the scenario once.
    pub fn run(&self, strategy: &Strategy, seed: u64) -> RunResult {
        match self {
            Self::Row(params) => row::run(params, strategy, seed).run_result(),
            Self::Storm(params) => storm::run(params, strategy, seed).run_result(),
            Self::Limit(params) => limit::run(params, strategy, seed).run_result(),
            Self::Outage(params) => outage::run(params, strategy, seed).run_result(),
            Self::Duel(params) => duel::run(params, strategy, seed).run_result(),
            Self::Election(params) => election::run(params, strategy, seed).run_result(),
        }
    }
}

/// Returns the history of an operation, from virtual times.
fn so_far(attempts: u32, elapsed_us: u64, last_delay_us: u64) -> SoFar {
    SoFar {
        attempt: Attempt::new(attempts),
        elapsed: Duration::from_micros(elapsed_us),
        last_delay: Duration::from_micros(last_delay_us),
        ..SoFar::default()
    }
}

/// The result of a run of any scenario: a time, calls, unserved clients, and the scenario's own figures.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct RunResult {
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
    pub ranks: duel::Ranks,
    /// Completed clients over time, if the scenario records them.
    pub done_over_time: Series,
    /// Times of which a run has many, by name, in microseconds.
    pub pooled: Vec<(&'static str, Vec<u64>)>,
    /// The changes of the nodes' views of the leader, if the scenario records them.
    pub leader_views: Vec<election::LeaderView>,
}

impl RunResult {
    fn new(time_us: u64, calls: u64, failed: u64) -> Self {
        Self { time_us, calls, failed, ..Self::default() }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of a simulation stay far below 2^52")]
    fn figure(self, name: &'static str, count: u64) -> Self {
        self.number(name, count as f64)
    }

    fn number(mut self, name: &'static str, value: f64) -> Self {
        self.figures.push((name, value));
        self
    }

    fn done(self, ranks: duel::Ranks, done_over_time: Series) -> Self {
        Self { ranks, done_over_time, ..self }
    }

    fn pooled(mut self, name: &'static str, times_us: Vec<u64>) -> Self {
        self.pooled.push((name, times_us));
        self
    }

    fn leader_views(self, leader_views: Vec<election::LeaderView>) -> Self {
        Self { leader_views, ..self }
    }

    fn plots(self, calls_over_time: Series, delays: Histogram) -> Self {
        Self { calls_over_time, delays, ..self }
    }
}
