//! Tests that every injected defect is detected.

use std::time::Duration;

use super::*;

/// More seeds than the detection of any defect takes.
const SEEDS: u64 = 1000;

fn assert_caught(mutant: Mutant, is_expected: impl Fn(&Broken) -> bool) {
    let caught = (0..SEEDS).find_map(|seed| Some((seed, run(seed, mutant).err().filter(&is_expected)?)));
    let (seed, broken) = caught.unwrap_or_else(|| panic!("{mutant:?} is not caught by {SEEDS} seeds"));
    println!("{mutant:?}: caught by seed {seed}: {broken}");
}

#[test]
fn a_release_without_owner_check_is_caught() {
    assert_caught(Mutant::ReleaseWithoutOwner, |broken| matches!(broken, Broken::TwoBelieve(..)));
}

#[test]
fn a_takeover_without_compare_is_caught() {
    assert_caught(Mutant::TakeoverWithoutCompare, |broken| matches!(broken, Broken::OneTokenForTwo(_)));
}

#[test]
fn a_token_reset_after_release_is_caught() {
    let falls = |broken: &Broken| matches!(broken, Broken::TokenFell { .. } | Broken::OneTokenForTwo(_));
    assert_caught(Mutant::TokenReset, falls);
}

#[test]
fn expiry_by_a_remote_wall_clock_is_caught() {
    assert_caught(Mutant::RemoteWallClock, |broken| matches!(broken, Broken::TwoBelieve(..)));
}

#[test]
fn validity_counted_from_the_answer_is_caught() {
    assert_caught(Mutant::ValidFromAnswer, |broken| matches!(broken, Broken::TwoBelieve(..)));
}

#[test]
fn a_found_grant_counted_from_the_last_bid_is_caught() {
    assert_caught(Mutant::ReadBackFromLatest, |broken| matches!(broken, Broken::TwoBelieve(..)));
}

/// Returns the most requests within a millisecond after a holder with forty waiters was killed. Contenders with
/// unlimited attempts are the worst case.
fn burst(seed: u64, mutant: Mutant) -> u32 {
    let plan = Plan {
        contenders: 40,
        acquisitions: 1,
        lease: Duration::from_secs(10),
        // Equal delays to the store: different delays would hide missing randomness.
        fastest_us: 500,
        slowest_us: 500,
        ..Plan::of(seed).without_faults()
    };
    World::new(plan, mutant).kill_holder_at(4_000_000).run().map_or(u32::MAX, |ran| ran.busiest)
}

#[test]
fn jitter_clamped_to_a_point_is_caught() {
    let bursts = |mutant| (0..20).map(|seed| burst(seed, mutant)).collect::<Vec<_>>();
    let (spread, herd) = (bursts(Mutant::None), bursts(Mutant::PointJitter));
    println!("busiest milliseconds: {spread:?}, without chance: {herd:?}");
    assert!(spread.iter().all(|burst| *burst <= 8), "{spread:?}");
    assert!(herd.iter().any(|burst| *burst > 20), "{herd:?}");
}
