//! Each known bug, planted, is caught.

use super::*;

/// How many seeds it takes at most.
const SEEDS: u64 = 300;

fn caught(mutant: Mutant) -> Vec<Broken> {
    (0..SEEDS).filter_map(|seed| run(seed, mutant).err()).collect()
}

fn assert_caught(mutant: Mutant, is_expected: impl Fn(&Broken) -> bool) {
    let broken = caught(mutant);
    println!("{mutant:?}: caught by {} of {SEEDS} seeds, first: {:?}", broken.len(), broken.first());
    assert!(broken.iter().any(is_expected), "{mutant:?}: {broken:?}");
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
