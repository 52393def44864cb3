//! Who proposes: prepare, then accept.

use serde::{Deserialize, Serialize};

use super::{AcceptReply, PromiseReply, Vote};
use crate::{Ballot, Configuration, Held, NodeId, Slot, Tally, planted};

/// What a proposer must have on disk before it asks anybody: a restart must not use a ballot twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// The slot, or the first one of a range.
    pub slot: Slot,
    /// The number of the attempt.
    pub attempt: u64,
}

/// A proposer that asks for promises.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Preparing<V> {
    round: Round,
    found: Option<Vote<V>>,
}

/// A proposer that a majority has promised, none of whom has accepted anything: it may propose its own.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Free {
    round: Round,
}

/// A proposer that asks to have its value accepted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Accepting<V> {
    round: Round,
    value: V,
}

/// How far an answer to a prepare has brought a proposer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Prepared<V> {
    /// More answers are needed.
    Waiting(Preparing<V>),
    /// Nobody was first: propose your own.
    Free(Free),
    /// Somebody may have been first: that value must be proposed, whosever it is.
    Bound(Accepting<V>),
    /// So many have promised a higher ballot, this one or a lower one, that this attempt is over.
    Preempted(Ballot),
}

/// How far an answer to an accept has brought a proposer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Voted<V> {
    /// More answers are needed.
    Waiting(Accepting<V>),
    /// A majority has accepted it: that is decided.
    Chosen(Vote<V>),
    /// So many have promised a higher ballot, this one or a lower one, that this attempt is over.
    Preempted(Ballot),
}

/// One phase of one attempt: who has said yes, who no, and what was in the way.
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
        if planted!(IgnoreRefusals) || !self.configuration.contains(from) {
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

    fn in_the_way(&self) -> Option<Ballot> {
        (!self.refused.is_empty()).then_some(self.highest)
    }
}

impl<V> Preparing<V> {
    /// Begins an attempt. It must be higher than every attempt this member has made at this slot in any
    /// of its lives, and had better be higher than the one that stood in the way of the last.
    pub fn begin(
        slot: Slot,
        attempt: u64,
        member: NodeId,
        configuration: Configuration,
    ) -> Held<Attempt, Self> {
        let round = Round::new(configuration, Ballot::new(slot, attempt, member));
        Held::behind(Attempt { slot, attempt }, Self { round, found: None })
    }

    /// The ballot to ask promises for.
    pub fn ballot(&self) -> Ballot {
        self.round.ballot
    }

    /// How many have promised.
    pub fn granted(&self) -> usize {
        self.round.granted.len()
    }

    /// Who has not promised yet, and may be asked again.
    pub fn silent(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.round.granted.missing(&self.round.configuration)
    }

    /// The highest ballot that an acceptor has refused this one for. If those who are silent stay so, this
    /// attempt may never end: give it up then, and jump over that one.
    pub fn in_the_way(&self) -> Option<Ballot> {
        self.round.in_the_way()
    }

    /// What an acceptor has answered. Answers to other ballots change nothing, nor do strangers'.
    pub fn answer(mut self, from: NodeId, reply: PromiseReply<V>) -> Prepared<V> {
        match reply {
            PromiseReply::Promise { ballot, accepted } if ballot == self.round.ballot => {
                self.round.grant(from);
                if self.round.configuration.contains(from) && !planted!(IgnoreAccepted) {
                    self.find(accepted);
                }
            }
            PromiseReply::Nack { ballot, promised } if ballot == self.round.ballot => {
                self.round.refuse(from, promised);
            }
            _ => return Prepared::Waiting(self),
        }
        let Round { configuration, ballot, highest, .. } = &self.round;
        if self.round.is_won() {
            let round = Round::new(configuration.clone(), *ballot);
            return match self.found {
                None => Prepared::Free(Free { round }),
                Some(Vote { value, .. }) => Prepared::Bound(Accepting { round, value }),
            };
        }
        if self.round.is_lost() { Prepared::Preempted(*highest) } else { Prepared::Waiting(self) }
    }

    fn find(&mut self, accepted: Option<Vote<V>>) {
        if accepted.as_ref().map(|vote| vote.ballot) > self.found.as_ref().map(|vote| vote.ballot) {
            self.found = accepted;
        }
    }
}

impl Free {
    /// Proposes a value of one's own.
    pub fn propose<V>(self, value: V) -> Accepting<V> {
        Accepting { round: self.round, value }
    }

    /// The ballot that was promised.
    pub fn ballot(&self) -> Ballot {
        self.round.ballot
    }
}

impl<V> Accepting<V> {
    /// The ballot to propose under.
    pub fn ballot(&self) -> Ballot {
        self.round.ballot
    }

    /// What to propose.
    pub fn value(&self) -> &V {
        &self.value
    }

    /// Who has not accepted yet, and may be asked again.
    pub fn silent(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.round.granted.missing(&self.round.configuration)
    }

    /// The highest ballot that an acceptor has refused this one for. If those who are silent stay so, this
    /// attempt may never end: give it up then, and jump over that one.
    pub fn in_the_way(&self) -> Option<Ballot> {
        self.round.in_the_way()
    }

    /// What an acceptor has answered. Answers to other ballots change nothing, nor do strangers'.
    pub fn answer(mut self, from: NodeId, reply: AcceptReply) -> Voted<V> {
        match reply {
            AcceptReply::Accepted { ballot } if ballot == self.round.ballot => self.round.grant(from),
            AcceptReply::Nack { ballot, promised } if ballot == self.round.ballot => {
                self.round.refuse(from, promised);
            }
            _ => return Voted::Waiting(self),
        }
        if self.round.is_won() {
            return Voted::Chosen(Vote { ballot: self.round.ballot, value: self.value });
        }
        if self.round.is_lost() { Voted::Preempted(self.round.highest) } else { Voted::Waiting(self) }
    }
}
