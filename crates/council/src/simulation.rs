//! A simulation of the council's core on a seeded network: devices, acceptors, and the faults that strike them.

use std::fmt;

use cluster::{Cluster, Plan};
use holdoff_driver::faulty::DriverFault;
use holdoff_sim::kit::Coverage;
use holdoff_testbed::Seeds;
use holdoff_testbed::fault::inject;
pub(crate) use node::TestSigner;
use properties::Violation;

use crate::device::CouncilFault;

mod cluster;
mod contention;
mod hostile;
mod node;
mod oracle;
mod properties;
mod scenarios;

/// The number of seeds of a quick run and of a deep run.
const SEEDS: (u64, u64) = (200, 2000);

/// The minimum share of the runs in which each fault must strike, in percent. With less the runs would show little.
const MIN_PERCENT: u64 = 30;

#[test]
fn devices_agree_and_every_operation_ends() {
    let (mut faults, mut totals) = (Coverage::default(), Coverage::default());
    for seed in Seeds::new(SEEDS.0, SEEDS.1) {
        let plan = Plan::faulty(seed);
        let drawn = format!("{plan:?}");
        let ran = Cluster::new(plan).run().unwrap_or_else(|violation| {
            let command = "cargo test -p holdoff-council --lib devices_agree -- --nocapture";
            panic!("seed {seed}: {violation}\n{drawn}\n{}", Seeds::replay(seed, command))
        });
        faults.add(ran.faults);
        totals.add(ran.counts);
    }
    println!("{faults}{totals}");
    if let Err(rare) = faults.check_all(MIN_PERCENT) {
        panic!("{rare}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        let [one, other] = [(), ()].map(|()| format!("{:?}", Cluster::new(Plan::faulty(seed)).run()));
        assert_eq!(one, other, "seed {seed}");
    }
}

/// The maximum number of seeds for finding one defect.
const FAULT_SEEDS: u64 = 2000;

/// Asserts that the simulation finds a defect, by a violation of this kind.
fn assert_is_found(fault: impl fmt::Debug + Copy + PartialEq + 'static, is_expected: fn(&Violation) -> bool) {
    let run = |seed| inject(fault, || Cluster::new(Plan::faulty(seed)).run().err());
    let found = (0..FAULT_SEEDS).find_map(|seed| Some((seed, run(seed)?)));
    let (seed, violation) = found.unwrap_or_else(|| panic!("{fault:?} is not found by {FAULT_SEEDS} seeds"));
    println!("{fault:?}: found by seed {seed}: {violation}");
    assert!(is_expected(&violation), "{violation}");
}

#[test]
fn clearing_the_mail_of_a_preempted_proposal_is_found() {
    assert_is_found(CouncilFault::ClearWhatWasProposed, |found| matches!(found, Violation::MailLost(_)));
}

#[test]
fn recognizing_an_own_value_by_its_ballot_is_found() {
    assert_is_found(CouncilFault::MineByBallot, |found| matches!(found, Violation::WrongOutcome { .. }));
}

#[test]
fn reporting_a_lost_slot_as_a_failure_is_found() {
    assert_is_found(CouncilFault::LosingIsFailing, |found| matches!(found, Violation::WrongOutcome { .. }));
}

#[test]
fn forgetting_used_ballots_in_a_restart_is_found() {
    assert_is_found(CouncilFault::ForgetAttempts, |found| matches!(found, Violation::Diverged { .. }));
}

#[test]
fn reporting_a_timeout_as_not_committed_is_found() {
    assert_is_found(CouncilFault::TimeoutIsFailure, |found| matches!(found, Violation::WrongOutcome { .. }));
}

#[test]
fn counting_messages_instead_of_acceptors_is_found() {
    assert_is_found(CouncilFault::CountMessages, |found| matches!(found, Violation::Diverged { .. }));
}

#[test]
fn ignoring_an_accepted_value_is_found() {
    assert_is_found(CouncilFault::IgnoreAccepted, |found| matches!(found, Violation::Diverged { .. }));
}

#[test]
fn overwriting_a_promise_with_a_lower_ballot_is_found() {
    assert_is_found(CouncilFault::RacingPromise, |found| matches!(found, Violation::Diverged { .. }));
}

#[test]
fn an_acceptor_that_believes_any_snapshot_is_found() {
    assert_is_found(CouncilFault::BelieveAnySnapshot, |_| true);
}

#[test]
fn an_acceptor_that_forgets_a_removal_is_found() {
    let is_expected = |found: &_| matches!(found, Violation::Diverged { .. } | Violation::NeverEnded { .. });
    assert_is_found(CouncilFault::ForgetRemoval, is_expected);
}

#[test]
fn an_acceptor_that_takes_any_attempt_is_found() {
    // A device that has no higher attempt left proposes two values under one.
    let is_expected = |found: &_| matches!(found, Violation::Diverged { .. } | Violation::NeverEnded { .. });
    assert_is_found(CouncilFault::TakeAnyAttempt, is_expected);
}

#[test]
fn a_driver_that_sends_before_it_stores_is_found() {
    assert_is_found(DriverFault::SendBeforeStore, |found| matches!(found, Violation::MailLost(_)));
}

#[test]
fn a_driver_that_releases_an_output_twice_is_found() {
    assert_is_found(DriverFault::ReleaseTwice, |found| matches!(found, Violation::EndedTwice(_)));
}

#[test]
fn a_driver_that_continues_after_a_failed_write_is_found() {
    let is_expected = |found: &_| matches!(found, Violation::MailLost(_) | Violation::NeverEnded { .. });
    assert_is_found(DriverFault::ContinueAfterFailure, is_expected);
}
