//! The proposer: prepare (phase 1), then accept (phase 2).

use serde::{Deserialize, Serialize};

use super::{AcceptReply, PromiseReply, Vote};
use crate::{Ballot, Configuration, Deferred, NodeId, Slot, Tally};

/// The record that a proposer must have on disk before it sends a prepare request: a restart must not reuse a ballot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct BallotRecord {
    /// The slot, or the first slot of a range.
    pub slot: Slot,
    /// The number of the attempt.
    pub attempt: u64,
}

/// A proposer in phase 1: it collects promises.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Preparing<V> {
    round: Round,
    found: Option<Vote<V>>,
}

/// A proposer that a majority has promised, none of which has accepted a value: it may propose its own value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Free {
    round: Round,
}

/// A proposer in phase 2: it collects accepts for its value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Accepting<V> {
    round: Round,
    value: V,
}

/// The proposer's state after a reply to a prepare request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PrepareOutcome<V> {
    /// The proposer needs more replies.
    Waiting(Preparing<V>),
    /// No acceptor of the majority has accepted a value: the proposer proposes its own.
    Free(Free),
    /// A value may already be chosen: the proposer must propose the accepted value of the highest ballot, whose owner
    /// may be another proposer.
    Bound(Accepting<V>),
    /// So many acceptors have promised a higher ballot that this attempt cannot get a majority. The ballot is the
    /// highest reported promise.
    Preempted(Ballot),
}

/// The proposer's state after a reply to an accept request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum AcceptOutcome<V> {
    /// The proposer needs more replies.
    Waiting(Accepting<V>),
    /// A majority has accepted the value: it is chosen.
    Chosen(Vote<V>),
    /// So many acceptors have promised a higher ballot that this attempt cannot get a majority. The ballot is the
    /// highest reported promise.
    Preempted(Ballot),
}

/// The replies in one phase of one attempt: the acceptors that granted, those that refused, and the highest promise
/// reported with a refusal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Round {
    configuration: Configuration,
    ballot: Ballot,
    granted: Tally,
    refused: Tally,
    highest: Ballot,
}

impl Round {
    fn new(configuration: Configuration, ballot: Ballot) -> Self {
        let [granted, refused] = [Tally::default(); 2];
        Self { configuration, ballot, granted, refused, highest: ballot }
    }

    fn grant(&mut self, from: NodeId) {
        self.granted.count(from, &self.configuration);
    }

    fn refuse(&mut self, from: NodeId, promised: Ballot) {
        if !self.configuration.contains(from) {
            return;
        }
        self.refused.count(from, &self.configuration);
        self.highest = self.highest.max(promised);
    }

    fn is_won(&self) -> bool {
        self.granted.is_quorum(&self.configuration)
    }

    fn is_lost(&self) -> bool {
        self.refused.blocks(&self.configuration)
    }

    fn preempting_ballot(&self) -> Option<Ballot> {
        (!self.refused.is_empty()).then_some(self.highest)
    }
}

impl<V> Preparing<V> {
    /// Begins an attempt. Its number must be higher than every attempt that this member has made at this slot in any
    /// incarnation. It should also be higher than the attempt of the ballot that preempted the last one.
    pub fn begin(
        slot: Slot,
        attempt: u64,
        member: NodeId,
        configuration: Configuration,
    ) -> Deferred<BallotRecord, Self> {
        let round = Round::new(configuration, Ballot::new(slot, attempt, member));
        Deferred::until_stored(BallotRecord { slot, attempt }, Self { round, found: None })
    }

    /// Returns the ballot of the prepare request.
    pub fn ballot(&self) -> Ballot {
        self.round.ballot
    }

    /// Returns the number of acceptors that have promised.
    pub fn granted(&self) -> usize {
        self.round.granted.len()
    }

    /// Returns the acceptors that have not promised yet. The caller may ask them again.
    pub fn unanswered(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.round.granted.missing(&self.round.configuration)
    }

    /// Returns the highest ballot that acceptors reported when they refused this ballot. If the remaining acceptors
    /// stay silent, this attempt may never end: the caller then gives it up and begins an attempt above that ballot.
    pub fn preempting_ballot(&self) -> Option<Ballot> {
        self.round.preempting_ballot()
    }

    /// Processes an acceptor's reply. Replies to other ballots and replies from nodes outside the configuration change
    /// nothing.
    pub fn answer(mut self, from: NodeId, reply: PromiseReply<V>) -> PrepareOutcome<V> {
        match reply {
            PromiseReply::Promise { ballot, accepted } if ballot == self.round.ballot => {
                self.round.grant(from);
                if self.round.configuration.contains(from) {
                    self.find(accepted);
                }
            }
            PromiseReply::Nack { ballot, promised } if ballot == self.round.ballot => {
                self.round.refuse(from, promised);
            }
            _ => return PrepareOutcome::Waiting(self),
        }
        let Round { configuration, ballot, highest, .. } = &self.round;
        if self.round.is_won() {
            let round = Round::new(configuration.clone(), *ballot);
            return match self.found {
                None => PrepareOutcome::Free(Free { round }),
                Some(Vote { value, .. }) => PrepareOutcome::Bound(Accepting { round, value }),
            };
        }
        if self.round.is_lost() { PrepareOutcome::Preempted(*highest) } else { PrepareOutcome::Waiting(self) }
    }

    fn find(&mut self, accepted: Option<Vote<V>>) {
        if accepted.as_ref().map(|vote| vote.ballot) > self.found.as_ref().map(|vote| vote.ballot) {
            self.found = accepted;
        }
    }
}

impl Free {
    /// Proposes the caller's own value.
    pub fn propose<V>(self, value: V) -> Accepting<V> {
        Accepting { round: self.round, value }
    }

    /// Returns the promised ballot.
    pub fn ballot(&self) -> Ballot {
        self.round.ballot
    }
}

impl<V> Accepting<V> {
    /// Returns the ballot of the accept request.
    pub fn ballot(&self) -> Ballot {
        self.round.ballot
    }

    /// Returns the value to propose.
    pub fn value(&self) -> &V {
        &self.value
    }

    /// Returns the acceptors that have not accepted yet. The caller may ask them again.
    pub fn unanswered(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.round.granted.missing(&self.round.configuration)
    }

    /// Returns the highest ballot that acceptors reported when they refused this ballot. If the remaining acceptors
    /// stay silent, this attempt may never end: the caller then gives it up and begins an attempt above that ballot.
    pub fn preempting_ballot(&self) -> Option<Ballot> {
        self.round.preempting_ballot()
    }

    /// Processes an acceptor's reply. Replies to other ballots and replies from nodes outside the configuration change
    /// nothing.
    pub fn answer(mut self, from: NodeId, reply: AcceptReply) -> AcceptOutcome<V> {
        match reply {
            AcceptReply::Accepted { ballot } if ballot == self.round.ballot => self.round.grant(from),
            AcceptReply::Nack { ballot, promised } if ballot == self.round.ballot => {
                self.round.refuse(from, promised);
            }
            _ => return AcceptOutcome::Waiting(self),
        }
        if self.round.is_won() {
            return AcceptOutcome::Chosen(Vote { ballot: self.round.ballot, value: self.value });
        }
        if self.round.is_lost() {
            AcceptOutcome::Preempted(self.round.highest)
        } else {
            AcceptOutcome::Waiting(self)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn ballot(attempt: u64) -> Ballot {
        Ballot::new(Slot(1), attempt, NodeId(9))
    }

    /// Begins an attempt among three acceptors.
    fn begin(attempt: u64) -> Preparing<&'static str> {
        let three = Configuration::new([1, 2, 3].map(NodeId)).unwrap();
        let begun = Preparing::begin(Slot(1), attempt, NodeId(9), three);
        assert_eq!(begun.record(), Some(&BallotRecord { slot: Slot(1), attempt }));
        begun.release(|_| Ok::<_, Infallible>(())).unwrap()
    }

    fn promise(of: u64, accepted: Option<(u64, &'static str)>) -> PromiseReply<&'static str> {
        let accepted = accepted.map(|(attempt, value)| Vote { ballot: ballot(attempt), value });
        PromiseReply::Promise { ballot: ballot(of), accepted }
    }

    fn refusal<V>(of: u64, promised: u64) -> PromiseReply<V> {
        PromiseReply::Nack { ballot: ballot(of), promised: ballot(promised) }
    }

    fn prepare(
        mut preparing: Preparing<&'static str>,
        replies: &[(u128, PromiseReply<&'static str>)],
    ) -> PrepareOutcome<&'static str> {
        for (from, reply) in replies {
            match preparing.answer(NodeId(*from), reply.clone()) {
                PrepareOutcome::Waiting(waiting) => preparing = waiting,
                ended => return ended,
            }
        }
        PrepareOutcome::Waiting(preparing)
    }

    #[test]
    fn a_majority_of_promises_binds_to_the_value_of_the_highest_ballot() {
        let begun = begin(4);
        let strange =
            [(1, promise(3, None)), (1, refusal(3, 8)), (7, promise(4, Some((2, "x")))), (7, refusal(4, 8))];
        assert_eq!(prepare(begun.clone(), &strange), PrepareOutcome::Waiting(begun.clone()));
        let refused = [(1, promise(4, Some((2, "b")))), (2, refusal(4, 6)), (2, refusal(4, 5))];
        let PrepareOutcome::Waiting(waiting) = prepare(begun.clone(), &refused) else { panic!() };
        assert_eq!((begun.granted(), begun.preempting_ballot()), (0, None));
        assert_eq!((waiting.granted(), waiting.preempting_ballot()), (1, Some(ballot(6))));
        assert_eq!(waiting.unanswered().collect::<Vec<_>>(), [2, 3].map(NodeId));
        assert_eq!(prepare(waiting.clone(), &[(3, refusal(4, 5))]), PrepareOutcome::Preempted(ballot(6)));
        for (third, value) in [(None, "b"), (Some((1, "a")), "b"), (Some((3, "c")), "c")] {
            let PrepareOutcome::Bound(bound) = prepare(waiting.clone(), &[(3, promise(4, third))]) else {
                panic!()
            };
            assert_eq!((bound.ballot(), *bound.value()), (ballot(4), value));
        }
    }

    #[test]
    fn a_free_proposer_proposes_its_own_value_until_a_majority_accepts_or_blocks() {
        let begun = begin(4);
        assert_eq!(begun.ballot(), ballot(4));
        let PrepareOutcome::Free(free) = prepare(begun, &[(1, promise(4, None)), (2, promise(4, None))])
        else {
            panic!()
        };
        assert_eq!(free.ballot(), ballot(4));
        let mut accepting = free.propose("mine");
        let accepted = |attempt| AcceptReply::Accepted { ballot: ballot(attempt) };
        let refused = |of, by| AcceptReply::Nack { ballot: ballot(of), promised: ballot(by) };
        for (from, strange) in [(1, accepted(3)), (1, refused(3, 8)), (7, accepted(4)), (7, refused(4, 8))] {
            let unchanged = AcceptOutcome::Waiting(accepting.clone());
            assert_eq!(accepting.clone().answer(NodeId(from), strange), unchanged);
        }
        assert_eq!(accepting.preempting_ballot(), None);
        for (from, reply) in [(1, accepted(4)), (2, refused(4, 6)), (2, refused(4, 5))] {
            let AcceptOutcome::Waiting(waiting) = accepting.answer(NodeId(from), reply) else { panic!() };
            accepting = waiting;
        }
        assert_eq!(accepting.preempting_ballot(), Some(ballot(6)));
        assert_eq!(accepting.unanswered().collect::<Vec<_>>(), [2, 3].map(NodeId));
        let lost = accepting.clone().answer(NodeId(3), refused(4, 5));
        assert_eq!(lost, AcceptOutcome::Preempted(ballot(6)));
        let chosen = AcceptOutcome::Chosen(Vote { ballot: ballot(4), value: "mine" });
        assert_eq!(accepting.answer(NodeId(3), accepted(4)), chosen);
    }
}
