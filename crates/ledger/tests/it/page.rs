//! Checks `docs/ledger-goals.md`: runs every goal on the page, one after another, on the same facts.

use holdoff_ledger::machine::{Facts, Goal, Overlay, StateMachine, limits};

const PAGE: &str = include_str!("../../../../docs/ledger-goals.md");

/// Returns the output for a goal.
fn run(facts: &mut Facts, goal: &str) -> String {
    let goal = match goal.parse::<Goal>() {
        Ok(goal) => goal,
        Err(problems) => return problems.to_string(),
    };
    let (diff, answer) = match facts.execute(&Overlay::default(), &goal) {
        Ok(done) => done,
        Err(failed) => return format!("failed: {failed}"),
    };
    facts.apply(&diff).unwrap();
    let lines: Vec<_> =
        [answer.to_string(), diff.to_string()].into_iter().filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { "ok".to_owned() } else { lines.join("\n") }
}

/// Returns each goal, and its output on the page.
fn examples() -> Vec<(&'static str, &'static str)> {
    let blocks = PAGE.split("```goal\n").skip(1).map(|block| block.split("\n```").next().unwrap());
    let examples = blocks.flat_map(|block| block.strip_prefix("> ").unwrap().split("\n> "));
    examples.map(|example| example.split_once('\n').unwrap()).collect()
}

#[test]
fn every_example_does_what_the_page_says() {
    let mut facts = Facts::default();
    for (goal, expected) in examples() {
        assert_eq!(run(&mut facts, goal), expected, "> {goal}");
    }
    assert!(examples().len() > 15, "the page has too few examples");
}

#[test]
fn the_page_lists_the_limits() {
    for (limit, row) in [
        (limits::GOAL_BYTES / 1024, "KiB of text"),
        (limits::CONDITIONS, "conditions"),
        (limits::EFFECTS, "effects"),
        (limits::ARGUMENTS, "values in a fact"),
        (limits::VARIABLES, "variables"),
        (limits::DEPTH, "levels of calculation"),
        (limits::SYMBOL_BYTES, "characters of a word"),
        (limits::TEXT_BYTES / 1024, "KiB of a text"),
        (limits::STEPS, "steps of search"),
        (limits::MATCHES, "matches"),
        (limits::ANSWER_BYTES / 1024 / 1024, "MiB of answer"),
        (limits::DIFF_BYTES / 1024 / 1024, "MiB of changes"),
    ] {
        let row = format!("| {limit} {row} |");
        assert!(PAGE.contains(&row), "docs/ledger-goals.md has no row {row}");
    }
}
