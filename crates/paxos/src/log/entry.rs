//! What stands in the log.

use serde::{Deserialize, Serialize};

use super::{Mark, Term};
use crate::{Configuration, Slot};

/// One place of the log. Whoever takes it over leaves its term as it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Entry<V> {
    /// In whose term it was written.
    pub term: Term,
    /// What was written.
    pub payload: Payload<V>,
}

/// What an entry says.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Payload<V> {
    /// What somebody proposed.
    Value(V),
    /// A leader begins here: all before it is decided when this is.
    Barrier,
    /// From the next slot on these decide.
    Configuration(Configuration),
}

/// All decided slots up to one of them, put together.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Snapshot<S> {
    /// The last entry that is in it.
    pub last: Mark,
    /// The first slot of the configuration that decides what comes next.
    pub start: Slot,
    /// Who decides what comes next.
    pub configuration: Configuration,
    /// What the entries have made of the machine that they are for.
    pub state: S,
}
