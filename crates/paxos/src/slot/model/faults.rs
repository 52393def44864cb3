//! Injected defects that the model must find. They alter the inputs and outputs of the proposers and acceptors; the
//! production code knows nothing of them.

use std::convert::Infallible;

use holdoff_testbed::fault::{inject, is_injected};

use super::super::{
    AcceptOutcome, AcceptReply, Accepting, Acceptor, PrepareOutcome, Preparing, PromiseReply, Record,
};
use super::participants::{SLOT, Value};
use super::{Bounds, explore};
use crate::{Ballot, Configuration, Deferred, NodeId};

/// A defect that a real system had, or that the correctness proof excludes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotFault {
    /// A quorum is a number of messages instead of a set of acceptors.
    CountMessages,
    /// The proposer ignores a refusal that carries no value.
    IgnoreRefusals,
    /// A proposer that restarts begins with a ballot that it has used before.
    ReuseBallot,
    /// The acceptor sends a promise before it is stored, and loses it in a crash.
    AnswerBeforeStoring,
    /// The acceptor keeps a single promise for all slots: a promise for another slot replaces a higher promise for this
    /// slot.
    OnePromiseForAll,
    /// Two connections race on one promise: the last write wins, even if its ballot is lower.
    RacingPromise,
    /// A proposer that has learned of an accepted value proposes its own value regardless.
    IgnoreAccepted,
}

/// Passes a reply to a prepare request to the proposer.
pub(super) fn answer_prepare<V>(
    preparing: Preparing<V>,
    from: NodeId,
    reply: PromiseReply<V>,
) -> PrepareOutcome<V> {
    match reply {
        PromiseReply::Nack { .. } if is_injected(SlotFault::IgnoreRefusals) => {
            PrepareOutcome::Waiting(preparing)
        }
        PromiseReply::Promise { ballot, accepted } => {
            let accepted = accepted.filter(|_| !is_injected(SlotFault::IgnoreAccepted));
            let from = counted_as(from, preparing.unanswered());
            preparing.answer(from, PromiseReply::Promise { ballot, accepted })
        }
        nack @ PromiseReply::Nack { .. } => preparing.answer(from, nack),
    }
}

/// Passes a reply to an accept request to the proposer.
pub(super) fn answer_accept<V>(
    accepting: Accepting<V>,
    from: NodeId,
    reply: AcceptReply,
) -> AcceptOutcome<V> {
    match reply {
        AcceptReply::Nack { .. } if is_injected(SlotFault::IgnoreRefusals) => {
            AcceptOutcome::Waiting(accepting)
        }
        AcceptReply::Accepted { .. } => {
            let from = counted_as(from, accepting.unanswered());
            accepting.answer(from, reply)
        }
        AcceptReply::Nack { .. } => accepting.answer(from, reply),
    }
}

/// Returns the acceptor for which a grant counts. A proposer that counts messages counts a repeated grant for an
/// acceptor that has not answered.
pub(super) fn counted_as(from: NodeId, unanswered: impl Iterator<Item = NodeId>) -> NodeId {
    if !is_injected(SlotFault::CountMessages) {
        return from;
    }
    let unanswered: Vec<_> = unanswered.collect();
    if unanswered.contains(&from) { from } else { unanswered.first().copied().unwrap_or(from) }
}

/// Lets an acceptor answer a prepare request.
pub(super) fn prepare(
    acceptor: &mut Acceptor<Value>,
    ballot: Ballot,
) -> Deferred<Record<Value>, PromiseReply<Value>> {
    if is_injected(SlotFault::RacingPromise) && acceptor.promised() > Some(ballot) {
        forget_promise(acceptor);
    }
    let answer = acceptor.prepare(ballot);
    if !is_injected(SlotFault::AnswerBeforeStoring) {
        return answer;
    }
    let Ok(reply) = answer.release(|_| Ok::<_, Infallible>(()));
    Deferred::ready(reply)
}

/// Makes an acceptor forget its promise. Its accepted value stays.
pub(super) fn forget_promise(acceptor: &mut Acceptor<Value>) {
    let accepted = acceptor.accepted().cloned();
    *acceptor = Acceptor::default();
    if let Some(vote) = accepted {
        acceptor.restore(Record::Accepted(vote));
    }
}

/// Bounds that are smaller than the whole model and large enough to find each defect.
const LESS: Bounds = Bounds { ballots: [1, 1], crashes: 0, restarts: 0, elsewhere: false, fault: None };

fn found(fault: SlotFault, bounds: Bounds) -> Vec<&'static str> {
    let (states, sound) = explore(bounds);
    assert!(!sound.contains(&"agreement"), "without the defect: {sound:?}");
    let (faulty, found) = explore(Bounds { fault: Some(fault), ..bounds });
    println!("{fault:?}: {faulty} states, {states} without it; {found:?}");
    found
}

#[test]
fn counting_messages_instead_of_acceptors_violates_agreement() {
    assert!(found(SlotFault::CountMessages, LESS).contains(&"agreement"));
}

#[test]
fn reusing_a_ballot_violates_agreement() {
    let bounds = Bounds { ballots: [2, 0], restarts: 1, ..LESS };
    assert!(found(SlotFault::ReuseBallot, bounds).contains(&"agreement"));
}

#[test]
fn sending_a_promise_before_it_is_stored_violates_agreement() {
    let bounds = Bounds { crashes: 1, ..LESS };
    assert!(found(SlotFault::AnswerBeforeStoring, bounds).contains(&"agreement"));
}

#[test]
fn sharing_one_promise_between_slots_violates_agreement() {
    let bounds = Bounds { elsewhere: true, ..LESS };
    assert!(found(SlotFault::OnePromiseForAll, bounds).contains(&"agreement"));
}

#[test]
fn overwriting_a_promise_with_a_lower_ballot_violates_agreement() {
    assert!(found(SlotFault::RacingPromise, LESS).contains(&"agreement"));
}

#[test]
fn ignoring_an_accepted_value_violates_agreement() {
    assert!(found(SlotFault::IgnoreAccepted, LESS).contains(&"agreement"));
}

#[test]
fn ignoring_refusals_keeps_an_attempt_from_ending() {
    assert!(found(SlotFault::IgnoreRefusals, LESS).contains(&"preempted"));
    assert!(ends_when_all_refuse());
    assert!(!inject(SlotFault::IgnoreRefusals, ends_when_all_refuse));
}

fn ends_when_all_refuse() -> bool {
    let nodes = [1, 2, 3].map(NodeId);
    let configuration = Configuration::new(nodes).unwrap();
    let held = Preparing::<()>::begin(SLOT, 1, NodeId(7), configuration);
    let mut preparing = held.release(|_| Ok::<_, ()>(())).unwrap();
    let higher = Ballot::new(SLOT, 5, NodeId(8));
    for from in nodes {
        let refusal = PromiseReply::Nack { ballot: preparing.ballot(), promised: higher };
        match answer_prepare(preparing, from, refusal) {
            PrepareOutcome::Waiting(still) => preparing = still,
            PrepareOutcome::Preempted(by) => return by == higher,
            other => panic!("no acceptor has promised: {other:?}"),
        }
    }
    false
}
