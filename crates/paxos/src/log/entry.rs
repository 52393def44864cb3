//! Terms, log ids, entries of the log, and snapshots.

use serde::{Deserialize, Serialize};

use crate::{Ballot, Configuration, NodeId, Slot};

/// An entry of the log. A later leader that inherits the entry keeps its term.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Entry<V> {
    /// The term of the leader that created the entry.
    pub term: Term,
    /// The content.
    pub payload: EntryPayload<V>,
}

/// A value whose encoded size is known. The size limits messages and the bytes on their way to a follower, so that an
/// estimate is enough.
pub trait EntrySize {
    /// Returns the size, in bytes.
    fn encoded_bytes(&self) -> usize;
}

macro_rules! sized_integers {
    ($($integer:ty),*) => {
        $(impl EntrySize for $integer {
            fn encoded_bytes(&self) -> usize {
                size_of::<Self>()
            }
        })*
    };
}
sized_integers!(u8, u32, u64);

impl<V: EntrySize> Entry<V> {
    /// Returns the approximate size of the encoded entry, in bytes.
    pub(super) fn bytes(&self) -> usize {
        /// The size of a term, and of the id of a voter.
        const OVERHEAD: usize = 48;
        OVERHEAD
            + match &self.payload {
                EntryPayload::Value(value) => value.encoded_bytes(),
                EntryPayload::NoOp => 0,
                EntryPayload::Configuration(voters) => OVERHEAD * voters.acceptors().len(),
            }
    }
}

/// The content of an entry.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum EntryPayload<V> {
    /// A proposed value.
    Value(V),
    /// The no-op entry with which a leader begins its term. When it is decided, all entries before it are decided.
    NoOp,
    /// A configuration change: these voters decide from the next slot on.
    Configuration(Configuration),
}

/// A snapshot: the state that replaces all decided entries up to a slot.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Snapshot<S> {
    /// The last entry that the snapshot covers.
    pub last: LogId,
    /// The first slot of the configuration that decides the slot after the snapshot.
    pub start: Slot,
    /// The configuration that decides the slot after the snapshot.
    pub configuration: Configuration,
    /// The state of the state machine after the covered entries.
    pub state: S,
}

/// A leader's term: a ballot for all slots from a start slot on.
///
/// The start is the first slot of the configuration under which the leader leads. Every term of a later configuration
/// is higher than every term of an earlier configuration: a node that uses a start knows that the slot before it is
/// decided. Within a configuration the ballots determine the order. A term contains its leader, so that no term has two
/// leaders.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Term {
    start: Slot,
    ballot: Ballot,
}

impl Term {
    /// Creates the term of a member's attempt to lead from this slot on.
    pub fn new(start: Slot, attempt: u64, member: NodeId) -> Self {
        Self { start, ballot: Ballot::new(start, attempt, member) }
    }

    /// Returns the term that is lower than every leader's term: no leader has been elected yet.
    pub fn none() -> Self {
        Self::new(Slot(0), 0, NodeId(0))
    }

    /// Returns the first slot of the term.
    pub fn start(self) -> Slot {
        self.start
    }

    /// Returns whether the ballot's tie-breaker fits the start and the leader. A term from the network may carry any.
    pub(super) fn is_sound(self) -> bool {
        self.ballot.is_of(self.start)
    }

    /// Returns the number of the attempt.
    pub fn attempt(self) -> u64 {
        self.ballot.attempt()
    }

    /// Returns the number by which terms with the same start and attempt are compared.
    pub fn tie_breaker(self) -> u64 {
        self.ballot.tie_breaker()
    }

    /// Returns the leader of this term.
    pub fn leader(self) -> NodeId {
        self.ballot.member()
    }
}

/// The position of an entry: its slot and its term. Logs that contain the same position are equal up to it (log
/// matching).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct LogId {
    /// The entry's slot.
    pub slot: Slot,
    /// The term of the leader that created the entry.
    pub term: Term,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_of_a_later_configuration_outranks_every_attempt() {
        let [earlier, later] = [Term::new(Slot(1), 1000, NodeId(1)), Term::new(Slot(9), 1, NodeId(2))];
        assert!(later > earlier && earlier > Term::none());
    }

    #[test]
    fn a_forged_tie_breaker_is_detected() {
        assert!(Term::new(Slot(9), 1, NodeId(2)).is_sound());
        let claimed = Term { start: Slot(9), ballot: Ballot::new(Slot(1), 1, NodeId(2)) };
        assert!(!claimed.is_sound());
    }
}
