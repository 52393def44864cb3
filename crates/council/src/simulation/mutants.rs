//! The first system's defects, planted one at a time: the runs must find each.

use super::city::{City, Plan};
use super::truth::Broken;
use crate::flaw::Flaw;

/// So many seeds may be needed to find one.
const SEEDS: u64 = 2000;

fn assert_found(name: &str, plant: impl Fn(&dyn Fn() -> Option<Broken>) -> Option<Broken>) {
    let found =
        (0..SEEDS).find_map(|seed| Some((seed, plant(&|| City::new(Plan::faulty(seed)).live().err())?)));
    let (seed, broken) = found.unwrap_or_else(|| panic!("{name} is not found by {SEEDS} seeds"));
    println!("{name}: found by seed {seed}: {broken}");
}

fn assert_flaw_is_found(flaw: Flaw) {
    assert_found(&format!("{flaw:?}"), |run| flaw.plant(run));
}

fn assert_slot_flaw_is_found(flaw: holdoff_paxos::flaw::Flaw) {
    assert_found(&format!("{flaw:?}"), |run| flaw.plant(run));
}

#[test]
fn what_belongs_to_a_proposed_value_is_kept_until_another_is_learned() {
    assert_flaw_is_found(Flaw::ClearWhatWasProposed);
}

#[test]
fn mine_is_what_holds_my_operation_not_what_has_my_ballot() {
    assert_flaw_is_found(Flaw::MineByBallot);
}

#[test]
fn a_lost_slot_is_not_a_failed_operation() {
    assert_flaw_is_found(Flaw::LosingIsFailing);
}

#[test]
fn a_restart_knows_its_ballots() {
    assert_flaw_is_found(Flaw::ForgetAttempts);
}

#[test]
fn time_that_is_up_is_not_a_no() {
    assert_flaw_is_found(Flaw::TimeoutIsFailure);
}

#[test]
fn a_quorum_is_acceptors_not_messages() {
    assert_slot_flaw_is_found(holdoff_paxos::flaw::Flaw::CountMessages);
}

#[test]
fn what_was_accepted_binds() {
    assert_slot_flaw_is_found(holdoff_paxos::flaw::Flaw::IgnoreAccepted);
}

#[test]
fn two_connections_do_not_race_on_a_promise() {
    assert_slot_flaw_is_found(holdoff_paxos::flaw::Flaw::RacingPromise);
}

#[test]
fn a_promise_is_stored_before_it_is_told() {
    assert_slot_flaw_is_found(holdoff_paxos::flaw::Flaw::AnswerBeforeStoring);
}
