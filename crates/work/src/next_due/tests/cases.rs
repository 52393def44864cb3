//! Generates policies of every kind, and cases for them.

use std::time::Duration;

use fastrand::Rng;
use holdoff_policy::{Beyond, Compiled, DelayShape, Failure, Growth, Jitter, Policy, RetryAfter, SoFar};
use serde_json::{Value, json};

/// The number of cases that a seed generates.
pub(super) const CASES_PER_ROUND: u64 = POLICIES * CASES_PER_POLICY;
const POLICIES: u64 = 40;
const CASES_PER_POLICY: u64 = 100;

/// 365 days.
const LONGEST_US: u64 = 31_536_000_000_000;

/// The policies that a seed generates, and cases for each.
pub(super) struct Round {
    seed: u64,
    pub(super) policies: Vec<Compiled>,
    pub(super) cases: Vec<Case>,
}

/// The inputs of a decision; `policy` is an index into the round's policies.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) policy: i32,
    pub(super) attempt: i32,
    pub(super) last_delay_us: i64,
    pub(super) roll: u32,
    pub(super) retry_after_us: Option<i64>,
}

impl Round {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let policies: Vec<Compiled> = (0..POLICIES).map(|number| policy(&mut rng, number)).collect();
        let numbered = policies.iter().zip(0..);
        let cases = numbered
            .flat_map(|(policy, number)| (0..CASES_PER_POLICY).map(move |_| (policy, number)))
            .map(|(policy, number)| Case::new(&mut rng, policy, number))
            .collect();
        Self { seed, policies, cases }
    }

    /// Returns the command that replays this round, for failure messages.
    pub(super) fn replay(&self) -> String {
        holdoff_testbed::Seeds::replay(self.seed, "cargo test -p holdoff-work next_due")
    }

    /// Returns the cases as an array of arrays.
    pub(super) fn as_json(&self) -> String {
        let row = |case: &Case| {
            json!([case.policy, case.attempt, case.last_delay_us, case.roll, case.retry_after_us])
        };
        self.cases.iter().map(row).collect::<Value>().to_string()
    }
}

impl Case {
    fn new(rng: &mut Rng, compiled: &Compiled, policy: i32) -> Self {
        Self {
            policy,
            attempt: attempt(rng, compiled),
            last_delay_us: last_delay(rng, compiled),
            roll: roll(rng),
            retry_after_us: retry_after(rng, compiled),
        }
    }

    /// Returns the decision of the Rust implementation.
    pub(super) fn expected(&self, policy: &Compiled) -> Option<i64> {
        let micros = |us: i64| Duration::from_micros(u64::try_from(us).unwrap());
        let so_far = SoFar {
            last_delay: micros(self.last_delay_us),
            ..SoFar::after(u32::try_from(self.attempt).unwrap())
        };
        let failure = self
            .retry_after_us
            .map_or(Failure::transient(), |us| Failure::transient().with_retry_after(micros(us)));
        let delay = policy.decide(&so_far, &failure, self.roll).delay()?;
        Some(i64::try_from(delay.as_micros()).unwrap())
    }
}

/// Returns mostly realistic times, and sometimes very short or very long ones.
fn time_us(rng: &mut Rng) -> u64 {
    match rng.u8(0..8) {
        0 => rng.u64(0..1_000),
        1 => rng.u64(0..=LONGEST_US),
        2 => LONGEST_US - rng.u64(0..3),
        _ => rng.u64(1_000..120_000_000),
    }
}

fn time(rng: &mut Rng) -> Duration {
    Duration::from_micros(time_us(rng))
}

/// Returns a policy. Every growth is combined with every jitter. Every fourth policy is a compiled form that cannot be
/// declared, but that a store can hold.
fn policy(rng: &mut Rng, number: u64) -> Compiled {
    loop {
        let compiled = if number % 4 == 3 { stored(rng) } else { declared(rng) };
        if let Some(compiled) = compiled {
            return compiled;
        }
    }
}

fn attempts(rng: &mut Rng) -> u32 {
    match rng.u8(0..4) {
        0 => rng.u32(1..20),
        1 => rng.u32(1..),
        _ => Policy::UNLIMITED,
    }
}

fn declared(rng: &mut Rng) -> Option<Compiled> {
    let growth = match rng.u8(0..5) {
        0 => Growth::Exponential {
            base: time(rng),
            factor: 1.0 + rng.f64() * 9.0,
            max_exponent: rng.bool().then(|| rng.u32(0..40)),
        },
        1 => Growth::linear(time(rng), time(rng)),
        2 => Growth::fibonacci(time(rng)),
        3 => Growth::constant(time(rng)),
        _ => Growth::list((0..rng.usize(1..12)).map(|_| time(rng)).collect::<Vec<_>>()),
    };
    let (one, other) = (rng.f64() * 3.0, rng.f64() * 3.0);
    let jitter = match rng.u8(0..8) {
        0 => Jitter::None,
        1 => Jitter::Full,
        2 => Jitter::Equal,
        3 => Jitter::Decorrelated,
        4 => Jitter::Proportional(rng.f64()),
        5 => Jitter::Scaled { low: one.min(other), high: one.max(other) },
        6 => Jitter::Scaled { low: one, high: Jitter::MAX_SHARE },
        _ => Jitter::Additive(rng.f64() * 5.0),
    };
    let rule = RetryAfter { spread: time(rng), limit: time(rng), beyond: Beyond::ALL[rng.usize(0..3)] };
    let mut builder = Policy::builder(growth).jitter(jitter).attempts(attempts(rng)).retry_after(rule);
    if rng.bool() {
        builder = builder.cap(time(rng));
    }
    builder.build().ok().map(|policy| policy.compiled().clone())
}

/// Returns a compiled form with arbitrary shares. A line may be constant, and a table may be long or decreasing.
fn stored(rng: &mut Rng) -> Option<Compiled> {
    let cap = time_us(rng);
    let below = |rng: &mut Rng, most: u64| if rng.bool() { most } else { rng.u64(0..=most) };
    let shape = match rng.u8(0..3) {
        0 => {
            let length = if rng.u8(0..8) == 0 { 1024 } else { rng.usize(1..40) };
            json!({ "table": (0..length).map(|_| below(rng, cap)).collect::<Vec<_>>() })
        }
        1 => {
            let top = below(rng, cap);
            let step = if rng.u8(0..4) == 0 { rng.u64(0..3) } else { time_us(rng) };
            json!({ "line": { "first_us": rng.u64(0..=top), "step_us": step, "top_us": top } })
        }
        _ => json!({ "decorrelated": { "base_us": below(rng, cap) } }),
    };
    let (one, other) = (rng.u32(..), if rng.bool() { rng.u32(..) } else { rng.u32(0..2_000_000) });
    let form = json!({
        "version": 1,
        "attempts": attempts(rng),
        "deadline_us": null,
        "cap_us": cap,
        "low_ppm": one.min(other),
        "high_ppm": one.max(other),
        "shape": shape,
        "retry_after": {
            "spread_us": time_us(rng),
            "limit_us": time_us(rng),
            "beyond": Beyond::ALL[rng.usize(0..3)].name(),
        },
        "contention": null,
    });
    serde_json::from_value(form).ok()
}

/// Returns an attempt near the points where the policy's answer changes: its last attempt, the end of its table, the
/// top of its line.
fn attempt(rng: &mut Rng, policy: &Compiled) -> i32 {
    let bend = match policy.shape() {
        DelayShape::Table(ceilings) => ceilings.len() as u64,
        DelayShape::Line { first_us, step_us, top_us } => (top_us - first_us) / (*step_us).max(1) + 1,
        _ => 1,
    };
    let number = match rng.u8(0..8) {
        0 => 0,
        1 => rng.u64(0..=i32::MAX as u64),
        2 => i32::MAX as u64 - rng.u64(0..3),
        3 => (u64::from(policy.attempts()) + 1).saturating_sub(rng.u64(0..4)),
        4 | 5 => (bend + 2).saturating_sub(rng.u64(0..5)),
        _ => rng.u64(0..40),
    };
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn last_delay(rng: &mut Rng, policy: &Compiled) -> i64 {
    let third = u64::try_from(policy.cap().as_micros()).unwrap() / 3;
    match rng.u8(0..6) {
        0 => 0,
        1 => rng.i64(0..),
        2 => i64::MAX,
        3 => i64::try_from(third + rng.u64(0..2)).unwrap(),
        _ => i64::try_from(time_us(rng)).unwrap(),
    }
}

fn roll(rng: &mut Rng) -> u32 {
    match rng.u8(0..8) {
        0 => 0,
        1 => u32::MAX,
        2 => rng.u32(0..3),
        3 => u32::MAX - rng.u32(0..3),
        4 => 1 << rng.u32(0..32),
        _ => rng.u32(..),
    }
}

fn retry_after(rng: &mut Rng, policy: &Compiled) -> Option<i64> {
    let form = serde_json::to_value(policy).unwrap();
    let limit = form["retry_after"]["limit_us"].as_i64().unwrap();
    match rng.u8(0..10) {
        0 => Some(0),
        1 => Some(rng.i64(0..3)),
        2 | 3 => Some((limit + rng.i64(-1..=1)).max(0)),
        4 => Some(rng.i64(0..)),
        5 => Some(i64::try_from(LONGEST_US).unwrap() + rng.i64(-1..=1)),
        6 => Some(i64::try_from(time_us(rng)).unwrap()),
        _ => None,
    }
}
