//! The participants: proposers with a disk for their attempts, and acceptors with memory and a disk.

use std::convert::Infallible;

use super::super::{
    AcceptOutcome, AcceptReply, Accepting, Acceptor, PrepareOutcome, Preparing, PromiseReply, Record, Vote,
};
use holdoff_testbed::fault::is_injected;

use super::Message;
use super::faults::{self, SlotFault};
use crate::{Ballot, Configuration, Deferred, NodeId, Slot};

pub(super) const SLOT: Slot = Slot(1);
const ELSEWHERE: Slot = Slot(2);

/// A proposer's value: the proposer and its incarnation. Another incarnation wants another value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Value {
    pub(super) of: NodeId,
    pub(super) incarnation: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Phase {
    Idle,
    Preparing(Preparing<Value>),
    Accepting(Accepting<Value>),
    Preempted,
    Chosen(Value),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Proposer {
    pub(super) wants: Value,
    pub(super) phase: Phase,
    /// The last attempt, on disk.
    pub(super) attempt: u64,
}

impl Proposer {
    pub(super) fn new(of: NodeId) -> Self {
        Self { wants: Value { of, incarnation: 0 }, phase: Phase::Idle, attempt: 0 }
    }

    /// Begins an attempt. Its number is on disk before the prepare request leaves.
    pub(super) fn begin(&mut self, configuration: &Configuration) -> Ballot {
        let attempt =
            if is_injected(SlotFault::ReuseBallot) && self.wants.incarnation > 0 && self.phase == Phase::Idle
            {
                self.attempt
            } else {
                self.attempt + 1
            };
        let held = Preparing::begin(SLOT, attempt, self.wants.of, configuration.clone());
        let stored = held.release(|record| {
            self.attempt = record.attempt;
            Ok::<_, Infallible>(())
        });
        let preparing = stored.unwrap();
        let ballot = preparing.ballot();
        self.phase = Phase::Preparing(preparing);
        ballot
    }

    pub(super) fn answer(&mut self, message: &Message) {
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        self.phase = match (phase, message) {
            (Phase::Preparing(preparing), Message::Promised(from, reply)) => {
                match faults::answer_prepare(preparing, *from, reply.clone()) {
                    PrepareOutcome::Waiting(preparing) => Phase::Preparing(preparing),
                    PrepareOutcome::Free(free) => Phase::Accepting(free.propose(self.wants)),
                    PrepareOutcome::Bound(accepting) => Phase::Accepting(accepting),
                    PrepareOutcome::Preempted(_) => Phase::Preempted,
                }
            }
            (Phase::Accepting(accepting), Message::Accepted(from, vote)) => {
                after(faults::answer_accept(accepting, *from, AcceptReply::Accepted { ballot: vote.ballot }))
            }
            (Phase::Accepting(accepting), Message::Refused(from, reply)) => {
                after(faults::answer_accept(accepting, *from, *reply))
            }
            (phase, _) => phase,
        };
    }

    /// Returns whether an answer changes the proposer's state now.
    pub(super) fn is_changed_by(&self, answer: &Message) -> bool {
        let mut then = self.clone();
        then.answer(answer);
        then != *self
    }

    /// Returns whether these answers end the proposer's phase. Any other pair may as well arrive later: it has no
    /// visible effect, and it stays in the network.
    pub(super) fn is_moved_by(&self, pair: &[Message; 2]) -> bool {
        let mut then = self.clone();
        for answer in pair {
            then.answer(answer);
        }
        std::mem::discriminant(&then.phase) != std::mem::discriminant(&self.phase)
    }

    /// Loses all state except the attempt on disk.
    pub(super) fn restart(&mut self) {
        self.phase = Phase::Idle;
        self.wants.incarnation += 1;
    }
}

fn after(voted: AcceptOutcome<Value>) -> Phase {
    match voted {
        AcceptOutcome::Waiting(accepting) => Phase::Accepting(accepting),
        AcceptOutcome::Chosen(vote) => Phase::Chosen(vote.value),
        AcceptOutcome::Preempted(_) => Phase::Preempted,
    }
}

/// An acceptor's state for the slot of the model and for another slot.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct SlotPair {
    pub(super) here: Acceptor<Value>,
    elsewhere: Acceptor<Value>,
}

impl SlotPair {
    fn restore(&mut self, (slot, record): (Slot, Record<Value>)) {
        let of_other_slot = if slot == SLOT {
            self.here.restore(record);
            &mut self.elsewhere
        } else {
            self.elsewhere.restore(record);
            &mut self.here
        };
        if is_injected(SlotFault::OnePromiseForAll) {
            // The defect: there is storage for a single promise. Accepted values are still stored per slot.
            faults::forget_promise(of_other_slot);
        }
    }
}

type Answer = Deferred<(Slot, Record<Value>), Option<Message>>;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Voter {
    pub(super) node: NodeId,
    pub(super) memory: SlotPair,
    pub(super) disk: SlotPair,
    /// Records that wait to be stored, each with the reply that it holds back.
    pub(super) pending: Vec<Answer>,
}

impl Voter {
    pub(super) fn new(node: NodeId) -> Self {
        Self { node, memory: SlotPair::default(), disk: SlotPair::default(), pending: Vec::new() }
    }

    pub(super) fn receive(&mut self, message: &Message) {
        let node = self.node;
        let answer = match message {
            Message::Prepare(ballot) => {
                let promise = |reply| Some(Message::Promised(node, reply));
                faults::prepare(&mut self.memory.here, *ballot)
                    .map(promise)
                    .map_record(|record| (SLOT, record))
            }
            Message::Accept(vote) => {
                let vote = vote.clone();
                let answer = self.memory.here.accept(vote.ballot, vote.value);
                let reply_message = |reply| Some(accept_message(node, vote, reply));
                answer.map(reply_message).map_record(|record| (SLOT, record))
            }
            Message::PrepareElsewhere(ballot) => {
                let answer = faults::prepare(&mut self.memory.elsewhere, *ballot);
                answer.map(|_: PromiseReply<_>| None).map_record(|record| (ELSEWHERE, record))
            }
            _ => return,
        };
        self.pending.push(answer);
    }

    /// Stores all pending records at once and returns the released replies.
    pub(super) fn store(&mut self) -> Vec<Message> {
        let pending = std::mem::take(&mut self.pending);
        let stored = Deferred::release_all(pending, |records| {
            for record in records {
                self.disk.restore(record.clone());
                if is_injected(SlotFault::OnePromiseForAll) {
                    self.memory.restore(record);
                }
            }
            Ok::<_, Infallible>(())
        });
        stored.unwrap().into_iter().flatten().collect()
    }

    /// Loses the memory and all unsent replies.
    pub(super) fn crash(&mut self) {
        self.memory = self.disk.clone();
        self.pending.clear();
    }
}

fn accept_message(node: NodeId, vote: Vote<Value>, reply: AcceptReply) -> Message {
    match reply {
        AcceptReply::Accepted { .. } => Message::Accepted(node, vote),
        refused @ AcceptReply::Nack { .. } => Message::Refused(node, refused),
    }
}

pub(super) fn elsewhere() -> Ballot {
    Ballot::new(ELSEWHERE, 1, NodeId(9))
}
