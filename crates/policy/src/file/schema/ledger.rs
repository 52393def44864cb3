//! The `[ledger]` section: ledgers.

use schemars::JsonSchema;

use super::DurationText;

/// Ledgers in the daemon. The daemon runs them if `data` is set, or if the folder `ledger` of its own data
/// directory contains ledgers.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct LedgerTable {
    /// The address on which other nodes reach this node. Default: 127.0.0.1:4848.
    listen: Option<String>,
    /// The directory of the node's key and stores.
    data: Option<String>,
    /// The host and port that the node advertises to other nodes. Default: the value of `listen`.
    advertise: Option<String>,
    /// The display name of this node. Default: the first digits of its key.
    name: Option<String>,
    /// The time that a client waits for the result of a transaction. Default: 15s.
    result_timeout: Option<DurationText>,
    /// The time that a leader may serve reads without contacting its followers; not longer than `election`.
    /// Default: 1s, or `election` if that is shorter.
    lease: Option<DurationText>,
    /// The election timeout: a follower that has not heard from the leader for this time considers it dead.
    /// Default: 1s.
    election: Option<DurationText>,
    /// The interval of the leader's heartbeats; at most half of `election`. Default: 150ms.
    heartbeat: Option<DurationText>,
    /// The number of log entries that a node keeps to display and to send to other nodes. It must be the same
    /// on all nodes. Default: 4096.
    #[schemars(range(min = 16, max = 1_000_000))]
    kept: Option<u32>,
    /// The largest number of transactions and reads in flight. Default: 1024.
    #[schemars(range(min = 1, max = 100_000))]
    max_pending: Option<u32>,
    /// The gossip protocol that suggests a leader.
    gossip: Option<GossipTable>,
}

/// The timing of the gossip protocol.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct GossipTable {
    /// The gossip interval: in each round the leader increments its heartbeat and every node evaluates its
    /// own view. Default: 300ms.
    round: Option<DurationText>,
    /// The largest number of hops that an update travels. Default: 6.
    #[schemars(range(min = 1, max = 64))]
    diameter: Option<u32>,
    /// The time that an update takes from one node to the next. Default: 50ms.
    dissemination: Option<DurationText>,
    /// The largest difference of two clocks over one suspicion timeout. Default: 50ms.
    clock_tolerance: Option<DurationText>,
    /// The number of peers to which each node sends updates. Default: 3.
    #[schemars(range(min = 1, max = 32))]
    fan_out: Option<u32>,
    /// The time for which a claim must be stable before it becomes a hint. Default: the time that an update
    /// takes to reach all nodes.
    election: Option<DurationText>,
    /// The time that a new node listens before it votes. Default: two rounds.
    listening: Option<DurationText>,
    /// The suspicion timeout: the time for which a heartbeat counter may stand still. Default: four rounds,
    /// the time that an update takes to reach all nodes, and the clock tolerance.
    suspicion: Option<DurationText>,
    /// The time between a claim and the moment at which its leader must have a quorum. Default: twice the
    /// suspicion timeout.
    minimum_tenure: Option<DurationText>,
    /// The number of rounds between two exchanges of arcs, where nodes do not know all other nodes. Default:
    /// 20.
    #[schemars(range(min = 1, max = 100_000))]
    exchange_rounds: Option<u32>,
}
