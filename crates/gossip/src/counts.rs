//! A node's counters, for metrics and for the lab.

/// A node's counters since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Heartbeats that this node raised as the leader.
    pub raised: u64,
    /// Heartbeats of other leaders that this node adopted.
    pub heard: u64,
    /// Claims that this node adopted.
    pub claims: u64,
    /// Times that this node began to suspect the leader.
    pub suspected: u64,
    /// Suspicions that a later heartbeat proved wrong.
    pub false_alarms: u64,
    /// Certificates, votes and heartbeats without valid signatures by nodes that may sign them, and messages beyond the
    /// limits.
    pub forged: u64,
    /// Messages and answers suppressed by the limits for a round.
    pub kept_back: u64,
    /// Exchanges of arcs that this node began.
    pub exchanges: u64,
    /// Arcs lost because their peer was unreachable.
    pub lost_arcs: u64,
}
