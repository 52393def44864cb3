//! How patient a node is, and how much it keeps.

use std::time::Duration;

use holdoff_paxos::log;
use holdoff_policy::{Growth, Jitter, Policy};

/// How patient a node is, and how much it keeps.
#[derive(Clone, Debug)]
pub struct Options {
    /// The log's.
    pub log: log::Options,
    /// How long whoever submits waits for a result.
    pub result_us: u64,
    /// How often a transaction is sent to the leader again.
    pub resend_us: u64,
    /// How long to wait before asking again for history that is missing.
    pub fetching: Policy,
    /// So many transactions and reads may be under way here.
    pub pending: usize,
    /// So many entries at least are kept to be served to others; twice as many are applied between two snapshots. It must be
    /// the same everywhere: a snapshot that others do not make at the same place is signed by nobody.
    pub kept: usize,
    /// So many entries are sent at a time.
    pub batch: usize,
    /// How long a leader may read without asking, since it last asked: not longer than the log's patience.
    pub lease_us: u64,
    /// How far two clocks drift apart while that lasts, at most: in millionths.
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
            batch: 256,
            lease_us: log.election_us,
            drift_ppm: 10_000,
        }
    }
}

/// Longer each time, and not all at once; never gives up, for what is missing stays missing.
fn fetching() -> Policy {
    let growth = Growth::exponential(Duration::from_millis(200), 2.0);
    let builder = Policy::builder(growth).jitter(Jitter::Equal).cap(Duration::from_secs(5));
    builder.attempts(u32::MAX).build().unwrap_or_else(|_| Policy::standard())
}
