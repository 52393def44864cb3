//! Property tests of generated goals against the meaning of the language, and the problems that the parser reports.

mod reference;

use fastrand::Rng;
use proptest::prelude::*;

use super::goal::Take;
use super::{Fact, Facts, Goal};
use crate::machine::limits::{DEPTH, STEPS};
use crate::machine::{Diff, GoalError, Overlay, RowChange, StateMachine, Symbol, Value};

fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(cases), failure_persistence: None, ..ProptestConfig::default() }
}

fn facts(facts: impl IntoIterator<Item = Fact>) -> Facts {
    let there = |key| RowChange { key, before: None, after: Some(()) };
    let mut table = Facts::default();
    table.apply(&Diff::try_from(facts.into_iter().map(there).collect::<Vec<_>>()).unwrap()).unwrap();
    table
}

fn execute(table: &Facts, goal: &str) -> Result<String, GoalError> {
    let goal = goal.parse::<Goal>().unwrap_or_else(|problems| panic!("{problems}"));
    table.execute(&Overlay::default(), &goal).map(|(diff, answer)| format!("{answer}\n{diff}"))
}

proptest! {
    #![proptest_config(config(4096))]

    #[test]
    fn a_printed_goal_parses_to_the_same_goal(seed in any::<u64>()) {
        let goal = reference::goal(&mut Rng::with_seed(seed), reference::Odd);
        let printed = goal.to_string();
        let read = printed.parse::<Goal>().map_err(|problems| TestCaseError::fail(problems.to_string()))?;
        prop_assert_eq!(&read, &goal, "{}", printed);
        prop_assert_eq!(read.to_string(), printed);
    }

    /// Indexes, prefixes and early exits do not change the result: the matches equal those of an exhaustive search.
    #[test]
    fn a_search_finds_the_matches_of_an_exhaustive_search(seed in any::<u64>()) {
        let mut rng = Rng::with_seed(seed);
        let facts = facts(reference::facts(&mut rng));
        let goal = reference::goal(&mut rng, reference::Plain);
        let found = facts.execute(&Overlay::default(), &goal);
        let matches = reference::matches(&facts, &goal);
        let taken = match (goal.take, matches.len()) {
            (Take::First | Take::Only, 0) => Err(GoalError::NoMatch),
            (Take::Only, 2..) => Err(GoalError::Ambiguous),
            (Take::First, _) => Ok(matches.into_iter().take(1).collect()),
            _ => Ok(matches),
        };
        let wanted = taken.and_then(|matches: Vec<_>| Ok((reference::effects(&facts, &goal, &matches)?, matches)));
        let found = found.map(|(diff, answer)| {
            let mut after = facts.clone();
            after.apply(&diff).unwrap();
            (reference::all(&after), answer.matches)
        });
        prop_assert_eq!(found, wanted, "{}", goal);
    }
}

#[test]
fn some_generated_goals_match_and_some_do_not() {
    let mut taken = 0;
    for seed in 0..1000 {
        let mut rng = Rng::with_seed(seed);
        let facts = facts(reference::facts(&mut rng));
        taken += u32::from(
            facts.execute(&Overlay::default(), &reference::goal(&mut rng, reference::Plain)).is_ok(),
        );
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
fn a_known_first_value_is_found_without_a_full_scan() {
    let many = many();
    assert_eq!(execute(&many, "balance(77777, ?a)").unwrap(), "?a = 0\n");
    assert_eq!(execute(&many, "balance(7, ?a), balance(?a + 99999, ?b)").unwrap(), "?a = 0, ?b = 0\n");
    assert_eq!(execute(&many, "not balance(-1, _)").unwrap(), "\n");
    assert_eq!(execute(&many, "balance(?n, 0)").unwrap(), "?n = 0\n");

    let goal = "balance(?n, 1)".parse::<Goal>().unwrap();
    let why = many.execute(&Overlay::default(), &goal).unwrap_err().to_string();
    assert_eq!(why, "the goal exceeds the limit of 100000 steps of search: split it");
    let why = execute(&many, "all: balance(?n, 0)").unwrap_err().to_string();
    assert_eq!(why, "the goal exceeds the limit of 10000 matches: split it");
}

#[test]
fn an_overlay_holds_only_the_touched_rows() {
    let many = many();
    let mut over = Overlay::default();
    let goal = "balance(5, ?a) => -balance(5, ?a), +balance(5, ?a + 1)".parse().unwrap();
    for value in 0..10 {
        let (diff, answer) = many.execute(&over, &goal).unwrap();
        assert_eq!(answer.to_string(), format!("?a = {value}"));
        many.stage(&mut over, diff).unwrap();
    }
    assert_eq!((over.len(), over.touched()), (10, 11));
}

#[test]
fn answers_and_changes_are_limited() {
    let long = Value::text("x".repeat(16 * 1024)).unwrap();
    let name = Symbol::new("f").unwrap();
    let large = facts((0..80).map(|n| Fact::new(name.clone(), vec![n.into(), long.clone()]).unwrap()));
    let why = execute(&large, "all: f(?n, ?x)").unwrap_err().to_string();
    assert_eq!(why, "the goal exceeds the limit of 1048576 bytes of answers: split it");
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
        "the goal exceeds the limit of 1048576 bytes of changes: split it"
    );
}

/// Few facts and effects, but many bytes to copy.
#[test]
fn long_values_cost_more_steps() {
    let long = Value::text("x".repeat(16 * 1024)).unwrap();
    let name = Symbol::new("f").unwrap();
    let large = facts((0..900).map(|n| Fact::new(name.clone(), vec![n.into(), long.clone()]).unwrap()));
    let goal = |most: i64| format!("f(0, ?x), f(?n, _), ?n < {most}, g(?x), h()");
    assert_eq!(execute(&large, &goal(300)), Err(GoalError::NoMatch));
    let why = execute(&large, &goal(900)).unwrap_err().to_string();
    assert_eq!(why, "the goal exceeds the limit of 100000 steps of search: split it");
    let why = execute(&large, "f(0, ?x) => -g(?x)").unwrap_err().to_string();
    assert!(why.len() < 200 && why.ends_with("… does not exist and cannot be removed"), "{why}");
}

#[test]
fn the_depth_of_calculations_is_limited() {
    let nested = |levels: usize| format!("{}1{} = 1", "(".repeat(levels), ")".repeat(levels));
    assert!(nested(DEPTH).parse::<Goal>().is_ok());
    assert!(nested(DEPTH + 1).parse::<Goal>().unwrap_err().to_string().contains("nests too deep"));
    assert!(nested(10_000).parse::<Goal>().is_err());
    let sum = |terms: usize| format!("{} = 1", vec!["1"; terms].join(" + "));
    assert!(sum(DEPTH + 1).parse::<Goal>().is_ok());
    assert!(sum(DEPTH + 2).parse::<Goal>().unwrap_err().to_string().contains("nests too deep"));
}

fn problem(text: &str) -> String {
    text.parse::<Goal>().map(|goal| goal.to_string()).unwrap_err().to_string()
}

#[test]
fn a_problem_shows_its_position_and_the_expected_syntax() {
    let shown = "goal:2:4: unexpected `alice`\n  |\n2 | => alice(1)\n  |    ^^^^^ \
                 expected an effect, such as `-balance(alice, ?a)` or `+balance(alice, 20)`";
    assert_eq!(problem("p(1)\n=> alice(1)"), shown);
}

#[test]
fn each_kind_of_mistake_has_its_own_message() {
    for (text, expected) in [
        ("", "goal:1:1: unexpected end of the goal"),
        ("all:", "goal:1:5: unexpected end of the goal"),
        ("+p(1)", "goal:1:1: unexpected `+`\n  |\n1 | +p(1)\n  | ^ expected `=>` before the effects"),
        ("p(1) =>", "goal:1:8: unexpected end of the goal"),
        ("p(1), ", "goal:1:7: unexpected end of the goal"),
        ("p(1", "expected `,` and another value, or `)`"),
        ("p(1) q(2)", "goal:1:6: unexpected `q`"),
        ("?a > 1", "goal:1:1: ?a has no value here"),
        ("not p(?a)", "in `not`, `_` matches anything"),
        ("p(?a + 1)", "goal:1:3: ?a has no value here"),
        ("=> +p(_)", "goal:1:7: `_` has no value"),
        ("p(1) > 1", "goal:1:6: unexpected `>`"),
        ("a b", "expected a comparison"),
        ("1 == 1", "goal:1:4: unexpected `=`"),
        ("p(-a)", "write `0 - ?a`"),
        ("p(99999999999999999999)", "`99999999999999999999` is not an integer"),
        ("p(9223372036854775808)", "does not fit 64 bits"),
        ("p(1x)", "`1x` is not an integer"),
        ("p(\"a)", "goal:1:3: unterminated text"),
        ("p(\"\\q\")", "goal:1:4: invalid escape sequence"),
        ("p(\"\\u{d800}\")", "invalid escape sequence"),
        ("p(?)", "`?` is not a name"),
        ("p(ä)", "goal:1:3: unexpected character 'ä'"),
        ("p; q", "goal:1:2: unexpected character ';'"),
    ] {
        assert!(problem(text).contains(expected), "{text}:\n{}", problem(text));
    }
}

/// A goal is serialized as its printed text, which may be longer than the original text.
#[test]
fn a_goal_whose_printed_text_is_too_long_is_rejected() {
    let control = |count: usize| format!("p(\"{0}\", \"{0}\")", "\u{1}".repeat(count));
    let goal = control(6000).parse::<Goal>().unwrap();
    assert_eq!(goal.to_string().parse::<Goal>().unwrap(), goal);
    assert!(problem(&control(7000)).contains("the goal has 70009 bytes when it is printed"));
}

#[test]
fn goals_beyond_the_limits_are_rejected() {
    let many = |one: &str, count: usize| vec![one; count].join(", ");
    for (most, over, expected) in [
        (many("p()", 32), many("p()", 33), "there are more than 32 conditions"),
        (
            format!("=> {}", many("+p()", 64)),
            format!("=> {}", many("+p()", 65)),
            "there are more than 64 effects",
        ),
        (
            format!("p({})", many("1", 16)),
            format!("p({})", many("1", 17)),
            "there are more than 16 arguments",
        ),
        ("a".repeat(128) + "()", "a".repeat(129) + "()", "at most 128"),
        (
            format!("p(\"{}\")", "x".repeat(16384)),
            format!("p(\"{}\")", "x".repeat(16385)),
            "a text has at most 16384 bytes",
        ),
        (" ".repeat(65533) + "p()", " ".repeat(65534) + "p()", "expected at most 65536"),
    ] {
        assert!(most.parse::<Goal>().is_ok(), "{}", problem(&most));
        assert!(problem(&over).contains(expected), "{}", problem(&over));
    }
    let variables = |count: usize| {
        let patterns: Vec<_> = (0..count).map(|n| format!("?v{n}")).collect();
        patterns.chunks(16).map(|terms| format!("p({})", terms.join(", "))).collect::<Vec<_>>().join(", ")
    };
    assert!(variables(64).parse::<Goal>().is_ok());
    assert!(problem(&variables(65)).contains("there are more than 64 variables"));
}
