//! The results as an HTML page, and their summary in one sentence.

use std::fmt::Write;

use super::{charts, columns, rounded};
use crate::chart::escaped;
use crate::{Plan, ResultRow, Summary};

const STYLE: &str = include_str!("page.css");

/// Formats a self-contained page: the plan, the table, the charts. It has no scripts and loads nothing.
///
/// `sources` are the texts needed to repeat the run: the command, the parameters, the policies.
pub fn page(plan: &Plan, rows: &[ResultRow], sources: &[&str]) -> String {
    let scenario = plan.scenario.name();
    let about = plan.scenario.about();
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>holdoff sim {scenario}</title><style>{STYLE}</style></head><body><main>\
         <header><p class=\"brand\">holdoff <span>sim</span></p><h1>{scenario}</h1><p class=\"lead\">{}</p></header>",
        escaped(about)
    );
    if let Some(answer) = answer(rows) {
        let _ = write!(html, "<p class=\"answer\">{}</p>", escaped(&answer));
    }
    html.push_str("<section class=\"charts\">");
    for named in charts(rows) {
        let _ = write!(html, "<figure id=\"{}\">{}</figure>", named.name, named.chart.svg());
    }
    html.push_str("</section>");
    html.push_str(&table(rows));
    html.push_str("<section class=\"how\"><h2>How it was run</h2>");
    for source in sources {
        let _ = write!(html, "<pre>{}</pre>", escaped(source.trim()));
    }
    let _ = writeln!(
        html,
        "<p>Means over {} runs from seed {}; ± is one standard error. The same seed gives the same page.</p>\
         </section></main></body></html>",
        plan.runs, plan.seed
    );
    html
}

fn table(rows: &[ResultRow]) -> String {
    let columns = columns(rows);
    let mut html =
        "<div class=\"table\"><table><thead><tr><th>policy</th><th>clients</th><th>failed</th>".to_owned();
    for column in &columns {
        let _ = write!(html, "<th>{}</th>", escaped(&column.heading));
    }
    html.push_str("</tr></thead><tbody>");
    for (index, row) in rows.iter().enumerate() {
        let is_new_group = index > 0 && rows.get(index - 1).is_some_and(|last| last.clients != row.clients);
        let class = if is_new_group { " class=\"group\"" } else { "" };
        let failed = rounded(row.failed.mean);
        let _ = write!(
            html,
            "<tr{class}><th>{}</th><td>{}</td><td>{failed}</td>",
            escaped(&row.policy),
            row.clients
        );
        for column in &columns {
            let figure = column.figures.get(index).copied().unwrap_or_default();
            html.push_str(&cell(figure, column.is_time));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    html
}

fn cell(figure: Summary, is_time: bool) -> String {
    let Summary { mean, se, p50, p99 } = figure;
    let unit = if is_time { " ms" } else { "" };
    let spread = format!("p50 {} · p99 {}", rounded(p50), rounded(p99));
    format!("<td>{}<span> ± {}{unit}</span><small>{spread}</small></td>", rounded(mean), rounded(se))
}

/// Names the best strategies with the largest number of clients, and the strategies that left clients unserved. Returns
/// `None` if there is nothing to compare.
///
/// Only the strategies that left the fewest clients unserved compete: a strategy must not win by giving up early.
pub fn answer(rows: &[ResultRow]) -> Option<String> {
    let most = rows.iter().map(|row| row.clients).max()?;
    let largest: Vec<&ResultRow> = rows.iter().filter(|row| row.clients == most).collect();
    if largest.iter().all(|row| row.scenario == "election") {
        return election(&largest, most);
    }
    let fewest_failed = largest.iter().map(|row| row.failed.mean).min_by(f64::total_cmp)?;
    let (served, others): (Vec<&ResultRow>, Vec<&ResultRow>) =
        largest.into_iter().partition(|row| row.failed.mean <= fewest_failed);
    let mut sentences = vec![best(&served, most)];
    sentences.extend(
        others.iter().chain(served.iter().filter(|row| row.failed.mean > 0.0)).map(|row| without(row)),
    );
    let sentences: Vec<String> = sentences.into_iter().filter(|sentence| !sentence.is_empty()).collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// States how soon each election algorithm recovers from its faults.
fn election(rows: &[&ResultRow], nodes: u32) -> Option<String> {
    let kinds = [("recovery", "a node leads after a crash"), ("healing", "one node leads after a partition")];
    let of_kind = |(kind, what): (&str, &str)| {
        let time = |row: &&ResultRow| {
            let pooled = row.pooled.get(kind).filter(|pooled| pooled.count > 0)?;
            Some(format!("{} after {} s", row.policy, rounded(pooled.ms.p50 / 1000.0)))
        };
        let times: Vec<String> = rows.iter().filter_map(time).collect();
        (!times.is_empty()).then(|| format!("With {nodes} nodes {what}, median time: {}.", times.join(", ")))
    };
    kinds.into_iter().find_map(of_kind)
}

/// Names the fastest strategy and the one with the fewest calls, if there are several and they differ.
fn best(served: &[&ResultRow], clients: u32) -> String {
    let time = |row: &&&ResultRow| row.time_ms.mean;
    let calls = |row: &&&ResultRow| row.calls.mean;
    let fastest = served.iter().min_by(|a, b| time(a).total_cmp(&time(b)));
    let fewest = served.iter().min_by(|a, b| calls(a).total_cmp(&calls(b)));
    let (Some(fastest), Some(fewest)) = (fastest, fewest) else { return String::new() };
    let differ = served.iter().any(|row| row.time_ms != fastest.time_ms || row.calls != fewest.calls);
    if served.len() < 2 || !differ {
        return String::new();
    }
    let verb = if fastest.scenario == "outage" { "recovers" } else { "is done" };
    let figures = |row: &ResultRow| {
        format!("{} s and {} calls", rounded(row.time_ms.mean / 1000.0), rounded(row.calls.mean))
    };
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
fn without(row: &ResultRow) -> String {
    let (policy, failed) = (&row.policy, row.failed.mean);
    match row.scenario {
        "outage" if failed >= 1.0 => format!("{policy} never recovers."),
        "outage" => format!("{policy} does not recover in {} % of the runs.", rounded(failed * 100.0)),
        _ => format!("{policy} leaves {} of {} clients unserved.", rounded(failed), row.clients),
    }
}
