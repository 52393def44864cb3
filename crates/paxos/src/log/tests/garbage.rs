//! Fuzzing: whatever inputs a node gets, it does not panic, neither its promise nor its decided slot goes back, and its
//! memory equals its disk.
//!
//! Seeded; `HOLDOFF_FUZZ_SEED=… HOLDOFF_FUZZ_CASES=… cargo test -p holdoff-paxos --lib garbage` replays or goes on.

use holdoff_sim::kernel::Chance;

use crate::log::{
    Append, Candidacy, Entry, Input, Mark, Message, Node, Options, Payload, Snapshot, Store, Term,
};
use crate::{Configuration, NodeId, Slot};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|number| number.parse().ok())
}

fn configuration(chance: &mut Chance) -> Configuration {
    let some = (1..=4).map(NodeId).filter(|_| chance.happens(0.6)).collect::<Vec<_>>();
    Configuration::new(some).unwrap_or_else(|_| Configuration::new([NodeId(1)]).unwrap())
}

fn slot(chance: &mut Chance) -> Slot {
    Slot(if chance.happens(0.05) { u64::MAX - chance.between(0, 2) } else { chance.between(0, 12) })
}

fn term(chance: &mut Chance) -> Term {
    let attempt = if chance.happens(0.01) { u64::MAX } else { chance.between(0, 6) };
    Term::new(slot(chance), attempt, NodeId(u128::from(chance.between(1, 4))))
}

fn entry(chance: &mut Chance) -> Entry<u64> {
    let payload = match chance.between(0, 3) {
        0 => Payload::Barrier,
        1 => Payload::Configuration(configuration(chance)),
        _ => Payload::Value(chance.between(0, 9)),
    };
    Entry { term: term(chance), payload }
}

fn message(chance: &mut Chance, like: Term) -> Message<u64, u64> {
    let term = if chance.happens(0.7) { like } else { term(chance) };
    match chance.between(0, 7) {
        0 => Message::Vote(Candidacy {
            trial: chance.happens(0.5),
            term,
            accepted: self::term(chance),
            last: slot(chance),
        }),
        1 => Message::Voted {
            trial: chance.happens(0.5),
            term,
            granted: chance.happens(0.8),
            promised: self::term(chance),
        },
        2 => Message::Install {
            term,
            inherited: slot(chance),
            snapshot: Snapshot {
                last: Mark { slot: slot(chance), term: self::term(chance) },
                start: slot(chance),
                configuration: configuration(chance),
                state: 0,
            },
        },
        3 => Message::Matched { term, slot: slot(chance) },
        4 => Message::Behind { term, have: slot(chance) },
        5 => Message::Refused { term, promised: self::term(chance) },
        6 => Message::Lead { term, to: self::term(chance).leader() },
        _ => Message::Append(Append {
            term,
            before: Mark {
                slot: slot(chance),
                term: if chance.happens(0.5) { like } else { self::term(chance) },
            },
            entry: chance.happens(0.7).then(|| entry(chance)),
            more: (0..chance.between(0, 3)).map(|_| entry(chance)).collect(),
            inherited: slot(chance),
            decided: slot(chance),
        }),
    }
}

fn input(chance: &mut Chance, node: &Node<u64, u64>) -> Input<u64, u64> {
    match chance.between(0, 13) {
        0 => Input::Tick,
        1 => Input::Propose(7),
        2 => Input::Change(configuration(chance)),
        3 => Input::Compact { through: slot(chance), state: 1 },
        4 => Input::Run,
        5 => Input::HandOver(term(chance).leader()),
        6 => Input::Stored { term: node.leads().unwrap_or_else(|| term(chance)), slot: slot(chance) },
        _ => {
            let like = node.leads().unwrap_or(node.store().promised());
            let message = message(chance, like);
            let from = if chance.happens(0.6) { like.leader() } else { term(chance).leader() };
            Input::Message(from, message)
        }
    }
}

#[test]
fn garbage_is_survived_and_takes_nothing_back() {
    let first = number("HOLDOFF_FUZZ_SEED").unwrap_or(0);
    for seed in first..first + number("HOLDOFF_FUZZ_CASES").unwrap_or(25_000) {
        let mut chance = Chance::of(seed, 0);
        let store = Store::new(Configuration::new([1, 2, 3].map(NodeId)).unwrap(), 0);
        let options = Options { early: seed % 2 == 1, ..Options::default() };
        let (mut node, mut disk) = (Node::new(NodeId(1), options, store.clone(), 0, 0), store);
        for round in 0..40 {
            let before = (node.store().promised(), node.store().decided());
            let input = input(&mut chance, &node);
            let step = node.step(round * 700_000, chance.roll(), input.clone());
            let stored = step.release(|records| {
                for record in records {
                    disk.apply(record);
                }
                Ok::<_, ()>(())
            });
            assert!(stored.is_ok());
            let after = (node.store().promised(), node.store().decided());
            let replay = format!("HOLDOFF_FUZZ_SEED={seed} HOLDOFF_FUZZ_CASES=1: {input:?}");
            assert!(after.0 >= before.0 && after.1 >= before.1, "{before:?} became {after:?}\n{replay}");
            let [here, there] =
                [node.store(), &disk].map(|store| (store.promised(), store.accepted(), store.last()));
            assert_eq!(here, there, "memory and disk differ\n{replay}");
        }
    }
}
