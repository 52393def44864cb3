//! A hundred thousand mutated files: the reader never panics, and every accepted value is in range.
//!
//! The cases are seeded;
//! `HOLDOFF_SEED=… HOLDOFF_SEEDS=… cargo test -p holdoff-work --test it settings_fuzz` replays them, or
//! runs more.

use std::cell::Cell;
use std::time::Duration;

use holdoff_policy::{MAX_DELAY, PolicySet};
use holdoff_testbed::fuzz::{cases, mutate, run_seeds};
use holdoff_work::{DestinationLimits, Settings};

const CORPUS: &[&str] = &[
    include_str!("../corpus/full.toml"),
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

fn assert_destination_in_range(destination: &DestinationLimits) {
    let DestinationLimits { concurrency, rate, budget, breaker, .. } = destination;
    assert!((1..=100_000).contains(concurrency));
    assert!(rate.is_none_or(|rate| (0.001..=1_000_000.0).contains(&rate)));
    assert!((0.0..=1000.0).contains(&budget.ratio) && budget.burst <= 1_000_000);
    assert!((0.0..=1.0).contains(&breaker.failure_ratio) && breaker.min_calls > 0 && breaker.probes > 0);
    assert!(breaker.window > Duration::ZERO);
}

#[test]
fn settings_never_panic_on_any_input() {
    let read = Cell::new(0_u64);
    let cases = cases(100_000);
    run_seeds("cargo test -p holdoff-work --test it settings_fuzz", cases, |rng| {
        let text = CORPUS[rng.usize(0..CORPUS.len())];
        match Settings::from_toml(&mutate(rng, text, WORDS)) {
            Ok(settings) => {
                read.set(read.get() + 1);
                assert_in_range(&settings);
                let _ = settings.check_policies(&PolicySet::default());
            }
            Err(problems) => assert!(!problems.to_string().is_empty()),
        }
    });
    // Both outcomes must be common; otherwise the mutations test too little.
    let percent = read.get() * 100 / cases;
    assert!((2..98).contains(&percent) || cases < 1000, "{percent} % of the inputs were valid");
}
