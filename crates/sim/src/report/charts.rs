//! The charts of a plan's rows.

mod done;
mod election;

use std::collections::BTreeMap;

use crate::chart::{Axis, Chart, Mark, Point, Shape, Unit};
use crate::{Bucket, Row};

/// The smallest share that is drawn; rarer delays are drawn with it.
const LEAST_PERCENT: f64 = 0.1;

/// The smallest number of calls per millisecond that is drawn; lower rates are drawn as zero.
const LEAST_PER_MS: f64 = 0.01;

/// The shortest delay with a bucket of its own. Shorter delays are added up, and drawn from half of it to it.
const SHORTEST_US: u64 = 1_000;

/// A chart and its file name.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedChart {
    /// The file name without its extension.
    pub name: String,
    /// The chart.
    pub chart: Chart,
}

/// Returns every chart that these rows can fill: time and calls against the number of clients; then, for the largest
/// number of clients, the calls over time, the distribution of delays and, if the scenario records it, the completions
/// over time. An election has other charts: each node's view of the leader, and the recovery times after faults.
pub fn charts(rows: &[Row]) -> Vec<NamedChart> {
    let Some(most) = rows.iter().map(|row| row.clients).max() else { return Vec::new() };
    let largest: Vec<&Row> = rows.iter().filter(|row| row.clients == most).collect();
    if largest.iter().all(|row| row.scenario == "election") {
        return election::charts(&largest, most);
    }
    let mut charts = Vec::new();
    if rows.iter().any(|row| row.clients != most) {
        let time = Axis::log("time until done", Unit::Micros);
        charts.push(against_clients("time", "Time until done", time, rows, |row| {
            (row.time_ms.mean * 1000.0, row.time_ms.se * 1000.0)
        }));
        let calls = Axis::log("calls", Unit::Count);
        charts.push(against_clients("calls", "Calls", calls, rows, |row| (row.calls.mean, row.calls.se)));
    }
    charts.push(calls_over_time(&largest, most));
    charts.push(delays(&largest, most));
    if largest.iter().any(|row| !row.ranks.is_empty()) {
        charts.push(done::over_time(&largest, most));
        charts.push(done::ranks(&largest, most));
    }
    charts
}

fn against_clients(
    name: &str,
    title: &str,
    y: Axis,
    rows: &[Row],
    figure: impl Fn(&Row) -> (f64, f64),
) -> NamedChart {
    let mut lines: BTreeMap<usize, Mark> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for row in rows {
        let place = order.iter().position(|known| *known == row.policy).unwrap_or_else(|| {
            order.push(&row.policy);
            order.len() - 1
        });
        let (mean, error) = figure(row);
        let point = Point { x: f64::from(row.clients), y: mean, error };
        let mark = lines
            .entry(place)
            .or_insert_with(|| Mark { name: row.policy.clone(), shape: Shape::Line(Vec::new()) });
        if let Shape::Line(points) = &mut mark.shape {
            points.push(point);
        }
    }
    let x = Axis::log("clients", Unit::Count);
    let chart = Chart {
        title: format!("{title} against the number of clients"),
        x,
        y,
        marks: lines.into_values().collect(),
    };
    NamedChart { name: format!("{name}-against-clients"), chart }
}

#[expect(clippy::cast_precision_loss, reason = "a picture is not that precise")]
fn calls_over_time(rows: &[&Row], clients: u32) -> NamedChart {
    let end_us = interesting_end_us(rows);
    let mark = |row: &&Row| {
        let (width, runs) = (row.calls_over_time.bucket_us() as f64, f64::from(row.runs.max(1)));
        let per_ms = 1000.0 / width / runs;
        let counts = row.calls_over_time.counts();
        let step = |(index, count): (usize, &u64)| {
            let rate = *count as f64 * per_ms;
            Point::new(index as f64 * width, if rate < LEAST_PER_MS { 0.0 } else { rate })
        };
        let steps = counts.iter().enumerate().map(step).take_while(|point| point.x < end_us);
        let mut points: Vec<Point> = steps.collect();
        points.push(Point::new((counts.len() as f64 * width).min(end_us), 0.0));
        Mark { name: row.policy.clone(), shape: Shape::Steps(points) }
    };
    let scenario = rows.first().map_or("", |row| row.scenario);
    let label = if scenario == "row" { "reads and writes per millisecond" } else { "calls per millisecond" };
    // All clients make their first calls at the same time; on a linear scale no later calls would be visible.
    let is_log = ["row", "duel"].contains(&scenario);
    let y = if is_log { Axis::log(label, Unit::Count) } else { Axis::linear(label, Unit::Count) };
    let marks = rows.iter().map(mark).collect();
    let chart = Chart {
        title: format!("Calls over time, {clients} clients"),
        x: Axis::linear("time", Unit::Micros),
        y,
        marks,
    };
    NamedChart { name: "calls-over-time".to_owned(), chart }
}

/// Returns the end of the time axis: three times the median of the strategies' p99 times. An outage is shown to its
/// end.
fn interesting_end_us(rows: &[&Row]) -> f64 {
    if rows.iter().any(|row| row.scenario == "outage") {
        return f64::MAX;
    }
    let mut ends: Vec<f64> = rows.iter().map(|row| row.time_ms.p99 * 1000.0).collect();
    ends.sort_by(f64::total_cmp);
    let median = ends.get(ends.len().saturating_sub(1) / 2).copied().unwrap_or(1.0);
    (median * 3.0).max(1.0)
}

#[expect(clippy::cast_precision_loss, reason = "a picture is not that precise")]
fn delays(rows: &[&Row], clients: u32) -> NamedChart {
    let mark = |row: &&Row| {
        let total = row.delays.total().max(1) as f64;
        let percent = |count: u64| (count as f64 * 100.0 / total).max(LEAST_PERCENT);
        let is_short = |bucket: &Bucket| bucket.from_us < SHORTEST_US;
        let short: u64 = row.delays.buckets().filter(is_short).map(|bucket| bucket.count).sum();
        let last_short = row.delays.buckets().filter(is_short).last();
        let (mut points, mut end_us) = (Vec::new(), last_short.map_or(SHORTEST_US, |bucket| bucket.to_us));
        if short > 0 {
            let start = SHORTEST_US as f64 / 2.0;
            points.extend([Point::new(start, 0.0), Point::new(start, percent(short))]);
        }
        for bucket in row.delays.buckets().filter(|bucket| !is_short(bucket)) {
            // The line drops to zero between two buckets, unless the second begins where the first ends.
            if bucket.from_us != end_us && !points.is_empty() {
                points.push(Point::new(end_us as f64, 0.0));
            }
            if points.is_empty() {
                points.push(Point::new(bucket.from_us as f64, 0.0));
            }
            points.push(Point::new(bucket.from_us as f64, percent(bucket.count)));
            end_us = bucket.to_us;
        }
        points.push(Point::new(end_us as f64, 0.0));
        Mark { name: row.policy.clone(), shape: Shape::Steps(points) }
    };
    let chart = Chart {
        title: format!("How long they waited between tries, {clients} clients"),
        x: Axis::log("delay", Unit::Micros),
        y: Axis::log("percent of all delays", Unit::Count).including(LEAST_PERCENT),
        marks: rows.iter().map(mark).collect(),
    };
    NamedChart { name: "delays".to_owned(), chart }
}
