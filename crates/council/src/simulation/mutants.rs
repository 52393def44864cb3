//! Injected defects of the source document's algorithm, one at a time. The runs must find each of them.

use std::fmt::Debug;

use holdoff_paxos::flaw::{Flaw as Slots, Plant};

use super::city::{City, Plan};
use crate::flaw::Flaw;

/// The maximum number of seeds for finding one defect.
const SEEDS: u64 = 2000;

fn assert_is_found(flaw: impl Plant + Debug) {
    let run = |seed| flaw.plant(|| City::new(Plan::faulty(seed)).live().err());
    let found = (0..SEEDS).find_map(|seed| Some((seed, run(seed)?)));
    let (seed, broken) = found.unwrap_or_else(|| panic!("{flaw:?} is not found by {SEEDS} seeds"));
    println!("{flaw:?}: found by seed {seed}: {broken}");
}

#[test]
fn what_belongs_to_a_proposed_value_is_kept_until_another_is_learned() {
    assert_is_found(Flaw::ClearWhatWasProposed);
}

#[test]
fn mine_is_what_holds_my_operation_not_what_has_my_ballot() {
    assert_is_found(Flaw::MineByBallot);
}

#[test]
fn a_lost_slot_is_not_a_failed_operation() {
    assert_is_found(Flaw::LosingIsFailing);
}

#[test]
fn a_restart_knows_its_ballots() {
    assert_is_found(Flaw::ForgetAttempts);
}

#[test]
fn time_that_is_up_is_not_a_no() {
    assert_is_found(Flaw::TimeoutIsFailure);
}

#[test]
fn a_quorum_is_acceptors_not_messages() {
    assert_is_found(Slots::CountMessages);
}

#[test]
fn what_was_accepted_binds() {
    assert_is_found(Slots::IgnoreAccepted);
}

#[test]
fn two_connections_do_not_race_on_a_promise() {
    assert_is_found(Slots::RacingPromise);
}

#[test]
fn a_promise_is_stored_before_it_is_told() {
    assert_is_found(Slots::AnswerBeforeStoring);
}
