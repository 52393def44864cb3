//! A million mutated goal texts, and as many mutated snapshots and messages: no input causes a panic, and no node
//! accepts anything without a proof.
//!
//! A seed determines all inputs. To replay a seed or to run more cases:
//!
//! `HOLDOFF_FUZZ_SEED=… HOLDOFF_FUZZ_CASES=… cargo test -p holdoff-ledger --test it fuzz`

mod cluster;
mod letters;

use std::cell::Cell;

use holdoff_ledger::machine::{Facts, Goal, Machine, Overlay};
use holdoff_testbed::fuzz::{cases, hunt, mutate};

const REPLAY: &str = "cargo test -p holdoff-ledger --test it fuzz";

const CORPUS: &[&str] = &[
    "balance(alice, ?a), ?a >= 10 => -balance(alice, ?a), +balance(alice, ?a - 10)",
    "all: job(?id, waiting, ?n), not held(?id, _) => -job(?id, waiting, ?n), +job(?id, \"r\\u{e4}n\\n\", 0)",
    "only: p(?x, ?x * (2 + -3) % 7), ?x != \"text\", a < b\n=> +q()",
    "=> +p(-9223372036854775808, \"\", x)",
];

const WORDS: &[&str] = &[
    "=>",
    "!=",
    "<=",
    "(",
    ")",
    ",",
    ":",
    "+",
    "-",
    "*",
    "/",
    "%",
    "=",
    "_",
    "?",
    "?a",
    "not ",
    "all:",
    "only:",
    "\"",
    "\\",
    "\\u{",
    "}",
    "p(",
    "p()",
    "((((((((",
    "9223372036854775808",
    "-1",
    "0",
    "ä",
    "\u{0}",
    "\u{2028}",
    "\n",
];

#[test]
fn the_goal() {
    let facts = Facts::default();
    let read = Cell::new(0_u64);
    let cases = cases(1_000_000);
    hunt(REPLAY, cases, |rng| {
        let goal = CORPUS[rng.usize(0..CORPUS.len())];
        let text = mutate(rng, goal, WORDS);
        match text.parse::<Goal>() {
            Ok(goal) => {
                read.set(read.get() + 1);
                assert_eq!(goal.to_string().parse::<Goal>().unwrap(), goal);
                drop(facts.execute(&Overlay::default(), &goal));
            }
            Err(problems) if rng.u8(..) < 16 => assert!(problems.to_string().contains("expected")),
            Err(_) => {}
        }
    });
    // Both outcomes must be common, or the mutations test too little.
    let percent = read.get() * 100 / cases;
    assert!((2..98).contains(&percent) || cases < 1000, "{percent} % of the inputs were goals");
}

#[test]
fn the_snapshot() {
    let mut facts = Facts::default();
    let goal = "=> +p(1, two, \"three\"), +p(1), +q(-1, \"\")".parse().unwrap();
    let (diff, _) = facts.execute(&Overlay::default(), &goal).unwrap();
    facts.apply(&diff).unwrap();
    let snapshot = facts.snapshot();
    hunt(REPLAY, cases(1_000_000), |rng| {
        let mut bytes = snapshot.clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(0..bytes.len());
            bytes[at] = rng.u8(..);
        }
        if rng.bool() {
            bytes.truncate(rng.usize(0..=bytes.len()));
        }
        if let Ok(state) = Facts::restore(&bytes) {
            assert_eq!(state.snapshot(), bytes);
        }
    });
}
