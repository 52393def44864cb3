//! A million invalid inputs each for the file, the `Retry-After` parser and the builder: none of them panics.
//!
//! The inputs are seeded. To replay them or to run more:
//! `HOLDOFF_SEED=… HOLDOFF_SEEDS=… cargo test -p holdoff-policy --test it fuzz`.

use std::time::{Duration, SystemTime};

use fastrand::Rng;
use holdoff_policy::{
    Attempt, Beyond, Class, Contention, Failure, Growth, Jitter, MAX_DELAY, Policy, PolicySet, RetryAfter,
    SoFar, lint, retry_after_from_headers,
};
use holdoff_testbed::fuzz::{self, mutate};

const CORPUS: &[&str] = &[
    include_str!("../corpus/full.toml"),
    "[policies.a]\nextends = \"b\"\n[policies.b]\nextends = \"a\"\n",
    "default = \"standard\"\n[operations]\n\"user.*\" = { policy = \"step\", timeout = \"1m\" }\n",
    "[policies.\"ü\"]\nbase = \"1.5s\"\njitter = { scaled = [0.5, 1.5] }\nretry_after = { beyond = \"clip\" }\n",
    "[classes.http]\n404 = \"transient\"\n[namespaces.eu]\ndefault = \"lock\"\n",
];

const WORDS: &[&str] = &[
    "\"",
    "'",
    "=",
    "[",
    "]",
    "{",
    "}",
    "\n",
    ".",
    ",",
    "#",
    "-1",
    "0",
    "1e308",
    "nan",
    "inf",
    "99999999999999999999",
    "0x7fffffffffffffff",
    "\"1ns\"",
    "\"1y\"",
    "\"9999999999999999999s\"",
    "\"0s\"",
    "unlimited",
    "extends",
    "growth",
    "list",
    "delays",
    "factor",
    "max_exponent = 4294967295",
    "\u{feff}",
    "\u{0}",
    "日本",
    "\\u0000",
    "\"\"\"",
    "1979-05-27",
    "[[policies]]",
    "[policies.x]",
    "jitter",
    "scaled = [2, 1]",
    "proportional = 7",
    "attempts = 0",
];

const REPLAY: &str = "cargo test -p holdoff-policy --test it fuzz";

fn cases() -> u64 {
    fuzz::cases(1_000_000)
}

fn run_seeds(target: impl Fn(&mut Rng)) {
    fuzz::run_seeds(REPLAY, cases(), target);
}

#[test]
fn the_policy_file() {
    let read = std::cell::Cell::new(0_u64);
    run_seeds(|rng| {
        let seed = CORPUS[rng.usize(0..CORPUS.len())];
        let text = mutate(rng, seed, WORDS);
        match PolicySet::from_toml(&text) {
            Ok(set) => {
                read.set(read.get() + 1);
                if rng.u8(..) == 0 {
                    assert_eq!(PolicySet::from_toml(&set.to_toml()).unwrap().id(), set.id());
                    drop(lint(&set));
                }
            }
            Err(problems) => assert!(!problems.to_string().is_empty()),
        }
    });
    // Both outcomes must be common, or the mutations test only one path.
    let percent = read.get() * 100 / cases();
    assert!((2..98).contains(&percent) || cases() < 1000, "{percent} % of the inputs were valid");
}

#[test]
fn the_retry_after_parser() {
    let seeds = [
        "120",
        "1.5",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
    ];
    run_seeds(|rng| {
        let seed = seeds[rng.usize(0..seeds.len())];
        let (value, date) = (mutate(rng, seed, WORDS), mutate(rng, seeds[2], WORDS));
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(rng.u64(0..1 << 40));
        if let Some(wait) = retry_after_from_headers(&value, Some(&date), now) {
            assert!(wait <= MAX_DELAY);
        }
    });
}

#[test]
fn the_policy_builder() {
    fn time(rng: &mut Rng) -> Duration {
        match rng.u8(0..4) {
            0 => Duration::from_nanos(rng.u64(..)),
            1 => Duration::from_secs(rng.u64(..)),
            2 => Duration::from_micros(rng.u64(0..1 << 30)),
            _ => Duration::from_millis(rng.u64(0..100)),
        }
    }
    fn number(rng: &mut Rng) -> f64 {
        if rng.bool() { f64::from_bits(rng.u64(..)) } else { rng.f64() * 3.0 }
    }
    run_seeds(|rng| {
        let growth = match rng.u8(0..5) {
            0 => {
                Growth::Exponential { base: time(rng), factor: number(rng), max_exponent: Some(rng.u32(..)) }
            }
            1 => Growth::linear(time(rng), time(rng)),
            2 => Growth::fibonacci(time(rng)),
            3 => Growth::constant(time(rng)),
            _ => Growth::list((0..rng.usize(0..5)).map(|_| time(rng)).collect::<Vec<_>>()),
        };
        let jitter = match rng.u8(0..5) {
            0 => Jitter::Proportional(number(rng)),
            1 => Jitter::Scaled { low: number(rng), high: number(rng) },
            2 => Jitter::Additive(number(rng)),
            3 => Jitter::Decorrelated,
            _ => Jitter::Equal,
        };
        let beyond = Beyond::ALL[rng.usize(0..3)];
        let rule = RetryAfter { spread: time(rng), limit: time(rng), beyond };
        let mut builder = Policy::builder(growth).jitter(jitter).attempts(rng.u32(0..5)).retry_after(rule);
        if rng.bool() {
            builder = builder.cap(time(rng)).contention(Contention { slot: time(rng), limit: time(rng) });
        }
        let Ok(policy) = builder.build() else { return };
        let so_far = SoFar {
            attempt: Attempt::new(rng.u32(..)),
            elapsed: time(rng),
            last_delay: time(rng),
            refreshed: rng.bool(),
            deadline: rng.bool().then(|| time(rng)),
        };
        let failure = Failure::new(Class::ALL[rng.usize(0..8)])
            .with_retry_after(time(rng))
            .with_contenders(rng.u32(..));
        let _ = policy.decide(&so_far, &failure, rng.u32(..));
    });
}
