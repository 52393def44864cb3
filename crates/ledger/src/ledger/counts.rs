//! What a node has done, for metrics.

/// What a node has done since it was started.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Counts {
    /// Seals that their voter has not signed.
    pub forged_seals: u64,
    /// Certificates that no majority has signed.
    pub forged_certificates: u64,
    /// Histories and states that were tampered with, or that nothing here leads to.
    pub refused: u64,
    /// Times that others were asked for what is missing.
    pub fetches: u64,
    /// Histories taken over.
    pub fetched: u64,
    /// Whole states taken over in the place of entries.
    pub states: u64,
    /// Times that others asked for what they miss.
    pub requests: u64,
    /// Histories sent to them.
    pub served: u64,
    /// Whole states sent to them.
    pub states_served: u64,
    /// Transactions sent to another leader than the one before.
    pub rerouted: u64,
    /// Times that another was known to lead than before.
    pub leader_changes: u64,
    /// Transactions whose result did not come in time.
    pub late: u64,
}
