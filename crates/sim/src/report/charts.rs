//! The charts of a plan's rows.

use std::collections::BTreeMap;

use crate::chart::{Axis, Chart, ChartMark, Point, Shape, Unit};
use crate::scenario::election::LeaderView;
use crate::{HistogramBucket, ResultRow};

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
pub fn charts(rows: &[ResultRow]) -> Vec<NamedChart> {
    let Some(most) = rows.iter().map(|row| row.clients).max() else { return Vec::new() };
    let largest: Vec<&ResultRow> = rows.iter().filter(|row| row.clients == most).collect();
    if largest.iter().all(|row| row.scenario == "election") {
        return election_charts(&largest, most);
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
        charts.push(done_over_time(&largest, most));
        charts.push(mean_ranks(&largest, most));
    }
    charts
}

fn against_clients(
    name: &str,
    title: &str,
    y: Axis,
    rows: &[ResultRow],
    figure: impl Fn(&ResultRow) -> (f64, f64),
) -> NamedChart {
    let mut lines: BTreeMap<usize, ChartMark> = BTreeMap::new();
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
            .or_insert_with(|| ChartMark { name: row.policy.clone(), shape: Shape::Line(Vec::new()) });
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
fn calls_over_time(rows: &[&ResultRow], clients: u32) -> NamedChart {
    let end_us = interesting_end_us(rows);
    let mark = |row: &&ResultRow| {
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
        ChartMark { name: row.policy.clone(), shape: Shape::Steps(points) }
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
fn interesting_end_us(rows: &[&ResultRow]) -> f64 {
    if rows.iter().any(|row| row.scenario == "outage") {
        return f64::MAX;
    }
    let mut ends: Vec<f64> = rows.iter().map(|row| row.time_ms.p99 * 1000.0).collect();
    ends.sort_by(f64::total_cmp);
    let median = ends.get(ends.len().saturating_sub(1) / 2).copied().unwrap_or(1.0);
    (median * 3.0).max(1.0)
}

#[expect(clippy::cast_precision_loss, reason = "a picture is not that precise")]
fn delays(rows: &[&ResultRow], clients: u32) -> NamedChart {
    let mark = |row: &&ResultRow| {
        let total = row.delays.total().max(1) as f64;
        let percent = |count: u64| (count as f64 * 100.0 / total).max(LEAST_PERCENT);
        let is_short = |bucket: &HistogramBucket| bucket.from_us < SHORTEST_US;
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
        ChartMark { name: row.policy.clone(), shape: Shape::Steps(points) }
    };
    let chart = Chart {
        title: format!("How long they waited between attempts, {clients} clients"),
        x: Axis::log("delay", Unit::Micros),
        y: Axis::log("percent of all delays", Unit::Count).including(LEAST_PERCENT),
        marks: rows.iter().map(mark).collect(),
    };
    NamedChart { name: "delays".to_owned(), chart }
}

/// Charts the number of completed clients over time, as the mean of all runs.
#[expect(clippy::cast_precision_loss, reason = "a picture is not that precise")]
fn done_over_time(rows: &[&ResultRow], clients: u32) -> NamedChart {
    let end_us = rows.iter().map(|row| row.time_ms.p99 * 1000.0).fold(1.0, f64::max);
    let mark = |row: &&ResultRow| {
        let (width, runs) = (row.done_over_time.bucket_us() as f64, f64::from(row.runs.max(1)));
        let mut done = 0;
        let mut points = vec![Point::new(0.0, 0.0)];
        for (index, count) in (1..).zip(row.done_over_time.counts()) {
            done += count;
            points.push(Point::new(f64::from(index) * width, done as f64 / runs));
        }
        points.retain(|point| point.x < end_us);
        points.push(Point::new(end_us, done as f64 / runs));
        ChartMark { name: row.policy.clone(), shape: Shape::Steps(points) }
    };
    let chart = Chart {
        title: format!("Who was done by when, {clients} clients"),
        x: Axis::linear("time", Unit::Micros),
        y: Axis::linear("done", Unit::Count).including(f64::from(clients)),
        marks: rows.iter().map(mark).collect(),
    };
    NamedChart { name: "done-over-time".to_owned(), chart }
}

/// Charts the mean finishing rank of each id. It is meaningful only if all clients completed, so only such rows are
/// drawn. If there is none, all rows are drawn.
#[expect(clippy::cast_precision_loss, reason = "a picture is not that precise")]
fn mean_ranks(rows: &[&ResultRow], clients: u32) -> NamedChart {
    let is_any_served = rows.iter().any(|row| row.failed.mean == 0.0);
    let drawn = rows.iter().filter(|row| row.failed.mean == 0.0 || !is_any_served);
    let mark = |row: &&ResultRow| {
        let points = row.ranks.iter().map(|rank| Point { x: rank.id as f64, y: rank.mean, error: rank.se });
        ChartMark { name: row.policy.clone(), shape: Shape::Line(points.collect()) }
    };
    let chart = Chart {
        title: format!("Mean finishing rank by id, {clients} clients"),
        x: Axis::linear("id", Unit::Count),
        y: Axis::linear("mean finishing rank", Unit::Count).including(f64::from(clients)),
        marks: drawn.map(mark).collect(),
    };
    NamedChart { name: "rank-by-id".to_owned(), chart }
}

/// The most lines that a readable chart can have.
const MOST_NODES: u32 = 10;

/// Returns a chart of the nodes' views for each algorithm, then a chart for each kind of measured time.
fn election_charts(rows: &[&ResultRow], nodes: u32) -> Vec<NamedChart> {
    let mut charts: Vec<_> = rows.iter().map(|row| leader_views(row, nodes)).collect();
    let kinds = [
        ("recovery", "After a crash, a node leads"),
        ("healing", "After a partition, one node leads and voters have the whole log"),
        ("known", "After either, all nodes know the leader"),
    ];
    let is_measured =
        |kind: &str| rows.iter().any(|row| row.pooled.get(kind).is_some_and(|pooled| pooled.count > 0));
    charts.extend(
        kinds
            .iter()
            .filter(|(kind, _)| is_measured(kind))
            .map(|(kind, title)| recovery_times(rows, nodes, kind, title)),
    );
    charts
}

/// Charts the leader in the view of each node in the first run; 0 means no leader, or that the node was down.
#[expect(clippy::cast_precision_loss, reason = "a picture is not that precise")]
fn leader_views(row: &ResultRow, nodes: u32) -> NamedChart {
    let end_us = row.leader_views.iter().map(|view| view.at_us).max().unwrap_or(0) as f64;
    let mark = |node: u32| {
        let place = |view: &LeaderView| {
            let leader = view.leader.map_or(0.0, |leader| f64::from(leader) + 1.0);
            Point::new(view.at_us as f64, leader)
        };
        let own = row.leader_views.iter().filter(|view| view.node == node);
        let mut points: Vec<Point> = [Point::new(0.0, 0.0)].into_iter().chain(own.map(place)).collect();
        let last = points.last().map_or(0.0, |point| point.y);
        points.push(Point::new(end_us, last));
        ChartMark { name: format!("node {}", node + 1), shape: Shape::Steps(points) }
    };
    let chart = Chart {
        title: format!("Leader in the view of each node: {}, {nodes} nodes", row.policy),
        x: Axis::linear("time", Unit::Micros),
        y: Axis::linear("leader (0: none)", Unit::Count).including(f64::from(nodes)),
        marks: (0..nodes.min(MOST_NODES)).map(mark).collect(),
    };
    NamedChart { name: format!("leader-view-{}", row.policy), chart }
}

/// Charts the percentage of faults recovered from over time.
#[expect(clippy::cast_precision_loss, reason = "a picture is not that precise")]
fn recovery_times(rows: &[&ResultRow], nodes: u32, kind: &str, title: &str) -> NamedChart {
    let mark = |row: &&ResultRow| {
        let sorted_us = row.pooled.get(kind).map(|pooled| pooled.sorted_us.as_slice()).unwrap_or_default();
        let total = sorted_us.len().max(1) as f64;
        let step = |(place, us): (u32, &u64)| Point::new(*us as f64, f64::from(place) * 100.0 / total);
        ChartMark { name: row.policy.clone(), shape: Shape::Steps((1..).zip(sorted_us).map(step).collect()) }
    };
    let chart = Chart {
        title: format!("{title}: percent of faults over time, {nodes} nodes"),
        x: Axis::log("time since", Unit::Micros),
        y: Axis::linear("percent", Unit::Count).including(100.0),
        marks: rows.iter().map(mark).collect(),
    };
    NamedChart { name: kind.to_owned(), chart }
}
