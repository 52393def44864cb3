//! The speed of the lab: contention-aware `row`, from a thousand clients to a million.
//!
//! There is no peer to compare with, so every figure is compared with that of a thousand clients: a cost that
//! grows faster than the number of clients appears as a ratio.

use std::hint::black_box;
use std::time::Duration;

use holdoff_policy::{Contention, MAX_DELAY};
use holdoff_sim::Strategy;
use holdoff_sim::scenario::row::{self, Outcome, Params};

use crate::measure::cpu_time;
use crate::row::Row;

/// The numbers of clients, their names, and their numbers of rounds.
const CLIENTS: [(u32, &str, usize); 4] =
    [(1_000, "10³", 200), (10_000, "10⁴", 40), (100_000, "10⁵", 8), (1_000_000, "10⁶", 3)];
/// The best slot for hops of 10 ms; see docs/contention.md.
const SLOT: Duration = Duration::from_millis(15);
const MILLION: u32 = 1_000_000;

/// The figures for one number of clients.
struct Figures {
    clients: u32,
    name: &'static str,
    seconds: f64,
    million_events_per_sec: f64,
    bytes_per_client: f64,
}

pub(crate) fn rows() -> Vec<Row> {
    // The limit must not bind, or a million clients would share the window of a few thousand.
    let Ok(strategy) = Strategy::contention(Contention { slot: SLOT, limit: MAX_DELAY }) else {
        return Vec::new();
    };
    let all = CLIENTS.map(|(clients, name, rounds)| measured(&strategy, clients, name, rounds));
    let Some(thousand) = all.first() else { return Vec::new() };
    let rows = |what: &str, unit, bar: &str, value: fn(&Figures) -> f64, holds: fn(f64) -> bool| {
        let row = |figures: &Figures| {
            let (ours, first) = (value(figures), value(thousand));
            let name = format!("row, {} clients, {what}", figures.name);
            let row = Row::grown(&name, unit, ours, ("10³ clients", first));
            if figures.clients == MILLION { row.bar(bar, holds(ours)) } else { row }
        };
        all.iter().map(row).collect::<Vec<_>>()
    };
    [
        rows("time", "s", "≤ 15 s", |figures| figures.seconds, |seconds| seconds <= 15.0),
        rows("events", "M/s", "≥ 3 M/s", |figures| figures.million_events_per_sec, |rate| rate >= 3.0),
        rows("memory", "B each", "≤ 150 B", |figures| figures.bytes_per_client, |bytes| bytes <= 150.0),
    ]
    .concat()
}

fn measured(strategy: &Strategy, clients: u32, name: &'static str, rounds: usize) -> Figures {
    let params = Params { clients, ..Params::default() };
    let (mut best, mut events, mut peak_bytes) = (Duration::MAX, 0, 0);
    for _ in 0..rounds {
        let start = cpu_time();
        let outcome: Outcome = black_box(row::run(black_box(&params), strategy, 1));
        best = best.min(cpu_time().saturating_sub(start));
        (events, peak_bytes) = (outcome.events, outcome.peak_bytes);
    }
    let seconds = best.as_secs_f64();
    Figures {
        clients,
        name,
        seconds,
        million_events_per_sec: number(events) / seconds / 1e6,
        bytes_per_client: number(peak_bytes as u64) / f64::from(clients),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a simulation stay far below 2^52")]
fn number(count: u64) -> f64 {
    count as f64
}
