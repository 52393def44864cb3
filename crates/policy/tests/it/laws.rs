//! The laws that hold for every policy.

use std::time::Duration;

use holdoff_policy::{
    Attempt, Beyond, Compiled, Decision, Failure, Growth, Jitter, MAX_DELAY, Policy, PolicySet, SoFar,
};
use proptest::prelude::*;

use crate::support::{attempt, failure, jitter, patient_policy, policy, so_far, time};

/// Returns the number of cases of a quick and of a deep run; `cargo xtask soak` sets `PROPTEST_CASES` for
/// more.
fn cases() -> ProptestConfig {
    let cases = u32::try_from(holdoff_testbed::scaled("PROPTEST_CASES", 512, 8192)).unwrap();
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Returns the delay for one roll, of a decision that is known to be a retry.
fn delay(policy: &Compiled, so_far: &SoFar, failure: &Failure, roll: u32) -> u128 {
    policy.decide(so_far, failure, roll).delay().unwrap().as_micros()
}

fn ceilings(policy: &Policy) -> Vec<Duration> {
    (1..200).map(|n| policy.window(Attempt::new(n), Duration::ZERO).high()).collect()
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn nothing_panics_and_no_own_delay_exceeds_the_cap(
        policy in policy(), so_far in so_far(), failure in failure(), roll in any::<u32>(),
    ) {
        if let Decision::Retry { after } = policy.decide(&so_far, &failure, roll) {
            let contention = policy.contention().filter(|_| failure.contenders().is_some()).map(|contention| contention.limit);
            let own = contention.unwrap_or_else(|| policy.cap());
            let asked = failure.retry_after().map(|wait| wait.min(MAX_DELAY) + policy.retry_after().spread);
            prop_assert!(after <= own.max(asked.unwrap_or_default()), "{after:?} of {policy:?}");
        }
    }

    #[test]
    fn the_cap_holds_at_every_attempt(
        policy in patient_policy(), attempt in attempt(), last in time(), roll in any::<u32>(),
    ) {
        let so_far = SoFar { last_delay: last, ..SoFar::after(attempt) };
        if let Decision::Retry { after } = policy.decide(&so_far, &Failure::transient(), roll) {
            prop_assert!(after <= policy.cap());
        }
    }

    #[test]
    fn ceilings_of_what_grows_never_shrink(
        base in time(), step in time(), factor in 1.0..5.0_f64, jitter in jitter(),
    ) {
        for growth in [Growth::exponential(base, factor), Growth::linear(base, step), Growth::fibonacci(base)] {
            if let Ok(policy) = Policy::builder(growth).jitter(jitter).cap(Duration::from_secs(600)).build() {
                prop_assert!(ceilings(&policy).is_sorted(), "{policy:?}");
            }
        }
    }

    #[test]
    fn the_smallest_and_the_largest_roll_reach_the_windows_ends(
        policy in patient_policy(), attempt in attempt(), last in time(), failure in failure(),
    ) {
        let attempt = Attempt::new(attempt.min(u32::MAX - 1));
        let policy = policy.to_builder().deadline(MAX_DELAY).build().unwrap();
        let so_far = SoFar { attempt, last_delay: last, refreshed: true, ..SoFar::default() };
        let retried = policy.decide(&so_far, &failure, 0).delay().is_some();
        if let Some(window) = policy.window_for(attempt, last, &failure).filter(|_| retried) {
            prop_assert_eq!(delay(&policy, &so_far, &failure, 0), u128::from(window.low_us()));
            let high = window.high_us().min(31_536_000_000_000 - 1);
            prop_assert_eq!(delay(&policy, &so_far, &failure, u32::MAX), u128::from(high));
        }
    }

    /// Delays grow with the roll, so the rolls that pick one value are adjacent, and a search for their ends
    /// counts them.
    #[test]
    fn no_value_gathers_more_rolls_than_its_share(
        policy in patient_policy(), so_far in so_far(), failure in failure(), roll in any::<u32>(),
    ) {
        let so_far = SoFar { attempt: Attempt::new(so_far.attempt.get().min(u32::MAX - 1)), ..so_far };
        let Some(picked) = policy.decide(&so_far, &failure, roll).delay() else { return Ok(()) };
        let at = |roll| delay(&policy, &so_far, &failure, roll);
        prop_assert!(at(roll / 2) <= at(roll) && at(roll) <= at(roll | 1), "a larger roll picks no smaller delay");
        let width = at(u32::MAX) - at(0);
        prop_assume!(width >= 1000);
        let first_at_least = |value: u128| {
            let (mut low, mut high) = (0_u64, 1 << 32);
            while low < high {
                let middle = u64::midpoint(low, high);
                if at(u32::try_from(middle).unwrap()) < value { low = middle + 1 } else { high = middle }
            }
            low
        };
        for value in [picked.as_micros(), at(0), at(u32::MAX)] {
            let rolls = u128::from(first_at_least(value + 1) - first_at_least(value));
            prop_assert!(rolls <= (1_u128 << 32).div_ceil(width) + 1, "{rolls} rolls for {value} of {width}");
        }
    }

    #[test]
    fn the_same_input_gives_the_same_delay(
        policy in policy(), so_far in so_far(), failure in failure(), roll in any::<u32>(),
    ) {
        let again = policy.to_builder().build().unwrap();
        let stored: Compiled = serde_json::from_str(&policy.canonical()).unwrap();
        let decision = policy.decide(&so_far, &failure, roll);
        prop_assert_eq!(decision, again.decide(&so_far, &failure, roll));
        prop_assert_eq!(decision, stored.decide(&so_far, &failure, roll));
        prop_assert_eq!(policy.id(), stored.id());
    }

    #[test]
    fn the_canonical_text_is_what_serde_writes(policy in policy()) {
        prop_assert_eq!(policy.canonical(), serde_json::to_string(policy.compiled()).unwrap());
    }

    #[test]
    fn a_policy_survives_its_toml(policy in policy(), name in "[a-z]{1,8}|[ -~]{1,12}|\\PC{1,6}") {
        let mut set = PolicySet::default();
        set.define(name.clone(), policy.clone());
        set.root_mut().default = Some(name.clone());
        let text = set.to_toml();
        let read = PolicySet::from_toml(&text);
        prop_assert!(read.is_ok(), "{}\n{text}", read.unwrap_err());
        let read = read.unwrap();
        prop_assert_eq!(&**read.policy(&name).unwrap(), &policy);
        prop_assert_eq!(read.id(), set.id());
    }

    #[test]
    fn retry_after_is_never_undercut_unless_clipped(
        policy in patient_policy(), so_far in so_far(), failure in failure(), wait in time(), roll in any::<u32>(),
    ) {
        let failure = failure.with_retry_after(wait);
        if let Decision::Retry { after } = policy.decide(&so_far, &failure, roll) {
            let clipped = policy.retry_after().beyond == Beyond::Clip;
            prop_assert!(after >= wait || clipped && after >= policy.retry_after().limit.min(wait));
        }
    }

    #[test]
    fn no_delay_goes_past_the_deadline(
        policy in policy(), so_far in so_far(), failure in failure(), roll in any::<u32>(), deadline in time(),
    ) {
        prop_assume!(!deadline.is_zero());
        let policy = policy.to_builder().deadline(deadline).build().unwrap();
        for roll in [roll, u32::MAX] {
            if let Decision::Retry { after } = policy.decide(&so_far, &failure, roll) {
                prop_assert!(so_far.elapsed + after < deadline);
            }
        }
    }

    #[test]
    fn explained_totals_contain_every_schedule(policy in policy(), seed in any::<u64>()) {
        let policy = policy.to_builder().deadline(MAX_DELAY).attempts(policy.attempts().min(30)).build().unwrap();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut total = 0;
        for (delay, wait) in policy.schedule(|| rng.u32(..)).zip(policy.explain().waits) {
            total += u64::try_from(delay.as_micros()).unwrap();
            prop_assert!((wait.total_low_us..=wait.total_high_us).contains(&total));
        }
    }
}

/// A sample that is clamped to the cap, as in the classic libraries, puts half of all clients on the cap; the
/// cut window does not.
#[test]
fn no_delay_equals_the_cap() {
    let policy = Policy::preset("conservative").unwrap().to_builder().attempts(9).build().unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    let delays =
        (0..100_000).map(|_| policy.decide(&SoFar::after(5), &Failure::transient(), rng.u32(..)).delay());
    let at_cap = delays.filter(|delay| *delay == Some(policy.cap())).count();
    assert!(at_cap <= 1, "{at_cap} of 100000 wait exactly the cap");
}

#[test]
fn windows_at_the_cap_keep_their_width() {
    for (jitter, low_ms) in [
        (Jitter::Proportional(0.1), 900),
        (Jitter::Scaled { low: 0.5, high: 1.5 }, 500),
        (Jitter::Additive(0.25), 800),
        (Jitter::Scaled { low: 1.0, high: 1.25 }, 800),
    ] {
        let growth = Growth::exponential(Duration::from_millis(100), 2.0);
        let policy = Policy::builder(growth).cap(Duration::from_secs(1)).jitter(jitter).build().unwrap();
        let window = policy.window(Attempt::new(9), Duration::ZERO);
        assert_eq!((window.low().as_millis(), window.high().as_millis()), (low_ms, 1000), "{jitter:?}");
    }
}
