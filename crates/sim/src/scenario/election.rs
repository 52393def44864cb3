//! Elections: N nodes look for one leader.
//!
//! **Holdoff's way** is gossip's hint and the voters' log, the real ones: [`holdoff_gossip`] says who should lead,
//! [`holdoff_paxos::log`] decides who does. The first min(N, 7) nodes vote. A voter that knows of no leader leaves it to
//! the one that the hint names, for one patience; the one that is named runs at once, if it hears no leader. Who leads the
//! log and serves has **authority**. The leader has something new decided every second. Voters go by the log, all others
//! by the hint.
//!
//! **The first system's way** and its three proposed cures ([`Way`]) run on the same links and meet the same faults. There
//! whoever takes itself for the leader acts as one. Here it has authority if more than half of those who are up take it
//! for the leader, too: that is kind to it.
//!
//! In a mesh everybody knows everybody; with a partial view each node begins with four others from its file, and the
//! views are those of gossip's sampling, for both. A share of messages is lost, as many are doubled, and as many held back.
//!
//! One kind of **fault** strikes in a run: the leader crashes and comes back, the town is cut into two random halves and
//! heals, or any node is restarted. Faults begin when everybody has agreed once.
//!
//! The run's time is when everybody first takes the one with authority for the leader; its calls are messages; failed are
//! faults that were not got over before the next one, and a first leader that never came. The town is looked at every
//! 50 ms, so times are that much too long at most.

pub mod bars;
mod citizen;
mod design;
mod first;
mod keys;
mod town;
mod trouble;
mod voter;
mod way;

use serde::{Deserialize, Serialize};

use super::Measured;
use crate::kernel::{Latency, NodeId};
use crate::{Micros, Rule, Strategy};

pub use way::Way;

/// No more nodes vote.
const MAX_VOTERS: u32 = 7;

/// The election's parameters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// How many nodes there are; the first seven vote.
    pub nodes: u32,
    /// Whom a node knows.
    pub view: View,
    /// The share of messages that get lost; as many are doubled, and as many held back.
    pub loss: f64,
    /// What goes wrong.
    pub fault: Fault,
    /// How long until the next fault, from the last one or from its end.
    pub fault_every: Micros,
    /// How long who has crashed is down.
    pub down_for: Micros,
    /// How long a partition lasts.
    pub cut_for: Micros,
    /// How long the run is.
    pub duration: Micros,
    /// Whether whom the hint names runs for the lead at once, if it hears no leader; otherwise others only wait for it.
    pub named_runs: bool,
    /// How long a message travels.
    pub hop: Latency,
}

impl Default for Params {
    /// Ten nodes that know each other, 5 to 15 ms apart, whose leader crashes every twenty seconds, for two minutes.
    fn default() -> Self {
        Self {
            nodes: 10,
            view: View::Mesh,
            loss: 0.01,
            fault: Fault::Crash,
            fault_every: Micros::from_secs(20),
            down_for: Micros::from_secs(10),
            cut_for: Micros::from_secs(30),
            duration: Micros::from_secs(120),
            named_runs: true,
            hop: Latency::Uniform { low: Micros::from_millis(5), high: Micros::from_millis(15) },
        }
    }
}

impl Params {
    /// How many nodes vote.
    pub fn voters(&self) -> u32 {
        self.nodes.min(MAX_VOTERS)
    }
}

/// Whom a node knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// Everybody.
    Mesh,
    /// A few, who change.
    Partial,
}

/// What goes wrong, beside messages that are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Nothing.
    None,
    /// The leader crashes, and comes back.
    Crash,
    /// One half does not hear the other, for a while.
    Partition,
    /// Some node crashes, and comes back.
    Churn,
}

/// Somebody takes somebody else for the leader than before; nobody, also while it is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Thought {
    /// When.
    pub at_us: u64,
    /// Whose thought it is.
    pub node: NodeId,
    /// Whom it takes for the leader.
    pub leader: Option<NodeId>,
}

/// What one run showed.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// When everybody first took the one with authority for the leader.
    pub first_us: Option<u64>,
    /// Times after that when authority went to another, or to the same in another term.
    pub changes: u64,
    /// Times that two began to lead at once: of holdoff's way, that one decided anything after a later one had.
    pub two_at_once: u64,
    /// The share of time after the first agreement in which nobody had authority.
    pub without_share: f64,
    /// Faults that struck.
    pub faults: u64,
    /// Faults that were not got over before the next one. They are among the times, with the time they had.
    pub unrecovered: u64,
    /// From each crash of a leader until somebody had authority.
    pub recoveries_us: Vec<u64>,
    /// From each healing until every voter took the one with authority for the leader, and had all that anybody had when it
    /// was healed.
    pub healings_us: Vec<u64>,
    /// From each crash of a leader, and each healing, until everybody took the one with authority for the leader.
    pub known_us: Vec<u64>,
    /// Those after which somebody did not, until the next one. They are among the times, with the time they had.
    pub unknown: u64,
    /// Messages that were sent.
    pub messages: u64,
    /// The same for each node and second.
    pub messages_per_node_s: f64,
    /// Bytes that were sent for each node and second, with 64 of framing a message.
    pub bytes_per_node_s: f64,
    /// Bytes that the busiest node sent in a second.
    pub most_bytes_per_s: f64,
    /// Places of the history in which two voters have something else: always zero.
    pub torn: u64,
    /// Messages that were lost.
    pub lost_messages: u64,
    /// Who took whom for the leader, in the first two minutes.
    pub thoughts: Vec<Thought>,
}

impl Outcome {
    pub(super) fn measured(self) -> Measured {
        let never = u64::from(self.first_us.is_none());
        Measured::new(self.first_us.unwrap_or(0), self.messages, self.unrecovered + never)
            .figure("changes", self.changes)
            .figure("two_at_once", self.two_at_once)
            .number("without_percent", self.without_share * 100.0)
            .figure("faults", self.faults)
            .figure("unknown", self.unknown)
            .number("messages_per_node_s", self.messages_per_node_s)
            .number("bytes_per_node_s", self.bytes_per_node_s)
            .number("most_bytes_per_s", self.most_bytes_per_s)
            .figure("torn", self.torn)
            .figure("lost_messages", self.lost_messages)
            .pooled("recovery", self.recoveries_us)
            .pooled("known", self.known_us)
            .pooled("healing", self.healings_us)
            .thoughts(self.thoughts)
    }
}

/// Runs the election once. Without nodes, or with a strategy that is no way to find a leader, nothing happens.
pub fn run(params: &Params, strategy: &Strategy, seed: u64) -> Outcome {
    let Rule::Way(way) = *strategy.rule() else { return Outcome::default() };
    let outcome = match way {
        Way::Holdoff => town::Town::<design::Elector>::new(params, way, seed).map(|town| town.run(params)),
        _ => town::Town::<first::Asker>::new(params, way, seed).map(|town| town.run(params)),
    };
    outcome.unwrap_or_default()
}
