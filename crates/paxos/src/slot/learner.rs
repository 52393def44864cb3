//! The learner: it hears which values acceptors accept, and detects the chosen value.

use super::Vote;
use crate::{Ballot, Configuration, NodeId, Tally};

/// The maximum number of ballots that a learner follows. Beyond it the learner forgets the lowest ballot. That may
/// delay learning; it never yields a wrong value.
const FOLLOWED: usize = 8;

/// Detects the chosen value of a slot from the acceptors' votes alone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Learner<V> {
    configuration: Configuration,
    votes: Vec<(Vote<V>, Tally)>,
}

impl<V: Clone> Learner<V> {
    /// Creates the learner of a slot with this configuration.
    pub fn new(configuration: Configuration) -> Self {
        Self { configuration, votes: Vec::new() }
    }

    /// Processes an acceptor's report of an accepted value. Returns the chosen value if this report completes or
    /// repeats a majority.
    pub fn accepted(&mut self, from: NodeId, ballot: Ballot, value: V) -> Option<Vote<V>> {
        if !self.configuration.contains(from) {
            return None;
        }
        let known = self.votes.iter().position(|(vote, _)| vote.ballot == ballot);
        let index = known.unwrap_or_else(|| {
            self.votes.push((Vote { ballot, value }, Tally::default()));
            self.votes.len() - 1
        });
        let (vote, tally) = self.votes.get_mut(index)?;
        tally.count(from, &self.configuration);
        if tally.is_quorum(&self.configuration) {
            return Some(vote.clone());
        }
        self.forget_lowest();
        None
    }

    fn forget_lowest(&mut self) {
        if self.votes.len() > FOLLOWED {
            let lowest = self.votes.iter().enumerate().min_by_key(|(_, (vote, _))| vote.ballot);
            if let Some(index) = lowest.map(|(index, _)| index) {
                self.votes.swap_remove(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Slot;

    #[test]
    fn a_value_is_chosen_by_a_majority_of_one_ballot() {
        let [low, high] = [1, 2].map(|attempt| Ballot::new(Slot(1), attempt, NodeId(9)));
        let mut learner = Learner::new(Configuration::new([1, 2, 3].map(NodeId)).unwrap());
        assert_eq!(learner.accepted(NodeId(1), low, "a"), None);
        assert_eq!(learner.accepted(NodeId(1), low, "a"), None, "a repeated vote counts once");
        assert_eq!(learner.accepted(NodeId(2), high, "b"), None, "votes of different ballots do not add up");
        assert_eq!(
            learner.accepted(NodeId(8), low, "a"),
            None,
            "the vote of an unknown acceptor does not count"
        );
        let chosen = Vote { ballot: high, value: "b" };
        assert_eq!(learner.accepted(NodeId(3), high, "b"), Some(chosen));
    }

    #[test]
    fn a_learner_tracks_a_limited_number_of_ballots() {
        let mut learner = Learner::new(Configuration::new([1, 2, 3].map(NodeId)).unwrap());
        for attempt in 1..1000 {
            let ballot = Ballot::new(Slot(1), attempt, NodeId(9));
            assert_eq!(learner.accepted(NodeId(1), ballot, attempt), None);
        }
        assert_eq!(learner.votes.len(), FOLLOWED);
    }
}
