//! Elections: N nodes elect one leader.
//!
//! **Holdoff's algorithm** combines the hint of gossip with the voters' log, both production code: [`holdoff_gossip`]
//! names the node that should lead, [`holdoff_paxos::log`] decides which node leads. The first min(N, 7) nodes vote. A
//! voter that knows of no leader yields to the node that the hint names, for one election timeout. The named node campaigns
//! at once, if it hears no leader. The node that leads the log and serves has **authority**. The leader has a new value
//! decided every second. Voters follow the log, all other nodes follow the hint.
//!
//! **The baseline** is the source document's algorithm. It and its three proposed variants ([`Algorithm`]) run on the same
//! links and meet the same faults. In the baseline every node that considers itself the leader acts as the leader. Here
//! it has authority only if more than half of the nodes that are up consider it the leader, too. That favours the
//! baseline.
//!
//! Every node knows every other node. A share of messages is lost, an equal share is duplicated, and an equal share is
//! delayed.
//!
//! One kind of **fault** strikes in a run: the leader crashes and restarts, the cluster is partitioned into two random
//! halves and heals, or a random node restarts. Faults begin when all nodes have agreed once.
//!
//! The time of a run is when all nodes first consider the node with authority the leader; its calls are messages.
//! Failures are the faults from which the cluster did not recover before the next one, and a missing first leader. The
//! run observes the cluster every 50 ms, so measured times are too long by at most that much.

pub mod acceptance;
mod baseline;
mod cluster;
mod holdoff;
mod node;

use serde::{Deserialize, Serialize};

use super::RunResult;
use crate::kernel::{Latency, NodeId};
use crate::{Micros, Rule, Strategy};

/// The largest number of voters.
const MAX_VOTERS: u32 = 7;

/// The parameters of the election.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// The number of nodes; the first seven vote.
    pub nodes: u32,
    /// The share of messages that are lost; an equal share is duplicated, and an equal share is delayed.
    pub loss: f64,
    /// The kind of fault.
    pub fault: FaultKind,
    /// The time to the next fault, from the previous one or from its end.
    pub fault_every: Micros,
    /// The time for which a crashed node is down.
    pub down_for: Micros,
    /// The duration of a partition.
    pub cut_for: Micros,
    /// The duration of the run.
    pub duration: Micros,
    /// Whether the node that the hint names campaigns at once, if it hears no leader. Otherwise the other nodes
    /// only wait for it.
    pub named_campaigns: bool,
    /// The travel time of a message.
    pub hop: Latency,
}

impl Default for Params {
    /// Ten nodes, 5 to 15 ms apart, whose leader crashes every twenty seconds, for two minutes.
    fn default() -> Self {
        Self {
            nodes: 10,
            loss: 0.01,
            fault: FaultKind::Crash,
            fault_every: Micros::from_secs(20),
            down_for: Micros::from_secs(10),
            cut_for: Micros::from_secs(30),
            duration: Micros::from_secs(120),
            named_campaigns: true,
            hop: Latency::Uniform { low: Micros::from_millis(5), high: Micros::from_millis(15) },
        }
    }
}

impl Params {
    /// Returns the number of voters.
    pub fn voters(&self) -> u32 {
        self.nodes.min(MAX_VOTERS)
    }
}

/// The kind of fault, in addition to lost messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// No fault.
    None,
    /// The leader crashes and restarts.
    Crash,
    /// Two halves of the cluster are partitioned for a while.
    Partition,
    /// A random node crashes and restarts.
    Churn,
}

/// A change of a node's view of the leader. The view is `None` if the node knows no leader or is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct LeaderView {
    /// The time of the change.
    pub at_us: u64,
    /// The node whose view changed.
    pub node: NodeId,
    /// The leader in the node's view.
    pub leader: Option<NodeId>,
}

/// The outcome of one run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// The time when all nodes first considered the node with authority the leader.
    pub first_us: Option<u64>,
    /// Times after that when authority went to another node, or to the same node in another term.
    pub changes: u64,
    /// Times that two nodes began to lead at once. For holdoff's algorithm: times that a leader decided an entry after
    /// a later leader had.
    pub two_at_once: u64,
    /// The share of time after the first agreement in which no node had authority.
    pub without_share: f64,
    /// Faults that struck.
    pub faults: u64,
    /// Faults from which the cluster did not recover before the next one. They are among the times, with the time they
    /// had.
    pub unrecovered: u64,
    /// The times from each crash of a leader until a node had authority.
    pub recoveries_us: Vec<u64>,
    /// The times from each healing until every voter considered the node with authority the leader, and had the longest
    /// history that existed at the healing.
    pub healings_us: Vec<u64>,
    /// The times from each crash of a leader, and each healing, until all nodes considered the node with authority the
    /// leader.
    pub known_us: Vec<u64>,
    /// The faults after which some node did not until the next fault. They are among the times, with the time they had.
    pub unknown: u64,
    /// Messages that were sent.
    pub messages: u64,
    /// Messages per node and second.
    pub messages_per_node_s: f64,
    /// Bytes sent per node and second, with 64 bytes of framing a message.
    pub bytes_per_node_s: f64,
    /// Bytes per second of the node that sent the most, over the whole run.
    pub most_bytes_per_s: f64,
    /// Indexes of the history at which two voters diverge: always zero.
    pub diverged: u64,
    /// Messages that were lost.
    pub lost_messages: u64,
    /// The changes of the nodes' views of the leader, in the first two minutes.
    pub leader_views: Vec<LeaderView>,
}

impl Outcome {
    pub(super) fn run_result(self) -> RunResult {
        let never = u64::from(self.first_us.is_none());
        RunResult::new(self.first_us.unwrap_or(0), self.messages, self.unrecovered + never)
            .figure("changes", self.changes)
            .figure("two_at_once", self.two_at_once)
            .number("without_percent", self.without_share * 100.0)
            .figure("faults", self.faults)
            .figure("unknown", self.unknown)
            .number("messages_per_node_s", self.messages_per_node_s)
            .number("bytes_per_node_s", self.bytes_per_node_s)
            .number("most_bytes_per_s", self.most_bytes_per_s)
            .figure("diverged", self.diverged)
            .figure("lost_messages", self.lost_messages)
            .pooled("recovery", self.recoveries_us)
            .pooled("known", self.known_us)
            .pooled("healing", self.healings_us)
            .leader_views(self.leader_views)
    }
}

/// Runs the election once. Without nodes, or with a strategy that is not an election algorithm, nothing happens.
pub fn run(params: &Params, strategy: &Strategy, seed: u64) -> Outcome {
    let Rule::Election(algorithm) = *strategy.rule() else { return Outcome::default() };
    let outcome = match algorithm {
        Algorithm::Holdoff => cluster::Cluster::<holdoff::HoldoffNode>::new(params, algorithm, seed)
            .map(|cluster| cluster.run(params)),
        _ => cluster::Cluster::<baseline::BaselineNode>::new(params, algorithm, seed)
            .map(|cluster| cluster.run(params)),
    };
    outcome.unwrap_or_default()
}

/// A leader election algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// The source document's algorithm: the majority of three random votes, or one of them at random.
    Baseline,
    /// The same, but a node keeps its choice for ten seconds.
    Sticky,
    /// The same, but a node changes its choice only if another leader has two more votes than the current one.
    Hysteresis,
    /// The same with rounds of a second.
    SlowRounds,
    /// Holdoff's algorithm: a hint by gossip, authority by the log.
    Holdoff,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 5] =
        [Self::Baseline, Self::Sticky, Self::Hysteresis, Self::SlowRounds, Self::Holdoff];

    /// The names used in tables and on the command line.
    pub const NAMES: [&'static str; 5] =
        ["baseline", "baseline-sticky", "baseline-hysteresis", "baseline-slow", "holdoff"];

    /// Returns the algorithm of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Returns the name used in tables and on the command line.
    pub const fn name(self) -> &'static str {
        let [baseline, sticky, hysteresis, slow_rounds, holdoff] = Self::NAMES;
        match self {
            Self::Baseline => baseline,
            Self::Sticky => sticky,
            Self::Hysteresis => hysteresis,
            Self::SlowRounds => slow_rounds,
            Self::Holdoff => holdoff,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_known() {
        assert_eq!(Algorithm::NAMES.map(Algorithm::named), Algorithm::ALL.map(Some));
        assert_eq!(Algorithm::named("full"), None);
    }
}
