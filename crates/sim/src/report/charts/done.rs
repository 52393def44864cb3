//! Completions over time, and the order of the clients.

use super::NamedChart;
use crate::Row;
use crate::chart::{Axis, Chart, Mark, Point, Shape, Unit};

/// Charts the number of completed clients over time, as the mean of all runs.
#[expect(clippy::cast_precision_loss, reason = "a picture is not that precise")]
pub(super) fn over_time(rows: &[&Row], clients: u32) -> NamedChart {
    let end_us = rows.iter().map(|row| row.time_ms.p99 * 1000.0).fold(1.0, f64::max);
    let mark = |row: &&Row| {
        let (width, runs) = (row.done_over_time.bucket_us() as f64, f64::from(row.runs.max(1)));
        let mut done = 0;
        let mut points = vec![Point::new(0.0, 0.0)];
        for (index, count) in (1..).zip(row.done_over_time.counts()) {
            done += count;
            points.push(Point::new(f64::from(index) * width, done as f64 / runs));
        }
        points.retain(|point| point.x < end_us);
        points.push(Point::new(end_us, done as f64 / runs));
        Mark { name: row.policy.clone(), shape: Shape::Steps(points) }
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
pub(super) fn ranks(rows: &[&Row], clients: u32) -> NamedChart {
    let is_any_served = rows.iter().any(|row| row.failed.mean == 0.0);
    let drawn = rows.iter().filter(|row| row.failed.mean == 0.0 || !is_any_served);
    let mark = |row: &&Row| {
        let points = row.ranks.iter().map(|rank| Point { x: rank.id as f64, y: rank.mean, error: rank.se });
        Mark { name: row.policy.clone(), shape: Shape::Line(points.collect()) }
    };
    let chart = Chart {
        title: format!("Mean finishing rank by id, {clients} clients"),
        x: Axis::linear("id", Unit::Count),
        y: Axis::linear("mean finishing rank", Unit::Count).including(f64::from(clients)),
        marks: drawn.map(mark).collect(),
    };
    NamedChart { name: "rank-by-id".to_owned(), chart }
}
