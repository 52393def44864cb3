//! Fuzzing: whatever inputs a node gets, it does not panic, neither its promise nor its decided slot goes back, and its
//! memory equals its disk.
//!
//! Seeded; `HOLDOFF_SEED=… HOLDOFF_SEEDS=… cargo test -p holdoff-paxos --lib fuzz` replays or goes on.

use holdoff_sim::kernel::SimRng;
use holdoff_testbed::Seeds;

use crate::log::{
    Append, Entry, EntryPayload, Input, LogId, Message, Node, Options, Snapshot, Store, Term, VoteRequest,
};
use crate::{Configuration, NodeId, Slot};

fn configuration(rng: &mut SimRng) -> Configuration {
    let some = (1..=4).map(NodeId).filter(|_| rng.happens(0.6)).collect::<Vec<_>>();
    Configuration::new(some).unwrap_or_else(|_| Configuration::new([NodeId(1)]).unwrap())
}

fn slot(rng: &mut SimRng) -> Slot {
    Slot(if rng.happens(0.05) { u64::MAX - rng.between(0, 2) } else { rng.between(0, 12) })
}

fn term(rng: &mut SimRng) -> Term {
    let attempt = if rng.happens(0.01) { u64::MAX } else { rng.between(0, 6) };
    Term::new(slot(rng), attempt, NodeId(u128::from(rng.between(1, 4))))
}

fn entry(rng: &mut SimRng) -> Entry<u64> {
    let payload = match rng.between(0, 3) {
        0 => EntryPayload::NoOp,
        1 => EntryPayload::Configuration(configuration(rng)),
        _ => EntryPayload::Value(rng.between(0, 9)),
    };
    Entry { term: term(rng), payload }
}

fn decided_change(rng: &mut SimRng) -> Option<LogId> {
    rng.happens(0.3).then(|| LogId { slot: slot(rng), term: term(rng) })
}

fn message(rng: &mut SimRng, like: Term) -> Message<u64, u64> {
    let term = if rng.happens(0.7) { like } else { term(rng) };
    match rng.between(0, 7) {
        0 => Message::RequestVote(VoteRequest {
            is_pre_vote: rng.happens(0.5),
            term,
            accepted: self::term(rng),
            last: slot(rng),
        }),
        1 => Message::VoteReply {
            is_pre_vote: rng.happens(0.5),
            term,
            granted: rng.happens(0.8),
            promised: self::term(rng),
            decided_change: decided_change(rng),
        },
        2 => Message::InstallSnapshot {
            term,
            inherited: slot(rng),
            snapshot: Snapshot {
                last: LogId { slot: slot(rng), term: self::term(rng) },
                start: slot(rng),
                configuration: configuration(rng),
                state: 0,
            },
        },
        3 => Message::AppendAccepted { term, slot: slot(rng) },
        4 => Message::AppendRejected { term, have: slot(rng) },
        5 => {
            let (promised, decided_change) = (self::term(rng), decided_change(rng));
            Message::StaleTerm { term, promised, decided_change }
        }
        6 => Message::TimeoutNow { term, to: self::term(rng).leader() },
        _ => Message::Append(Box::new(Append {
            term,
            before: LogId { slot: slot(rng), term: if rng.happens(0.5) { like } else { self::term(rng) } },
            entry: rng.happens(0.7).then(|| entry(rng)),
            more: (0..rng.between(0, 3)).map(|_| entry(rng)).collect(),
            inherited: slot(rng),
            decided: slot(rng),
        })),
    }
}

fn input(rng: &mut SimRng, node: &Node<u64, u64>) -> Input<u64, u64> {
    match rng.between(0, 13) {
        0 => Input::Tick,
        1 => Input::Propose(7),
        2 => Input::ChangeConfiguration(configuration(rng)),
        3 => Input::Compact { through: slot(rng), state: 1 },
        4 => Input::Campaign,
        5 => Input::TransferLeadership(term(rng).leader()),
        6 => Input::Stored { term: node.leads().unwrap_or_else(|| term(rng)), slot: slot(rng) },
        _ => {
            let like = node.leads().unwrap_or(node.store().promised());
            let message = message(rng, like);
            let from = if rng.happens(0.6) { like.leader() } else { term(rng).leader() };
            Input::Message(from, message)
        }
    }
}

#[test]
fn arbitrary_inputs_never_lower_a_promise_or_the_decided_slot() {
    for seed in Seeds::new(25_000, 25_000) {
        let mut rng = SimRng::of(seed, 0);
        let store = Store::new(Configuration::new([1, 2, 3].map(NodeId)).unwrap(), 0);
        let options = Options { early: seed % 2 == 1, ..Options::default() };
        let (mut node, mut disk) = (Node::new(NodeId(1), options, store.clone(), 0, 0), store);
        for round in 0..40 {
            let before = (node.store().promised(), node.store().decided());
            let input = input(&mut rng, &node);
            let step = node.step(round * 700_000, rng.roll(), input.clone());
            let stored = step.store(|records| {
                for record in records {
                    disk.apply(record);
                }
                Ok::<_, ()>(())
            });
            assert!(stored.is_ok());
            let after = (node.store().promised(), node.store().decided());
            let replay = format!("HOLDOFF_SEED={seed}: {input:?}");
            assert!(after.0 >= before.0 && after.1 >= before.1, "{before:?} became {after:?}\n{replay}");
            let [here, there] =
                [node.store(), &disk].map(|store| (store.promised(), store.accepted(), store.last()));
            assert_eq!(here, there, "memory and disk differ\n{replay}");
        }
    }
}
