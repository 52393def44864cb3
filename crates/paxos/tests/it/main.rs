//! Property tests: proposer and learner compute the same result as the plain set of answers, in any order, duplicated,
//! late, and from nodes outside the configuration.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use holdoff_paxos::slot::{
    AcceptOutcome, AcceptReply, Accepting, Learner, PrepareOutcome, Preparing, PromiseReply, Vote,
};
use holdoff_paxos::{Ballot, Configuration, NodeId, Slot};
use proptest::prelude::*;

const SLOT: Slot = Slot(1);

fn ballot(attempt: u64) -> Ballot {
    Ballot::new(SLOT, attempt, NodeId(9))
}

fn configuration(many: u128) -> Configuration {
    Configuration::new((1..=many).map(NodeId)).unwrap()
}

fn mine(configuration: &Configuration) -> Preparing<u64> {
    let held = Preparing::begin(SLOT, 5, NodeId(9), configuration.clone());
    held.release(|_| Ok::<_, Infallible>(())).unwrap()
}

/// An answer: the sender, the attempt, whether it grants, and the sender's accepted or promised attempt.
type Answer = (u128, u64, bool, u64);

fn answers() -> impl Strategy<Value = Vec<Answer>> {
    let attempt = prop_oneof![4 => Just(5_u64), 1 => 1_u64..9];
    prop::collection::vec((1_u128..8, attempt, any::<bool>(), 0_u64..5), 0..20)
}

fn promise((_, attempt, promises, other): Answer) -> PromiseReply<u64> {
    let accepted = (other > 0).then(|| Vote { ballot: ballot(other), value: other * 10 });
    if promises {
        PromiseReply::Promise { ballot: ballot(attempt), accepted }
    } else {
        PromiseReply::Nack { ballot: ballot(attempt), promised: ballot(5 + other) }
    }
}

proptest! {
    #[test]
    fn a_proposer_counts_the_set_of_answers(many in 1_u128..8, answers in answers()) {
        let configuration = configuration(many);
        let (mut granted, mut refused) = (BTreeMap::new(), BTreeMap::new());
        let mut preparing = mine(&configuration);
        for answer in answers {
            let (from, attempt, promises, other) = answer;
            if attempt == 5 && from <= many {
                let side = if promises { &mut granted } else { &mut refused };
                let highest = side.entry(from).or_insert(0);
                *highest = other.max(*highest);
            }
            let highest = |side: &BTreeMap<u128, u64>| side.values().copied().max().unwrap_or(0);
            let won = granted.len() >= configuration.majority();
            let lost = refused.len() > usize::try_from(many).unwrap() - configuration.majority();
            match preparing.answer(NodeId(from), promise(answer)) {
                PrepareOutcome::Waiting(still) => {
                    prop_assert!(!won && !lost);
                    preparing = still;
                }
                PrepareOutcome::Free(_) => {
                    prop_assert!(won && highest(&granted) == 0);
                    break;
                }
                PrepareOutcome::Bound(accepting) => {
                    prop_assert!(won);
                    prop_assert_eq!(*accepting.value(), highest(&granted) * 10);
                    break;
                }
                PrepareOutcome::Preempted(by) => {
                    prop_assert!(lost && !won);
                    prop_assert_eq!(by, ballot(5 + highest(&refused)));
                    break;
                }
            }
        }
    }

    #[test]
    fn a_value_is_chosen_by_the_set_of_votes(many in 1_u128..8, answers in answers()) {
        let configuration = configuration(many);
        let (mut granted, mut refused) = (BTreeSet::new(), BTreeSet::new());
        let mut accepting = accepting(&configuration);
        for (from, attempt, accepts, other) in answers {
            if attempt == 5 && from <= many {
                let side = if accepts { &mut granted } else { &mut refused };
                side.insert(from);
            }
            let won = granted.len() >= configuration.majority();
            let lost = refused.len() > usize::try_from(many).unwrap() - configuration.majority();
            let ballot = ballot(attempt);
            let refusal = AcceptReply::Nack { ballot, promised: self::ballot(5 + other) };
            let reply = if accepts { AcceptReply::Accepted { ballot } } else { refusal };
            match accepting.answer(NodeId(from), reply) {
                AcceptOutcome::Waiting(still) => {
                    prop_assert!(!won && !lost);
                    accepting = still;
                }
                AcceptOutcome::Chosen(vote) => {
                    prop_assert!(won);
                    prop_assert_eq!(vote.value, 7);
                    break;
                }
                AcceptOutcome::Preempted(_) => {
                    prop_assert!(lost && !won);
                    break;
                }
            }
        }
    }

    #[test]
    fn a_learner_reports_exactly_the_chosen_values(
        many in 1_u128..8,
        votes in prop::collection::vec((1_u128..10, 1_u64..5), 0..40),
    ) {
        let configuration = configuration(many);
        let mut learner = Learner::new(configuration.clone());
        let mut accepted: BTreeMap<u64, BTreeSet<u128>> = BTreeMap::new();
        for (from, attempt) in votes {
            let by = accepted.entry(attempt).or_default();
            if from <= many {
                by.insert(from);
            }
            let is_chosen = from <= many && by.len() >= configuration.majority();
            let learned = learner.accepted(NodeId(from), ballot(attempt), attempt);
            let vote = Vote { ballot: ballot(attempt), value: attempt };
            prop_assert_eq!(learned, is_chosen.then_some(vote));
        }
    }
}

/// Returns a proposer that all acceptors have promised.
fn accepting(configuration: &Configuration) -> Accepting<u64> {
    let mut preparing = mine(configuration);
    for node in configuration.acceptors() {
        let promise = PromiseReply::Promise { ballot: preparing.ballot(), accepted: None };
        match preparing.answer(*node, promise) {
            PrepareOutcome::Waiting(still) => preparing = still,
            PrepareOutcome::Free(free) => return free.propose(7),
            other => panic!("no acceptor has accepted a value: {other:?}"),
        }
    }
    panic!("all have promised")
}
