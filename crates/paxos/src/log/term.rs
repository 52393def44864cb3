//! Whose turn it is to lead.

use serde::{Deserialize, Serialize};

use crate::{Ballot, NodeId, Slot};

/// A leader's turn: one ballot for all slots from a start on.
///
/// The start is the first slot of the configuration that the leader leads under. A term of a later configuration goes
/// before every term of an earlier one: whoever names its start knows that the slot before it is decided. Within one
/// configuration the ballots decide. A term names its leader, so no two can lead in the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Term {
    start: Slot,
    ballot: Ballot,
}

impl Term {
    /// A member's attempt to lead from this slot on.
    pub fn new(start: Slot, attempt: u64, member: NodeId) -> Self {
        Self { start, ballot: Ballot::new(start, attempt, member) }
    }

    /// What stands before every leader's: nobody has led yet.
    pub fn none() -> Self {
        Self::new(Slot(0), 0, NodeId(0))
    }

    /// The first slot it is for.
    pub fn start(self) -> Slot {
        self.start
    }

    /// Whether its ballot is one that this start gives its leader: a term from outside may claim any.
    pub(super) fn is_sound(self) -> bool {
        self.ballot.is_of(self.start)
    }

    /// The number of the attempt.
    pub fn attempt(self) -> u64 {
        self.ballot.attempt()
    }

    /// Who leads in it.
    pub fn leader(self) -> NodeId {
        self.ballot.member()
    }
}

/// An entry by its place and its author: it stands for all entries before it, too.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Mark {
    /// Where it is.
    pub slot: Slot,
    /// In whose term it was written.
    pub term: Term,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_configuration_goes_before_all_attempts() {
        let [earlier, later] = [Term::new(Slot(1), 1000, NodeId(1)), Term::new(Slot(9), 1, NodeId(2))];
        assert!(later > earlier && earlier > Term::none());
    }

    #[test]
    fn claimed_luck_is_found_out() {
        assert!(Term::new(Slot(9), 1, NodeId(2)).is_sound());
        let claimed = Term { start: Slot(9), ballot: Ballot::new(Slot(1), 1, NodeId(2)) };
        assert!(!claimed.is_sound());
    }
}
