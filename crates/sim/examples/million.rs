//! Times the contention-aware `row` from a thousand clients to a million:
//! `cargo run --release -p holdoff-sim --example million`.
#![allow(clippy::disallowed_methods, clippy::cast_precision_loss, reason = "a measurement reads the clock")]

use holdoff_policy::{Contention, MAX_DELAY};
use holdoff_sim::Strategy;
use holdoff_sim::scenario::row;
use std::time::{Duration, Instant};

fn main() -> Result<(), holdoff_policy::InvalidPolicy> {
    let strategy = Strategy::contention(Contention { slot: Duration::from_millis(15), limit: MAX_DELAY })?;
    println!(
        "{:>9} {:>8} {:>10} {:>12} {:>9} {:>12}",
        "clients", "seconds", "events", "events/s", "writes/N", "bytes/client"
    );
    for clients in [1_000, 10_000, 100_000, 1_000_000] {
        let params = row::Params { clients, ..row::Params::default() };
        let started = Instant::now();
        let outcome = row::run(&params, &strategy, 1);
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "{clients:>9} {seconds:>8.3} {:>10} {:>12.0} {:>9.2} {:>12.1}",
            outcome.events,
            outcome.events as f64 / seconds,
            outcome.writes as f64 / f64::from(clients),
            outcome.peak_bytes as f64 / f64::from(clients),
        );
    }
    Ok(())
}
