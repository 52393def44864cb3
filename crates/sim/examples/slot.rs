//! Finds the best slot for contention-aware backoff:
//! `cargo run --release -p holdoff-sim --example slot -- PICTURE.svg`.
//!
//! Runs the experiment `row` with every slot and prints time and writes as shares of full jitter's, in percent, with
//! standard errors. If a file name is given, the example also draws the curves into that file.

use std::time::Duration;

use holdoff_policy::Contention;
use holdoff_sim::chart::{Axis, Chart, ChartMark, Point, Shape, Unit};
use holdoff_sim::scenario::{Scenario, row};
use holdoff_sim::{Plan, Strategy, Summary, run};

const SLOTS_MS: [u32; 19] = [2, 4, 6, 8, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 25, 30, 40, 50, 60];
const CLIENTS: [u32; 2] = [50, 100];
const RUNS: u32 = 2000;

/// The figures of one slot with one number of clients.
struct Figures {
    slot_ms: u32,
    time: Point,
    writes: Point,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let curves = CLIENTS.map(|clients| (clients, curve(clients)));
    for (clients, curve) in &curves {
        println!("\n{clients} clients: slot, time and writes in per cent of full jitter's");
        for Figures { slot_ms, time, writes } in curve {
            println!(
                "| {slot_ms} ms | {:.1} ± {:.2} | {:.1} ± {:.2} |",
                time.y, time.error, writes.y, writes.error
            );
        }
    }
    if let Some(file) = std::env::args().nth(1) {
        std::fs::write(file, chart(&curves).svg())?;
    }
    Ok(())
}

fn curve(clients: u32) -> Vec<Figures> {
    let contention =
        |slot_ms| Strategy::contention(Contention::new(Duration::from_millis(u64::from(slot_ms)))).ok();
    let strategies =
        Strategy::named("full").into_iter().chain(SLOTS_MS.into_iter().filter_map(contention)).collect();
    let scenario = Scenario::Row(row::Params::default());
    let plan = Plan { scenario, strategies, clients: vec![clients], runs: RUNS, seed: 1, threads: 2 };
    let mut rows = run(&plan, &|_, _| {}).into_iter();
    let Some(full) = rows.next() else { return Vec::new() };
    let figures = |(slot_ms, row): (u32, holdoff_sim::ResultRow)| Figures {
        slot_ms,
        time: share(slot_ms, row.time_ms, full.time_ms),
        writes: share(slot_ms, row.calls, full.calls),
    };
    SLOTS_MS.into_iter().zip(rows).map(figures).collect()
}

/// Returns one mean as a share of another, in percent, with the standard error of a quotient.
fn share(slot_ms: u32, own: Summary, full: Summary) -> Point {
    let y = 100.0 * own.mean / full.mean;
    Point { x: f64::from(slot_ms) * 1000.0, y, error: y * (own.se / own.mean).hypot(full.se / full.mean) }
}

fn chart(curves: &[(u32, Vec<Figures>)]) -> Chart {
    let marks = |(clients, curve): &(u32, Vec<Figures>)| {
        let times = curve.iter().map(|figures| figures.time).collect();
        let writes = curve.iter().map(|figures| figures.writes).collect();
        [
            ChartMark { name: format!("time, {clients} clients"), shape: Shape::Line(times) },
            ChartMark { name: format!("writes, {clients} clients"), shape: Shape::Line(writes) },
        ]
    };
    Chart {
        title: "Contention-aware backoff: which slot".to_owned(),
        x: Axis::linear("slot", Unit::Micros),
        y: Axis::linear("per cent of full jitter's", Unit::Count),
        marks: curves.iter().flat_map(marks).collect(),
    }
}
