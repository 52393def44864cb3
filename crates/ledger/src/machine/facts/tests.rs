//! Property tests of generated goals against the meaning of the language.

mod made;
mod naive;
mod said;

use fastrand::Rng;
use proptest::prelude::*;

use super::goal::Take;
use super::{Fact, Facts, Goal};
use crate::machine::limits::{DEPTH, STEPS};
use crate::machine::{Change, Diff, Failed, Machine, Overlay, Symbol, Value};

fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(cases), failure_persistence: None, ..ProptestConfig::default() }
}

fn facts(facts: impl IntoIterator<Item = Fact>) -> Facts {
    let there = |key| Change { key, before: None, after: Some(()) };
    let mut table = Facts::default();
    table.apply(&Diff::try_from(facts.into_iter().map(there).collect::<Vec<_>>()).unwrap()).unwrap();
    table
}

fn execute(table: &Facts, goal: &str) -> Result<String, Failed> {
    let goal = goal.parse::<Goal>().unwrap_or_else(|problems| panic!("{problems}"));
    table.execute(&Overlay::default(), &goal).map(|(diff, answer)| format!("{answer}\n{diff}"))
}

proptest! {
    #![proptest_config(config(4096))]

    #[test]
    fn what_is_printed_is_read_as_the_same_goal(seed in any::<u64>()) {
        let goal = made::goal(&mut Rng::with_seed(seed), made::Odd);
        let printed = goal.to_string();
        let read = printed.parse::<Goal>().map_err(|problems| TestCaseError::fail(problems.to_string()))?;
        prop_assert_eq!(&read, &goal, "{}", printed);
        prop_assert_eq!(read.to_string(), printed);
    }

    /// Indexes, prefixes and early exits do not change the result: the matches equal those of an exhaustive search.
    #[test]
    fn a_search_finds_what_trying_everything_finds(seed in any::<u64>()) {
        let mut rng = Rng::with_seed(seed);
        let facts = facts(made::facts(&mut rng));
        let goal = made::goal(&mut rng, made::Plain);
        let found = facts.execute(&Overlay::default(), &goal);
        let matches = naive::matches(&facts, &goal);
        let taken = match (goal.take, matches.len()) {
            (Take::First | Take::Only, 0) => Err(Failed::NoMatch),
            (Take::Only, 2..) => Err(Failed::Ambiguous),
            (Take::First, _) => Ok(matches.into_iter().take(1).collect()),
            _ => Ok(matches),
        };
        let wanted = taken.and_then(|matches: Vec<_>| Ok((naive::effects(&facts, &goal, &matches)?, matches)));
        let found = found.map(|(diff, answer)| {
            let mut after = facts.clone();
            after.apply(&diff).unwrap();
            (naive::all(&after), answer.matches)
        });
        prop_assert_eq!(found, wanted, "{}", goal);
    }
}

#[test]
fn made_up_goals_match_and_do_not_match() {
    let mut taken = 0;
    for seed in 0..1000 {
        let mut rng = Rng::with_seed(seed);
        let facts = facts(made::facts(&mut rng));
        taken += u32::from(facts.execute(&Overlay::default(), &made::goal(&mut rng, made::Plain)).is_ok());
    }
    assert!((200..900).contains(&taken), "{taken} of 1000");
}

fn many() -> Facts {
    let name = Symbol::new("balance").unwrap();
    facts(
        (0..i64::try_from(STEPS).unwrap() + 10)
            .map(|n| Fact::new(name.clone(), vec![n.into(), Value::Integer(0)]).unwrap()),
    )
}

#[test]
fn a_first_value_that_is_known_is_found_among_any_number() {
    let many = many();
    assert_eq!(execute(&many, "balance(77777, ?a)").unwrap(), "?a = 0\n");
    assert_eq!(execute(&many, "balance(7, ?a), balance(?a + 99999, ?b)").unwrap(), "?a = 0, ?b = 0\n");
    assert_eq!(execute(&many, "not balance(-1, _)").unwrap(), "\n");
    assert_eq!(execute(&many, "balance(?n, 0)").unwrap(), "?n = 0\n");

    let goal = "balance(?n, 1)".parse::<Goal>().unwrap();
    let why = many.execute(&Overlay::default(), &goal).unwrap_err().to_string();
    assert_eq!(why, "it takes more than 100000 steps of search: ask for less at once");
    let why = execute(&many, "all: balance(?n, 0)").unwrap_err().to_string();
    assert_eq!(why, "it takes more than 10000 matches: ask for less at once");
}

#[test]
fn an_overlay_holds_what_was_touched_and_nothing_else() {
    let many = many();
    let mut over = Overlay::default();
    let goal = "balance(5, ?a) => -balance(5, ?a), +balance(5, ?a + 1)".parse().unwrap();
    for value in 0..10 {
        let (diff, answer) = many.execute(&over, &goal).unwrap();
        assert_eq!(answer.to_string(), format!("?a = {value}"));
        many.lay(&mut over, diff).unwrap();
    }
    assert_eq!((over.len(), over.touched()), (10, 11));
}

#[test]
fn answers_and_changes_have_a_limit() {
    let long = Value::text("x".repeat(16 * 1024)).unwrap();
    let name = Symbol::new("f").unwrap();
    let large = facts((0..80).map(|n| Fact::new(name.clone(), vec![n.into(), long.clone()]).unwrap()));
    let why = execute(&large, "all: f(?n, ?x)").unwrap_err().to_string();
    assert_eq!(why, "it takes more than 1048576 bytes of answers: ask for less at once");
    let why = execute(
        &large,
        "f(1, ?x), f(2, ?y) => +g(?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x), \
                               +h(?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x), \
                               +i(?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x), \
                               +j(?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x), \
                               +k(?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x, ?y, ?x)",
    );
    assert_eq!(
        why.unwrap_err().to_string(),
        "it takes more than 1048576 bytes of changes: ask for less at once"
    );
}

/// Few facts and effects, but many bytes to copy.
#[test]
fn long_values_cost_more_steps() {
    let long = Value::text("x".repeat(16 * 1024)).unwrap();
    let name = Symbol::new("f").unwrap();
    let large = facts((0..900).map(|n| Fact::new(name.clone(), vec![n.into(), long.clone()]).unwrap()));
    let goal = |most: i64| format!("f(0, ?x), f(?n, _), ?n < {most}, g(?x), h()");
    assert_eq!(execute(&large, &goal(300)), Err(Failed::NoMatch));
    let why = execute(&large, &goal(900)).unwrap_err().to_string();
    assert_eq!(why, "it takes more than 100000 steps of search: ask for less at once");
    let why = execute(&large, "f(0, ?x) => -g(?x)").unwrap_err().to_string();
    assert!(why.len() < 200 && why.ends_with("… is not there to be retracted"), "{why}");
}

#[test]
fn calculations_nest_so_deep_and_no_deeper() {
    let nested = |levels: usize| format!("{}1{} = 1", "(".repeat(levels), ")".repeat(levels));
    assert!(nested(DEPTH).parse::<Goal>().is_ok());
    assert!(nested(DEPTH + 1).parse::<Goal>().unwrap_err().to_string().contains("nests too deep"));
    assert!(nested(10_000).parse::<Goal>().is_err());
    let sum = |terms: usize| format!("{} = 1", vec!["1"; terms].join(" + "));
    assert!(sum(DEPTH + 1).parse::<Goal>().is_ok());
    assert!(sum(DEPTH + 2).parse::<Goal>().unwrap_err().to_string().contains("nests too deep"));
}
