//! The processes that work on a store.

use crate::Moment;

/// A process that runs workers, or a daemon, on a store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct NodeRecord {
    /// Its host and process.
    pub name: String,
    /// Its release.
    pub version: String,
    /// When it began.
    pub started_at: Moment,
    /// When it was heard of last.
    pub seen_at: Moment,
    /// The version of the policies in force there.
    pub policies: String,
    /// How it differs from the others, if it does.
    pub drift: Option<String>,
    /// Steps that its workers run now.
    pub running: u64,
    /// How many they could run at once.
    pub places: u64,
    /// Runs that ended there within the last minute.
    pub finished_last_minute: u64,
    /// Whether it was heard of not long ago.
    pub is_alive: bool,
}

/// What a node says of itself.
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
    /// Whoever says nothing for so long is not alive. Nodes with nothing to tell say so every ten seconds.
    pub(crate) const ALIVE: std::time::Duration = std::time::Duration::from_secs(30);
    /// Whoever says nothing for so long is forgotten.
    pub(crate) const KEPT: std::time::Duration = std::time::Duration::from_secs(24 * 3600);
}
