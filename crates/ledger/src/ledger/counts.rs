//! The counters of a node, for metrics.

/// The counters of a node since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Counts {
    /// Signature shares whose signature is not the voter's.
    pub forged_seals: u64,
    /// Certificates without valid signatures of a majority.
    pub forged_certificates: u64,
    /// Histories and states that this node rejected: tampered with, or not connected to its own history.
    pub refused: u64,
    /// Requests that this node sent for missing history.
    pub fetches: u64,
    /// Histories that this node adopted.
    pub fetched: u64,
    /// Whole states that this node adopted instead of entries.
    pub states: u64,
    /// Requests for missing history that this node received.
    pub requests: u64,
    /// Histories that this node sent in answer.
    pub served: u64,
    /// Whole states that this node sent in answer.
    pub states_served: u64,
    /// Transactions sent to another leader than before.
    pub rerouted: u64,
    /// Leader changes that this node observed.
    pub leader_changes: u64,
    /// Transactions whose result timeout expired.
    pub late: u64,
}
