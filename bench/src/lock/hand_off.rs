//! The time from the release of a lock to its acquisition by the next waiter.

use std::time::Duration;

use super::Place;
use super::crowd::{Crowd, Way};
use crate::row::Row;

const WAITING: [usize; 3] = [2, 16, 64];
const HAND_OFFS: usize = 200;

pub(super) async fn rows(place: &Place) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for waiting in WAITING {
        let (median, p99) = hand_offs(place, waiting, Way::Wait).await?;
        let polled = match place {
            Place::Memory | Place::Sqlite(_) => (f64::NAN, f64::NAN),
            Place::Postgres(_) => hand_offs(place, waiting, Way::Poll).await?,
        };
        let name = format!("{}: hand-off, {waiting} wait", place.name());
        eprintln!("lock: {name}: median {median:.2} ms, p99 {p99:.2} ms; polled {polled:.2?} ms");
        let peer = if polled.0.is_nan() { "" } else { "polling every 100 ms" };
        rows.push(Row::beside(&format!("{name}, p50"), "ms", median, (peer, polled.0)));
        rows.push(Row::beside(&format!("{name}, p99"), "ms", p99, (peer, polled.1)));
    }
    Ok(rows)
}

/// Returns median and p99, in milliseconds.
async fn hand_offs(place: &Place, waiting: usize, way: Way) -> Result<(f64, f64), String> {
    let mut crowd = Crowd::gather(&place.fresh(), waiting, way).await?;
    let mut seen = crowd.watch(HAND_OFFS).await?;
    seen.sort();
    let at = |share: usize| seen.get(seen.len() * share / 100).map_or(f64::NAN, Duration::as_secs_f64) * 1e3;
    Ok((at(50), at(99)))
}
