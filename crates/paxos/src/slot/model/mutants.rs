//! Injected defects that the model must find.

use super::super::{Prepared, Preparing, PromiseReply};
use super::people::SLOT;
use super::{Bounds, explore};
use crate::flaw::{Flaw, Plant};
use crate::{Ballot, Configuration, NodeId};

/// Bounds that are smaller than the whole model and large enough to find each defect.
const LESS: Bounds = Bounds { ballots: [1, 1], crashes: 0, restarts: 0, elsewhere: false, flaw: None };

fn found(flaw: Flaw, bounds: Bounds) -> Vec<&'static str> {
    let (states, sound) = explore(bounds);
    assert!(!sound.contains(&"agreement"), "without the defect: {sound:?}");
    let (flawed, found) = explore(Bounds { flaw: Some(flaw), ..bounds });
    println!("{flaw:?}: {flawed} states, {states} without it; {found:?}");
    found
}

#[test]
fn a_quorum_of_messages_is_none() {
    assert!(found(Flaw::CountMessages, LESS).contains(&"agreement"));
}

#[test]
fn a_ballot_used_again_chooses_again() {
    let bounds = Bounds { ballots: [2, 0], restarts: 1, ..LESS };
    assert!(found(Flaw::ReuseBallot, bounds).contains(&"agreement"));
}

#[test]
fn a_promise_that_is_not_stored_is_none() {
    let bounds = Bounds { crashes: 1, ..LESS };
    assert!(found(Flaw::AnswerBeforeStoring, bounds).contains(&"agreement"));
}

#[test]
fn a_promise_holds_whatever_is_promised_elsewhere() {
    let bounds = Bounds { elsewhere: true, ..LESS };
    assert!(found(Flaw::OnePromiseForAll, bounds).contains(&"agreement"));
}

#[test]
fn a_promise_that_another_overwrites_is_none() {
    assert!(found(Flaw::RacingPromise, LESS).contains(&"agreement"));
}

#[test]
fn whoever_was_first_must_be_proposed() {
    assert!(found(Flaw::IgnoreAccepted, LESS).contains(&"agreement"));
}

#[test]
fn who_is_refused_ends_its_attempt() {
    assert!(found(Flaw::IgnoreRefusals, LESS).contains(&"preempted"));
    assert!(ends_when_all_refuse());
    assert!(!Flaw::IgnoreRefusals.plant(ends_when_all_refuse));
}

fn ends_when_all_refuse() -> bool {
    let nodes = [1, 2, 3].map(NodeId);
    let configuration = Configuration::new(nodes).unwrap();
    let held = Preparing::<()>::begin(SLOT, 1, NodeId(7), configuration);
    let mut preparing = held.release(|_| Ok::<_, ()>(())).unwrap();
    let higher = Ballot::new(SLOT, 5, NodeId(8));
    for from in nodes {
        let refusal = PromiseReply::Nack { ballot: preparing.ballot(), promised: higher };
        match preparing.answer(from, refusal) {
            Prepared::Waiting(still) => preparing = still,
            Prepared::Preempted(by) => return by == higher,
            other => panic!("nobody has promised: {other:?}"),
        }
    }
    false
}
