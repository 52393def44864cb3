//! A summary in one or two sentences.

use super::rounded;
use crate::Row;

/// Names the best strategies with the largest number of clients, and the strategies that left clients unserved. Returns
/// `None` if there is nothing to compare.
///
/// Only the strategies that left the fewest clients unserved compete: a strategy must not win by giving up early.
pub fn answer(rows: &[Row]) -> Option<String> {
    let most = rows.iter().map(|row| row.clients).max()?;
    let largest: Vec<&Row> = rows.iter().filter(|row| row.clients == most).collect();
    if largest.iter().all(|row| row.scenario == "election") {
        return election(&largest, most);
    }
    let fewest_failed = largest.iter().map(|row| row.failed.mean).min_by(f64::total_cmp)?;
    let (served, others): (Vec<&Row>, Vec<&Row>) =
        largest.into_iter().partition(|row| row.failed.mean <= fewest_failed);
    let mut sentences = vec![best(&served, most)];
    sentences.extend(
        others.iter().chain(served.iter().filter(|row| row.failed.mean > 0.0)).map(|row| without(row)),
    );
    let sentences: Vec<String> = sentences.into_iter().filter(|sentence| !sentence.is_empty()).collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// States how soon each election algorithm recovers from its faults.
fn election(rows: &[&Row], nodes: u32) -> Option<String> {
    let kinds = [("recovery", "somebody leads after a crash"), ("healing", "one leads after a partition")];
    let of_kind = |(kind, what): (&str, &str)| {
        let time = |row: &&Row| {
            let pooled = row.pooled.get(kind).filter(|pooled| pooled.count > 0)?;
            Some(format!("{} after {} s", row.policy, rounded(pooled.ms.p50 / 1000.0)))
        };
        let times: Vec<String> = rows.iter().filter_map(time).collect();
        (!times.is_empty())
            .then(|| format!("With {nodes} nodes {what}, half of the times: {}.", times.join(", ")))
    };
    kinds.into_iter().find_map(of_kind)
}

/// Names the fastest strategy and the one with the fewest calls, if there are several and they differ.
fn best(served: &[&Row], clients: u32) -> String {
    let time = |row: &&&Row| row.time_ms.mean;
    let calls = |row: &&&Row| row.calls.mean;
    let fastest = served.iter().min_by(|a, b| time(a).total_cmp(&time(b)));
    let fewest = served.iter().min_by(|a, b| calls(a).total_cmp(&calls(b)));
    let (Some(fastest), Some(fewest)) = (fastest, fewest) else { return String::new() };
    let differ = served.iter().any(|row| row.time_ms != fastest.time_ms || row.calls != fewest.calls);
    if served.len() < 2 || !differ {
        return String::new();
    }
    let verb = if fastest.scenario == "outage" { "recovers" } else { "is done" };
    let figures =
        |row: &Row| format!("{} s and {} calls", rounded(row.time_ms.mean / 1000.0), rounded(row.calls.mean));
    if fastest.policy == fewest.policy {
        return format!(
            "With {clients} clients {} {verb} first and calls least: {}.",
            fastest.policy,
            figures(fastest)
        );
    }
    format!(
        "With {clients} clients {} {verb} first: {}. {} calls least: {}.",
        fastest.policy,
        figures(fastest),
        fewest.policy,
        figures(fewest)
    )
}

/// States the failure of a strategy.
fn without(row: &Row) -> String {
    let (policy, failed) = (&row.policy, row.failed.mean);
    match row.scenario {
        "outage" if failed >= 1.0 => format!("{policy} never recovers."),
        "outage" => format!("{policy} does not recover in {} % of the runs.", rounded(failed * 100.0)),
        _ => format!("{policy} leaves {} of {} without.", rounded(failed), row.clients),
    }
}
