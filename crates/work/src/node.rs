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
