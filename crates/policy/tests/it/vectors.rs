//! The test vectors, with which an implementation in any language can be checked.
//!
//! `vectors/v1.json` contains compiled policies and, for each, inputs with their results. The test computes
//! them twice: with the crate, and with the arithmetic of `docs/policy.md`, implemented here over the JSON
//! alone. `UPDATE_VECTORS=1` rewrites the file.

use std::path::PathBuf;
use std::time::Duration;

use holdoff_policy::{
    Attempt, Beyond, Compiled, Contention, Failure, Growth, Jitter, PRESETS, Policy, RetryAfter,
};
use serde_json::{Value, json};

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors/v1.json")
}

fn policies() -> Vec<(String, Policy)> {
    let ms = Duration::from_millis;
    let build = |builder: holdoff_policy::PolicyBuilder| builder.build().unwrap();
    let mut policies: Vec<_> =
        PRESETS.iter().map(|(name, _)| ((*name).to_owned(), Policy::preset(name).unwrap())).collect();
    let growth = Growth::exponential(ms(5), 2.0);
    let contention = Contention { slot: ms(15), limit: ms(60_000) };
    for (name, builder) in [
        ("no jitter", Policy::builder(growth.clone()).jitter(Jitter::None)),
        ("full jitter", Policy::builder(growth.clone()).jitter(Jitter::Full)),
        ("equal jitter", Policy::builder(growth.clone()).jitter(Jitter::Equal)),
        ("decorrelated jitter", Policy::builder(growth.clone()).jitter(Jitter::Decorrelated).cap(ms(2000))),
        ("contention", Policy::builder(growth).contention(contention)),
        (
            "linear",
            Policy::builder(Growth::linear(ms(10), ms(7))).jitter(Jitter::Proportional(0.3)).cap(ms(30_000)),
        ),
        ("fibonacci", Policy::builder(Growth::fibonacci(ms(10))).jitter(Jitter::Additive(0.123_456))),
        ("constant zero", Policy::builder(Growth::constant(Duration::ZERO))),
        ("a year", Policy::builder(Growth::constant(Duration::from_secs(365 * 86_400)))),
        ("odd factor", Policy::builder(Growth::exponential(Duration::from_micros(7), 1.37))),
        (
            "waits in full",
            Policy::builder(Growth::constant(ms(100))).retry_after(RetryAfter {
                spread: ms(333),
                limit: ms(10),
                beyond: Beyond::Wait,
            }),
        ),
    ] {
        policies.push((name.to_owned(), build(builder)));
    }
    policies
}

/// Returns inputs that reach every branch: `(attempt, last delay, roll, Retry-After, contenders)`.
fn inputs() -> Vec<(u32, u64, u32, Option<u64>, u32)> {
    let rolls = [0, 1, 0x7fff_ffff, 0x8000_0000, 0xdead_beef, u32::MAX];
    let mut inputs = Vec::new();
    for attempt in [1, 2, 3, 5, 8, 13, 100, u32::MAX] {
        inputs.extend(rolls.map(|roll| (attempt, 0, roll, None, 0)));
        inputs.push((attempt, 123_457, 0xcafe_f00d, None, 0));
        inputs.push((attempt, 31_536_000_000_000, 0xcafe_f00d, None, 0));
    }
    for wait in [0, 1, 250_000, 60_000_000, 60_000_001, 120_000_000, 86_400_000_001, 31_536_000_000_000] {
        inputs.extend([0, 0x1234_5678, u32::MAX].map(|roll| (2, 50_000, roll, Some(wait), 0)));
    }
    for contenders in [1, 10, 100, 4001, u32::MAX] {
        inputs.push((1, 0, 0x9e37_79b9, None, contenders));
        inputs.push((1, 0, 0x9e37_79b9, Some(500_000), contenders));
    }
    inputs
}

fn case(
    policy: &Compiled,
    (attempt, last_us, roll, wait, contenders): (u32, u64, u32, Option<u64>, u32),
) -> Value {
    let mut failure = Failure::transient().with_contenders(contenders);
    if let Some(us) = wait {
        failure = failure.with_retry_after(Duration::from_micros(us));
    }
    let last = Duration::from_micros(last_us);
    let window = policy.window_for(Attempt::new(attempt), last, &failure);
    json!({
        "attempt": attempt,
        "last_delay_us": last_us,
        "roll": roll,
        "retry_after_us": wait,
        "contenders": contenders,
        "low_us": window.map(|window| window.low_us()),
        "high_us": window.map(|window| window.high_us()),
        "delay_us": window.map(|window| window.pick(roll).as_micros()),
    })
}

fn vectors() -> String {
    let sets: Vec<_> = policies()
        .iter()
        .map(|(name, policy)| {
            let cases: Vec<_> = inputs().into_iter().map(|input| case(policy, input).to_string()).collect();
            let head = json!({ "name": name, "id": policy.id().to_string() });
            let head = head.to_string();
            let head = head.trim_end_matches('}');
            format!("{head},\"compiled\":{},\"cases\":[\n{}\n]}}", policy.canonical(), cases.join(",\n"))
        })
        .collect();
    format!("[\n{}\n]\n", sets.join(",\n"))
}

#[test]
fn the_file_is_up_to_date() {
    let fresh = vectors();
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(path(), &fresh).unwrap();
    }
    let stored = std::fs::read_to_string(path()).unwrap_or_default();
    assert!(
        stored == fresh,
        "vectors/v1.json is out of date: `cargo xtask schema` writes it anew, and a changed answer breaks every stored policy"
    );
}

/// The arithmetic of `docs/policy.md`, over the JSON alone.
mod by_the_book {
    use serde_json::Value;

    const MAX: u128 = 31_536_000_000_000;

    fn number(value: &Value) -> u128 {
        u128::from(value.as_u64().unwrap())
    }

    fn own_window(policy: &Value, attempt: u128, last: u128) -> (u128, u128) {
        let (shape, cap) = (&policy["shape"], number(&policy["cap_us"]));
        if let Some(decorrelated) = shape.get("decorrelated") {
            let base = number(&decorrelated["base_us"]);
            return (base, (3 * last.max(base)).min(cap));
        }
        let ceiling = if let Some(table) = shape.get("table") {
            let table = table.as_array().unwrap();
            let index = usize::try_from(attempt - 1).unwrap().min(table.len() - 1);
            number(&table[index])
        } else {
            let line = &shape["line"];
            (number(&line["first_us"]) + number(&line["step_us"]) * (attempt - 1))
                .min(number(&line["top_us"]))
        };
        let high = (ceiling * number(&policy["high_ppm"]) / 1_000_000).min(cap);
        ((ceiling * number(&policy["low_ppm"]) / 1_000_000).min(high), high)
    }

    pub(super) fn window(policy: &Value, case: &Value) -> Option<(u128, u128)> {
        let contenders = number(&case["contenders"]);
        let (mut low, mut high) =
            match policy.get("contention").filter(|rule| contenders > 0 && !rule.is_null()) {
                Some(rule) => (0, (contenders * number(&rule["slot_us"])).min(number(&rule["limit_us"]))),
                None => own_window(policy, number(&case["attempt"]), number(&case["last_delay_us"])),
            };
        if !case["retry_after_us"].is_null() {
            let (asked, rule) = (number(&case["retry_after_us"]).min(MAX), &policy["retry_after"]);
            let limit = number(&rule["limit_us"]);
            let floor = match rule["beyond"].as_str().unwrap() {
                "give_up" if asked > limit => return None,
                "clip" => asked.min(limit),
                _ => asked,
            };
            low = low.max(floor);
            high = high.max(floor + number(&rule["spread_us"]));
        }
        Some((low, high))
    }

    pub(super) fn delay((low, high): (u128, u128), roll: u128) -> u128 {
        low + ((((roll << 32) | roll) * (high - low + 1)) >> 64)
    }
}

#[test]
fn the_documented_arithmetic_gives_the_same_answers() {
    let sets: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path()).unwrap()).unwrap();
    let mut checked = 0;
    for set in &sets {
        for case in set["cases"].as_array().unwrap() {
            let window = by_the_book::window(&set["compiled"], case);
            let delay =
                window.map(|window| by_the_book::delay(window, u128::from(case["roll"].as_u64().unwrap())));
            let expect = |key: &str| case[key].as_u64().map(u128::from);
            assert_eq!(window, expect("low_us").zip(expect("high_us")), "{}: {case}", set["name"]);
            assert_eq!(delay, expect("delay_us"), "{}: {case}", set["name"]);
            checked += 1;
        }
    }
    assert!(checked > 1500, "only {checked} cases");
}
