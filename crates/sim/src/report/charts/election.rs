//! The nodes' views of the leader, and the recovery times after faults.

use super::NamedChart;
use crate::Row;
use crate::chart::{Axis, Chart, Mark, Point, Shape, Unit};
use crate::scenario::election::Thought;

/// The most lines that a readable chart can have.
const MOST_NODES: u32 = 10;

/// Returns a chart of the nodes' views for each algorithm, then a chart for each kind of measured time.
pub(super) fn charts(rows: &[&Row], nodes: u32) -> Vec<NamedChart> {
    let mut charts: Vec<_> = rows.iter().map(|row| thoughts(row, nodes)).collect();
    let kinds = [
        ("recovery", "After a crash, somebody leads"),
        ("healing", "After a partition, one leads and voters have all"),
        ("known", "After either, everybody knows who leads"),
    ];
    let is_measured =
        |kind: &str| rows.iter().any(|row| row.pooled.get(kind).is_some_and(|pooled| pooled.count > 0));
    charts.extend(
        kinds
            .iter()
            .filter(|(kind, _)| is_measured(kind))
            .map(|(kind, title)| times(rows, nodes, kind, title)),
    );
    charts
}

/// Charts the leader in the view of each node in the first run; 0 means no leader, or that the node was down.
#[expect(clippy::cast_precision_loss, reason = "a picture is not that precise")]
fn thoughts(row: &Row, nodes: u32) -> NamedChart {
    let end_us = row.thoughts.iter().map(|thought| thought.at_us).max().unwrap_or(0) as f64;
    let mark = |node: u32| {
        let place = |thought: &Thought| {
            let leader = thought.leader.map_or(0.0, |leader| f64::from(leader) + 1.0);
            Point::new(thought.at_us as f64, leader)
        };
        let own = row.thoughts.iter().filter(|thought| thought.node == node);
        let mut points: Vec<Point> = [Point::new(0.0, 0.0)].into_iter().chain(own.map(place)).collect();
        let last = points.last().map_or(0.0, |point| point.y);
        points.push(Point::new(end_us, last));
        Mark { name: format!("node {}", node + 1), shape: Shape::Steps(points) }
    };
    let chart = Chart {
        title: format!("Who is thought to lead: {}, {nodes} nodes", row.policy),
        x: Axis::linear("time", Unit::Micros),
        y: Axis::linear("is thought to lead (0: nobody)", Unit::Count).including(f64::from(nodes)),
        marks: (0..nodes.min(MOST_NODES)).map(mark).collect(),
    };
    NamedChart { name: format!("thought-{}", row.policy), chart }
}

/// Charts the percentage of faults recovered from over time.
#[expect(clippy::cast_precision_loss, reason = "a picture is not that precise")]
fn times(rows: &[&Row], nodes: u32, kind: &str, title: &str) -> NamedChart {
    let mark = |row: &&Row| {
        let sorted_us = row.pooled.get(kind).map(|pooled| pooled.sorted_us.as_slice()).unwrap_or_default();
        let total = sorted_us.len().max(1) as f64;
        let step = |(place, us): (u32, &u64)| Point::new(*us as f64, f64::from(place) * 100.0 / total);
        Mark { name: row.policy.clone(), shape: Shape::Steps((1..).zip(sorted_us).map(step).collect()) }
    };
    let chart = Chart {
        title: format!("{title}: percent of times by when, {nodes} nodes"),
        x: Axis::log("time since", Unit::Micros),
        y: Axis::linear("percent", Unit::Count).including(100.0),
        marks: rows.iter().map(mark).collect(),
    };
    NamedChart { name: kind.to_owned(), chart }
}
