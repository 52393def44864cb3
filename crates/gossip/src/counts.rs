//! What a node has done, for metrics and for the lab.

/// What a node has done since it was started.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Heartbeats raised as the leader.
    pub raised: u64,
    /// Heartbeats of others taken over.
    pub heard: u64,
    /// Times that another claim was taken over.
    pub claims: u64,
    /// Times that the leader was suspected.
    pub suspected: u64,
    /// Suspicions that a later heartbeat proved wrong.
    pub false_alarms: u64,
    /// Certificates, votes and beats that are not signed as they must be, or by nobody who may.
    pub forged: u64,
    /// Messages and answers kept back, because there were too many in one round.
    pub kept_back: u64,
    /// Exchanges of arcs begun.
    pub exchanges: u64,
    /// Arcs lost, because their end was not reached.
    pub lost_arcs: u64,
}
