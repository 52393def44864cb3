//! The timeouts, limits and counters of a node.

use std::time::Duration;

use holdoff_paxos::log;
use holdoff_policy::{Growth, Jitter, Policy};

use crate::dedup::DedupLimits;

/// The timeouts and limits of a node.
#[derive(Clone, Debug)]
pub struct Options {
    /// The options of the log.
    pub log: log::Options,
    /// Result timeout: the time that a submission of the node itself waits for its result. A caller sets its own deadline.
    pub result_us: u64,
    /// The interval at which a node sends a pending transaction to the leader again.
    pub resend_us: u64,
    /// The retry policy for requests for missing history.
    pub fetching: Policy,
    /// The maximum number of pending transactions, and of waiting reads, at this node.
    pub pending: usize,
    /// The minimum number of entries that a node keeps to serve to other nodes. Every `2 × kept` indices a node takes
    /// a snapshot. The value must be equal on all nodes: voters do not sign a snapshot at an index at which they take
    /// none themselves.
    pub kept: usize,
    /// The size of a state, in bytes, beyond which a node takes snapshots less often: at twice the size half as often.
    /// Equal on all nodes.
    pub snapshot_bytes: u64,
    /// The size of entries, in bytes, after which a node takes a snapshot and drops the entries before the previous one,
    /// however few they are. It grows with the state as the number of entries does. Equal on all nodes.
    pub kept_bytes: usize,
    /// The maximum size of the state, in bytes. As the leader, a node lets a goal fail that would exceed it.
    pub max_state_bytes: usize,
    /// The size of the chunks of a snapshot, in bytes. Equal on all nodes: a node takes the chunks of one snapshot from
    /// several nodes.
    pub chunk_bytes: usize,
    /// The limits of the dedup window, equal on all nodes.
    pub dedup: DedupLimits,
    /// The maximum number of entries in one message.
    pub batch: usize,
    /// The length of the leader lease, counted from the leader's last request: at most the election timeout of the
    /// log.
    pub lease_us: u64,
    /// The maximum drift between two clocks during the lease, in millionths.
    pub drift_ppm: u64,
}

impl Default for Options {
    fn default() -> Self {
        let log = log::Options::default();
        Self {
            log,
            result_us: 15_000_000,
            resend_us: 1_000_000,
            fetching: fetching(),
            pending: 1024,
            kept: 4096,
            snapshot_bytes: 64 << 20,
            kept_bytes: 64 << 20,
            max_state_bytes: 512 << 20,
            chunk_bytes: 256 << 10,
            dedup: DedupLimits::default(),
            batch: 256,
            lease_us: log.election_us,
            drift_ppm: 10_000,
        }
    }
}

/// Exponential growth with jitter and no limit of attempts, because missing entries stay missing.
fn fetching() -> Policy {
    let growth = Growth::exponential(Duration::from_millis(200), 2.0);
    let builder = Policy::builder(growth).jitter(Jitter::Equal).cap(Duration::from_secs(5));
    builder.attempts(u32::MAX).build().unwrap_or_else(|_| Policy::standard())
}

/// The counters of a node since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct LedgerCounters {
    /// Signature shares whose signature is not the voter's.
    pub forged_signatures: u64,
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
    /// Whole states that this node offered in answer.
    pub states_served: u64,
    /// Chunks of whole states that this node received and stored.
    pub chunks: u64,
    /// Interrupted transfers of a whole state that this node resumed.
    pub transfers_resumed: u64,
    /// Transactions sent to another leader than before.
    pub rerouted: u64,
    /// Leader changes that this node observed.
    pub leader_changes: u64,
    /// Transactions whose result timeout expired.
    pub late: u64,
    /// Submissions that this leader did not execute, because their transactions may have been committed and forgotten.
    pub expired: u64,
}
