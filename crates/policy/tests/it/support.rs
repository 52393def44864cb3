//! Strategies for arbitrary policies, histories and failures.

use std::time::Duration;

use holdoff_policy::{
    Attempt, Beyond, Class, Contention, Failure, Growth, Jitter, MAX_DELAY, Policy, PolicyBuilder,
    RetryAfter, SoFar,
};
use proptest::prelude::*;

/// Generates mostly common times, sometimes very short or very long ones.
pub(crate) fn time() -> impl Strategy<Value = Duration> {
    let us = prop_oneof![
        4 => 1_000..120_000_000_u64,
        1 => 0..1_000_u64,
        1 => 120_000_000..=31_536_000_000_000_u64,
    ];
    us.prop_map(Duration::from_micros)
}

pub(crate) fn growth() -> impl Strategy<Value = Growth> {
    let exponent = proptest::option::of(0..40_u32);
    prop_oneof![
        3 => (time(), 1.0..10.0_f64, exponent)
            .prop_map(|(base, factor, max_exponent)| Growth::Exponential { base, factor, max_exponent }),
        1 => (time(), time()).prop_map(|(base, step)| Growth::Linear { base, step }),
        1 => time().prop_map(|base| Growth::Fibonacci { base }),
        1 => time().prop_map(|delay| Growth::Constant { delay }),
        1 => prop::collection::vec(time(), 1..12).prop_map(|delays| Growth::List { delays }),
    ]
}

pub(crate) fn jitter() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        Just(Jitter::Full),
        Just(Jitter::Equal),
        Just(Jitter::Decorrelated),
        (0.0..=1.0_f64).prop_map(Jitter::Proportional),
        (0.0..=3.0_f64, 0.0..=3.0_f64).prop_map(|(a, b)| Jitter::Scaled { low: a.min(b), high: a.max(b) }),
        (0.0..=5.0_f64).prop_map(Jitter::Additive),
    ]
}

pub(crate) fn retry_after() -> impl Strategy<Value = RetryAfter> {
    let beyond = prop_oneof![Just(Beyond::Wait), Just(Beyond::GiveUp), Just(Beyond::Clip)];
    (time(), time(), beyond).prop_map(|(spread, limit, beyond)| RetryAfter { spread, limit, beyond })
}

fn contention() -> impl Strategy<Value = Contention> {
    (time(), time()).prop_map(|(slot, limit)| Contention { slot, limit })
}

/// Generates a builder that may or may not build.
pub(crate) fn builder() -> impl Strategy<Value = PolicyBuilder> {
    let attempts = prop_oneof![3 => 1..20_u32, 1 => 0..=u32::MAX];
    let limits = (proptest::option::of(time()), attempts, proptest::option::of(time()));
    let rules = (retry_after(), proptest::option::of(contention()));
    (growth(), jitter(), limits, rules).prop_map(
        |(growth, jitter, (cap, attempts, deadline), (rule, contention))| {
            let mut builder = Policy::builder(growth).jitter(jitter).attempts(attempts).retry_after(rule);
            if let Some(cap) = cap {
                builder = builder.cap(cap);
            }
            if let Some(deadline) = deadline {
                builder = builder.deadline(deadline);
            }
            if let Some(contention) = contention {
                builder = builder.contention(contention);
            }
            builder
        },
    )
}

/// Generates any valid policy.
pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    builder().prop_filter_map("must validate", |builder| builder.build().ok())
}

/// Generates any valid policy, with unlimited attempts.
pub(crate) fn patient_policy() -> impl Strategy<Value = Policy> {
    policy().prop_filter_map("must validate", |policy| {
        policy.to_builder().attempts(Policy::UNLIMITED).build().ok()
    })
}

pub(crate) fn attempt() -> impl Strategy<Value = u32> {
    prop_oneof![3 => 1..40_u32, 1 => 0..=u32::MAX, 1 => Just(u32::MAX)]
}

pub(crate) fn so_far() -> impl Strategy<Value = SoFar> {
    let elapsed = prop_oneof![2 => Just(Duration::ZERO), 1 => time(), 1 => Just(Duration::MAX)];
    let last = prop_oneof![1 => Just(Duration::ZERO), 3 => time(), 1 => Just(Duration::MAX)];
    let deadline = proptest::option::of(time());
    (attempt(), elapsed, last, any::<bool>(), deadline).prop_map(
        |(attempt, elapsed, last_delay, refreshed, deadline)| SoFar {
            attempt: Attempt::new(attempt),
            elapsed,
            last_delay,
            refreshed,
            deadline,
        },
    )
}

pub(crate) fn failure() -> impl Strategy<Value = Failure> {
    let class = prop::sample::select(Class::ALL.to_vec());
    let wait = prop_oneof![4 => time(), 1 => Just(Duration::MAX), 1 => Just(MAX_DELAY)];
    let contenders = prop_oneof![2 => Just(0), 2 => 1..10_000_u32, 1 => Just(u32::MAX)];
    (class, proptest::option::of(wait), contenders).prop_map(|(class, wait, contenders)| {
        let failure = Failure::new(class).with_contenders(contenders);
        wait.map_or(failure, |wait| failure.with_retry_after(wait))
    })
}
