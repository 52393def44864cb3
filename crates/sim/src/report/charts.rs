//! The charts of a plan's rows.

use std::collections::BTreeMap;

use crate::Row;
use crate::chart::{Axis, Chart, Mark, Point, Shape, Unit};

/// A chart and the name of its file.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedChart {
    /// The file's name without its ending.
    pub name: String,
    /// The chart.
    pub chart: Chart,
}

/// Every chart these rows can fill: time and calls against the number of clients, then for the largest
/// number of clients the calls over time and the distribution of delays.
pub fn charts(rows: &[Row]) -> Vec<NamedChart> {
    let Some(most) = rows.iter().map(|row| row.clients).max() else { return Vec::new() };
    let largest: Vec<&Row> = rows.iter().filter(|row| row.clients == most).collect();
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
    let mark = |row: &&Row| {
        let (width, runs) = (row.calls_over_time.bucket_us() as f64, f64::from(row.runs.max(1)));
        let per_ms = 1000.0 / width / runs;
        let counts = row.calls_over_time.counts();
        let step = |(index, count): (usize, &u64)| Point::new(index as f64 * width, *count as f64 * per_ms);
        let mut points: Vec<Point> = counts.iter().enumerate().map(step).collect();
        points.push(Point::new(counts.len() as f64 * width, 0.0));
        Mark { name: row.policy.clone(), shape: Shape::Steps(points) }
    };
    let chart = Chart {
        title: format!("Calls over time, {clients} clients"),
        x: Axis::linear("time", Unit::Micros),
        y: Axis::linear("calls per millisecond", Unit::Count),
        marks: rows.iter().map(mark).collect(),
    };
    NamedChart { name: "calls-over-time".to_owned(), chart }
}

#[expect(clippy::cast_precision_loss, reason = "a picture is not that precise")]
fn delays(rows: &[&Row], clients: u32) -> NamedChart {
    let mark = |row: &&Row| {
        let total = row.delays.total().max(1) as f64;
        let (mut points, mut end_us) = (Vec::new(), 0);
        for bucket in row.delays.buckets() {
            // Down to zero in between, unless one bucket begins where the last one ended.
            if bucket.from_us != end_us {
                points.push(Point::new(end_us.max(1) as f64, 0.0));
            }
            points.push(Point::new(bucket.from_us.max(1) as f64, bucket.count as f64 * 100.0 / total));
            end_us = bucket.to_us;
        }
        points.push(Point::new(end_us.max(1) as f64, 0.0));
        Mark { name: row.policy.clone(), shape: Shape::Steps(points) }
    };
    let chart = Chart {
        title: format!("How long they waited between tries, {clients} clients"),
        x: Axis::log("delay", Unit::Micros),
        y: Axis::linear("percent of all delays", Unit::Count),
        marks: rows.iter().map(mark).collect(),
    };
    NamedChart { name: "delays".to_owned(), chart }
}
