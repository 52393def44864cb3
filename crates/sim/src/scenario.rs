//! The scenarios: each has a description of its model, its parameters, and the outcome of a run.
//!
//! Every scenario is a function of its parameters, a strategy and a seed. Each actor draws from its own random number
//! stream, so that the same seed puts every strategy into the same situation (common random numbers).

mod check;
pub mod duel;
pub mod election;
pub mod limit;
mod measured;
pub mod outage;
pub mod row;
pub mod storm;

use std::time::Duration;

use holdoff_policy::{Attempt, SoFar};
use serde::{Deserialize, Serialize};

pub use check::{MAX_CLIENTS, Senseless};
pub use measured::Measured;

use crate::Strategy;

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
        ("storm", "N contenders want one lock at the same time"),
        ("limit", "a fleet meets a rate limit that answers 429 and Retry-After"),
        ("outage", "a dependency fails for a while, under layers that retry"),
        ("duel", "N proposers want one operation each through Paxos, without a leader"),
        ("election", "N nodes look for one leader, with loss, crashes, partitions and churn"),
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
            Self::Row(_) => &["none", "exponential", "full", "equal", "decorrelated", "contended", "crowd"],
            Self::Storm(_) => &["fixed", "lock"],
            Self::Limit(_) => &["full", "told", "told-spread"],
            Self::Outage(_) => &["standard"],
            Self::Duel(_) => {
                &["linear-stale", "linear", "proposal-stale", "proposal", "contended", "council"]
            }
            Self::Election(_) => &election::Way::NAMES,
        }
    }

    /// Returns the strategy of this name in this scenario: a leader election algorithm, or one of the lab's strategies
    /// and presets.
    pub fn strategy(&self, name: &str) -> Option<Strategy> {
        match self {
            Self::Election(_) => election::Way::named(name).map(Strategy::way),
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
    pub fn run(&self, strategy: &Strategy, seed: u64) -> Measured {
        match self {
            Self::Row(params) => row::run(params, strategy, seed).measured(),
            Self::Storm(params) => storm::run(params, strategy, seed).measured(),
            Self::Limit(params) => limit::run(params, strategy, seed).measured(),
            Self::Outage(params) => outage::run(params, strategy, seed).measured(),
            Self::Duel(params) => duel::run(params, strategy, seed).measured(),
            Self::Election(params) => election::run(params, strategy, seed).measured(),
        }
    }
}

/// Returns the history of an operation, from virtual times.
fn so_far(tries: u32, elapsed_us: u64, last_delay_us: u64) -> SoFar {
    SoFar {
        attempt: Attempt::new(tries),
        elapsed: Duration::from_micros(elapsed_us),
        last_delay: Duration::from_micros(last_delay_us),
        ..SoFar::default()
    }
}
