//! Duelling proposers: success, cost and fairness.

use holdoff_sim::scenario::Scenario;
use holdoff_sim::scenario::duel::{self, LostSlot, Outcome, Params};
use holdoff_sim::{Micros, Plan, ResultRow, Strategy};

fn run(params: &Params, name: &str, seed: u64) -> Outcome {
    duel::run(params, &Strategy::named(name).unwrap(), seed)
}

fn of(clients: u32) -> Params {
    Params { clients, ..Params::default() }
}

/// Returns the row of one strategy over many runs.
fn row(params: Params, name: &str, runs: u32) -> ResultRow {
    let (clients, scenario) = (vec![params.clients], Scenario::Duel(params));
    let strategies = vec![Strategy::named(name).unwrap()];
    let plan = Plan { scenario, strategies, clients, runs, seed: 1, threads: 2 };
    holdoff_sim::run(&plan, &|_, _| {}).remove(0)
}

#[test]
fn without_rebuilding_exactly_one_member_succeeds() {
    for clients in [1, 2, 5, 20, 40] {
        for seed in 0..30 {
            for name in ["linear-stale", "proposal-stale"] {
                let outcome = run(&of(clients), name, seed);
                let fates = (outcome.done, outcome.gave_up, outcome.slots);
                assert_eq!(fates, (1, u64::from(clients) - 1, 1), "{name}, {clients}, seed {seed}");
            }
        }
    }
}

/// Not even without a limit of attempts: a member that has lost the slot proposes for it until the deadline.
#[test]
fn more_time_does_not_help_members_that_do_not_rebuild() {
    for seed in 0..3 {
        let outcome = run(&Params { attempts: 100_000, ..of(10) }, "proposal-stale", seed);
        assert_eq!((outcome.done, outcome.timed_out), (1, 9), "seed {seed}");
        assert!(outcome.time_us >= 29_000_000, "seed {seed}: {}", outcome.time_us);
    }
}

#[test]
fn the_council_succeeds_for_all_members_under_loss_and_kills() {
    for clients in [5, 10, 20] {
        let (mut killed, mut lost, mut unanswered) = (0, 0, 0);
        for seed in 0..200 {
            let params = Params { loss: 0.05, kill: 0.5, ..of(clients) };
            let outcome = run(&params, "council", seed);
            assert_eq!(outcome.done, outcome.living, "{clients} members, seed {seed}: {outcome:?}");
            assert_eq!((outcome.slots, outcome.broken), (outcome.done, 0), "{clients} members, seed {seed}");
            assert_eq!(outcome.living + outcome.killed, u64::from(clients), "seed {seed}");
            killed += outcome.killed;
            lost += u64::from(outcome.lost_messages > 0);
            unanswered += outcome.unanswered;
        }
        assert!((70..=130).contains(&killed), "{clients} members: {killed} of 200 runs had a kill");
        assert!(lost > 190 && unanswered > 0, "{clients} members: {lost} {unanswered}");
    }
}

#[test]
fn the_council_takes_one_ballot_and_two_round_trips_per_slot() {
    let row = row(of(20), "council", 200);
    // A member begins a ballot in each slot up to its own: at least the mean of 1, 2, … 20.
    let ballots = row.figures["ballots_per_member"].mean;
    assert!((10.5..11.0).contains(&ballots), "{ballots} ballots");
    // Twenty slots of two round trips of 50 ms.
    assert!((1_900.0..2_100.0).contains(&row.time_ms.p50), "{} ms", row.time_ms.p50);
    assert_eq!((row.failed.mean, row.figures["lost_slots"].mean), (0.0, 190.0));
}

#[test]
fn doubling_from_ten_milliseconds_takes_more_ballots_and_longer() {
    let council = row(of(20), "council", 50);
    let endless = |lost_slot| Params { lost_slot, attempts: 100_000, ..of(20) };
    let ballots = |row: &ResultRow| row.figures["ballots_per_member"].mean;
    for (lost_slot, low, high) in [(LostSlot::Continue, 12.0, 15.0), (LostSlot::Restart, 24.0, 28.0)] {
        let doubling = row(endless(lost_slot), "proposal", 50);
        assert!((low..high).contains(&ballots(&doubling)), "{lost_slot:?}: {}", ballots(&doubling));
        assert!(ballots(&council) < ballots(&doubling) && council.time_ms.mean < doubling.time_ms.mean);
    }
}

/// Seven attempts are not enough for twenty slots if a slot that a rival got is one of them.
#[test]
fn lost_slots_that_count_as_failures_exhaust_the_attempts() {
    for seed in 0..20 {
        let anew = run(&of(20), "proposal", seed);
        assert_eq!(anew.done, 20, "seed {seed}");
        let failed = run(&Params { lost_slot: LostSlot::Failed, ..of(20) }, "proposal", seed);
        assert!((2..=12).contains(&failed.done), "seed {seed}: {}", failed.done);
        assert_eq!(failed.most_ballots, 7, "seed {seed}");
    }
}

#[test]
fn no_id_is_favoured() {
    for name in ["council", "proposal"] {
        let row = row(of(20), name, 400);
        assert_eq!(row.ranks.iter().count(), 20);
        for rank in row.ranks.iter() {
            assert!((8.4..=12.6).contains(&rank.mean), "{name}: {rank:?}");
        }
    }
}

/// Every member has one final state, every slot one operation, and no operation two slots.
#[test]
fn the_outcome_counts_add_up() {
    let names =
        ["linear", "linear-stale", "proposal", "proposal-stale", "full", "none", "contention", "council"];
    let mut done_after_all = 0;
    for seed in 0..25 {
        for name in names {
            for (loss, kill) in [(0.0, 0.0), (0.1, 0.5), (0.3, 1.0)] {
                let params = Params { loss, kill, deadline: Micros::from_secs(5), ..of(12) };
                let outcome = run(&params, name, seed);
                let fates = outcome.done + outcome.gave_up + outcome.timed_out;
                assert_eq!(fates, outcome.living, "{name}, seed {seed}: {outcome:?}");
                assert_eq!(outcome.broken, 0, "{name}, seed {seed}");
                assert!(outcome.done <= outcome.slots, "{name}, seed {seed}: {outcome:?}");
                done_after_all += outcome.done_after_all;
                let faulted = (outcome.lost_messages > 0, outcome.killed > 0);
                assert!(loss > 0.0 || faulted == (false, false), "{name}, seed {seed}: {faulted:?}");
                assert!(kill < 1.0 || outcome.killed == 1, "{name}, seed {seed}");
            }
        }
    }
    assert!(done_after_all > 0, "no member learned of its success after it had given up");
}

#[test]
fn a_single_member_takes_one_ballot() {
    for seed in 0..20 {
        for name in ["linear-stale", "proposal", "council"] {
            let outcome = run(&of(1), name, seed);
            assert_eq!((outcome.done, outcome.ballots, outcome.calls), (1, 1, 6), "{name}, seed {seed}");
            assert_eq!((outcome.preempted, outcome.lost_slots), (0, 0), "{name}, seed {seed}");
            assert!((40_000..161_001).contains(&outcome.time_us), "{name}, seed {seed}");
        }
    }
}

#[test]
fn a_minority_of_acceptors_need_not_answer_in_time() {
    for acceptors in [1, 2, 5, 15] {
        let outcome = run(&Params { acceptors, loss: 0.1, ..of(6) }, "council", 7);
        assert_eq!(outcome.done, 6, "{acceptors} acceptors: {outcome:?}");
    }
}

#[test]
fn the_attempt_limit_is_exact() {
    for seed in 0..10 {
        let outcome = run(&Params { attempts: 3, lost_slot: LostSlot::Failed, ..of(20) }, "none", seed);
        assert_eq!(outcome.most_ballots, 3, "seed {seed}");
        assert!(outcome.gave_up > 0, "seed {seed}");
    }
}
