//! Entries of the log, and snapshots.

use serde::{Deserialize, Serialize};

use super::{Mark, Term};
use crate::{Configuration, Slot};

/// An entry of the log. A later leader that inherits the entry keeps its term.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Entry<V> {
    /// The term of the leader that created the entry.
    pub term: Term,
    /// The content.
    pub payload: Payload<V>,
}

/// The content of an entry.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Payload<V> {
    /// A proposed value.
    Value(V),
    /// The no-op entry with which a leader begins its term. When it is decided, all entries before it are decided.
    Barrier,
    /// A configuration change: these voters decide from the next slot on.
    Configuration(Configuration),
}

/// A snapshot: the state that replaces all decided entries up to a slot.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Snapshot<S> {
    /// The last entry that the snapshot covers.
    pub last: Mark,
    /// The first slot of the configuration that decides the slot after the snapshot.
    pub start: Slot,
    /// The configuration that decides the slot after the snapshot.
    pub configuration: Configuration,
    /// The state of the state machine after the covered entries.
    pub state: S,
}
