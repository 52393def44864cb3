//! The section about ledgers: `[ledger]`.

use schemars::JsonSchema;

use super::DurationText;

/// Ledgers, in the daemon. They run if `data` is set, or if there are some in the folder `ledger` of the daemon's own
/// data.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct LedgerTable {
    /// Where other nodes reach this one. Default: 127.0.0.1:4848.
    listen: Option<String>,
    /// The directory of its key and its stores.
    data: Option<String>,
    /// The host and the port that others are told. Default: where it listens.
    advertise: Option<String>,
    /// What people call this node. Default: the first digits of its key.
    name: Option<String>,
    /// How long whoever submits a transaction waits for its result. Default: 15s.
    result_timeout: Option<DurationText>,
    /// How long a leader may read without asking others; not longer than `election`. Default: 1s, or `election` if that
    /// is shorter.
    lease: Option<DurationText>,
    /// A leader unheard of for so long is taken for dead. Default: 1s.
    election: Option<DurationText>,
    /// A leader is heard of so often; half of `election` at most. Default: 150ms.
    heartbeat: Option<DurationText>,
    /// How many entries are kept to be shown and sent to others: the same on all nodes. Default: 4096.
    #[schemars(range(min = 16, max = 1_000_000))]
    kept: Option<u32>,
    /// How many transactions and reads may be under way. Default: 1024.
    #[schemars(range(min = 1, max = 100_000))]
    max_pending: Option<u32>,
    /// Who should lead, by hearsay.
    gossip: Option<GossipTable>,
}

/// How long news takes, and how long to wait for it.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct GossipTable {
    /// How often the leader raises its heartbeat, and everybody looks at what it knows. Default: 300ms.
    round: Option<DurationText>,
    /// Over how many nodes news travels at most. Default: 6.
    #[schemars(range(min = 1, max = 64))]
    diameter: Option<u32>,
    /// How long news takes from one node to the next. Default: 50ms.
    dissemination: Option<DurationText>,
    /// By how much clocks differ over a suspicion. Default: 50ms.
    clock_tolerance: Option<DurationText>,
    /// How many others each node tells what is new. Default: 3.
    #[schemars(range(min = 1, max = 32))]
    fan_out: Option<u32>,
    /// How long a claim must stand before it is a hint. Default: as long as news takes to all.
    election: Option<DurationText>,
    /// How long a new node listens before it votes. Default: two rounds.
    listening: Option<DurationText>,
    /// How long a heart may stand still. Default: four rounds, the time news takes to all, and the clocks' tolerance.
    suspicion: Option<DurationText>,
    /// How long a claim stands before its leader must have a quorum. Default: twice the suspicion.
    minimum_tenure: Option<DurationText>,
    /// After how many rounds some arcs are exchanged, where nodes do not know all others. Default: 20.
    #[schemars(range(min = 1, max = 100_000))]
    exchange_rounds: Option<u32>,
}
