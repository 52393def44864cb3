//! Tests that inject the defects of the source document's algorithm, and others, one at a time: the runs must find
//! each.

use std::fmt::Debug;

use holdoff_paxos::flaw::Flaw as OfTheLog;

use crate::flaw::{Flaw, Plant};

/// The maximum number of seeds that may be needed to find a defect.
const SEEDS: u64 = 200;

fn assert_is_found(flaw: impl Plant + Debug) {
    let found = (0..SEEDS).find_map(|seed| Some((seed, flaw.plant(|| super::run(seed)).err()?)));
    let (seed, broken) = found.unwrap_or_else(|| panic!("{flaw:?} is not found by {SEEDS} seeds"));
    println!("{flaw:?}: found by seed {seed}: {broken}");
}

#[test]
fn a_timeout_does_not_move_the_index() {
    assert_is_found(Flaw::SkipOnTimeout);
}

#[test]
fn a_restart_does_not_move_the_index_without_the_diff() {
    assert_is_found(Flaw::CountOnRestart);
}

#[test]
fn a_hash_covers_what_is_changed() {
    assert_is_found(Flaw::HashWithoutDiff);
}

#[test]
fn a_goal_that_fails_changes_nothing() {
    assert_is_found(Flaw::FailureChanges);
}

#[test]
fn a_place_is_what_the_log_says_not_what_was_counted() {
    assert_is_found(Flaw::LocalNumbers);
}

#[test]
fn a_leader_counts_what_is_on_its_disk() {
    assert_is_found(OfTheLog::CountUnstored);
}
