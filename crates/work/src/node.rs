//! The processes that run on a store.

use crate::Moment;

/// A process that runs workers on a store, or joined it as a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct NodeRecord {
    /// The host and the process id.
    pub name: String,
    /// The release of holdoff.
    pub version: String,
    /// The time at which the process started.
    pub started_at: Moment,
    /// The time of the last report.
    pub seen_at: Moment,
    /// The version of the policies that are active on the node.
    pub policies: String,
    /// The difference between the node and the store's active policies, if there is one.
    pub drift: Option<String>,
    /// The number of steps that its workers run now.
    pub running: u64,
    /// The number of steps that its workers can run at once.
    pub places: u64,
    /// The number of runs that ended on the node within the last minute.
    pub finished_last_minute: u64,
    /// Whether the last report is recent enough.
    pub is_alive: bool,
}

/// The report of a node about itself.
#[derive(Clone, Debug)]
pub(crate) struct NodeRow {
    pub(crate) id: uuid::Uuid,
    pub(crate) name: String,
    pub(crate) version: &'static str,
    pub(crate) policies: String,
    pub(crate) drift: Option<String>,
    pub(crate) running: u64,
    pub(crate) places: u64,
    pub(crate) finished: u64,
}

impl NodeRecord {
    /// A node without a report for this long is not alive. An idle node reports every ten seconds.
    pub(crate) const ALIVE: std::time::Duration = std::time::Duration::from_secs(30);
    /// A node without a report for this long is removed from the list.
    pub(crate) const KEPT: std::time::Duration = std::time::Duration::from_secs(24 * 3600);
}
