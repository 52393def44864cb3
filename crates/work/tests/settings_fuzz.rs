//! A hundred thousand bad files: no panic, and whatever is accepted is in range.
//!
//! Seeded; `HOLDOFF_FUZZ_SEED=… HOLDOFF_FUZZ_CASES=… cargo test -p holdoff-work --test settings_fuzz` replays or
//! goes further.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use fastrand::Rng;
use holdoff_policy::{MAX_DELAY, PolicySet};
use holdoff_work::{Destination, Settings};

const CORPUS: &[&str] = &[
    include_str!("corpus/full.toml"),
    "[work]\nlease = \"1m\"\nmax_payload = \"1MiB\"\nrequeue = { busy = \"5s\" }\n",
    "[[work.notify]]\nurl = \"https://example.com\"\n[work.history]\nkeep = \"0s\"\n",
    "[http.destinations.\"[::1]:80\"]\nrate = 0.5\nbudget = { ratio = 1, burst = 0 }\n",
    "[credentials]\na = { kind = \"token\", token = { env = \"A\" } }\n",
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
    "\"0s\"",
    "99999999999999999999",
    "0x7fffffffffffffff",
    "\"9999999999999999999s\"",
    "\"17MiB\"",
    "\"1MB\"",
    "1",
    "9",
    "\"99999999999GiB\"",
    "\u{feff}",
    "\u{0}",
    "日本",
    "\\u0000",
    "\"\"\"",
    "1979-05-27",
    "true",
    "[[work]]",
    "[work]",
    "[http]",
    "[credentials.x]",
    "[http.destinations.a.b.c]",
    "kind = \"refresh\"",
    "secret",
    "token",
    "rate = 1",
    "poll = \"1ms\"",
    "@",
    ":",
    "url = \"http://\"",
    "env",
    "file",
];

fn cases() -> u64 {
    std::env::var("HOLDOFF_FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100_000)
}

/// Cuts, doubles and sprinkles.
fn mutate(rng: &mut Rng, text: &str) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(0..=characters.len());
        match rng.u8(0..5) {
            0 => characters.truncate(at),
            1 => characters.splice(at..at, WORDS[rng.usize(0..WORDS.len())].chars()).for_each(drop),
            2 => characters.insert(at, char::from(rng.u8(..))),
            3 => {
                let end = (at + rng.usize(0..20)).min(characters.len());
                characters.drain(at..end);
            }
            _ => {
                let end = (at + rng.usize(0..40)).min(characters.len());
                let copy: Vec<_> = characters[at..end].to_vec();
                characters.splice(at..at, copy).for_each(drop);
            }
        }
    }
    characters.into_iter().collect()
}

fn assert_in_range(settings: &Settings) {
    let ms = Duration::from_millis;
    let day = ms(86_400_000);
    let size = 1..=16 * 1024 * 1024;
    assert!((ms(1000)..=day).contains(&settings.lease));
    assert!((ms(10)..=ms(3_600_000)).contains(&settings.poll));
    assert!((ms(1000)..=MAX_DELAY).contains(&settings.stale_after));
    assert!(size.contains(&settings.max_payload) && size.contains(&settings.max_output));
    assert!((1..=1_000_000).contains(&settings.max_steps) && settings.max_depth > 0);
    let requeue = settings.requeue;
    let requeue = requeue.shutdown.max(requeue.rescue).max(requeue.busy);
    assert!(requeue <= settings.stale_after || requeue <= ms(1000));
    let http = &settings.http;
    assert!((ms(1)..=day).contains(&http.timeout) && size.contains(&http.max_response));
    assert!(http.max_redirects <= 20);
    http.destinations.values().chain([&http.destination]).for_each(assert_destination_in_range);
    for notify in &settings.notify {
        assert!(notify.url.to_lowercase().trim_start().starts_with("http"), "{}", notify.url);
        assert!(notify.credential.as_ref().is_none_or(|name| http.credentials.contains_key(name)));
    }
}

fn assert_destination_in_range(destination: &Destination) {
    let Destination { concurrency, rate, budget, breaker, .. } = destination;
    assert!((1..=100_000).contains(concurrency));
    assert!(rate.is_none_or(|rate| (0.001..=1_000_000.0).contains(&rate)));
    assert!((0.0..=1000.0).contains(&budget.ratio) && budget.burst <= 1_000_000);
    assert!((0.0..=1.0).contains(&breaker.failure_ratio) && breaker.min_calls > 0 && breaker.probes > 0);
    assert!(breaker.window > Duration::ZERO);
}

#[test]
fn the_settings() {
    let start = std::env::var("HOLDOFF_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0_u64);
    let read = Cell::new(0_u64);
    let target = |seed: u64| {
        let mut rng = Rng::with_seed(seed);
        let text = CORPUS[rng.usize(0..CORPUS.len())];
        let text = mutate(&mut rng, text);
        match Settings::from_toml(&text) {
            Ok(settings) => {
                read.set(read.get() + 1);
                assert_in_range(&settings);
                let _ = settings.check_policies(&PolicySet::default());
            }
            Err(problems) => assert!(!problems.to_string().is_empty()),
        }
    };
    for seed in start..start + cases() {
        let survived = catch_unwind(AssertUnwindSafe(|| target(seed))).is_ok();
        assert!(
            survived,
            "replay with HOLDOFF_FUZZ_SEED={seed} HOLDOFF_FUZZ_CASES=1 cargo test -p holdoff-work --test settings_fuzz"
        );
    }
    // Both outcomes must be common, or the mutations miss the point.
    let percent = read.get() * 100 / cases();
    assert!((2..98).contains(&percent) || cases() < 1000, "{percent} % of the inputs were valid");
}
