//! The results as columns of a table and as CSV.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::scenario::duel::Rank;
use crate::{Pooled, ResultRow, Summary};

/// One column of figures.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// The heading.
    pub heading: String,
    /// The figures, one a row.
    pub figures: Vec<Summary>,
    /// Whether the figures are times in milliseconds.
    pub is_time: bool,
}

/// Figures that are shown even if they are zero, because zero is their most important value.
const ALWAYS_SHOWN: &[&str] = &["changes", "recovered", "success_share", "two_at_once"];

/// Returns the columns of these rows: time, calls, then the scenario's own figures, without those that are all zero,
/// and the pooled times.
pub fn columns(rows: &[ResultRow]) -> Vec<Column> {
    let own = rows.first().map(|row| row.figures.keys().copied().collect::<Vec<_>>()).unwrap_or_default();
    let column = |heading: &str, is_time: bool, figure: &dyn Fn(&ResultRow) -> Summary| Column {
        heading: heading.to_owned(),
        figures: rows.iter().map(figure).collect(),
        is_time,
    };
    let mut columns =
        vec![column("time", true, &|row| row.time_ms), column("calls", false, &|row| row.calls)];
    for name in own {
        let heading = name.replace('_', " ");
        let is_time = name.ends_with("_ms") && !name.ends_with("_per_ms");
        let figures = column(&heading, is_time, &|row| row.figures.get(name).copied().unwrap_or_default());
        if ALWAYS_SHOWN.contains(&name) || figures.figures.iter().any(|figure| figure.mean != 0.0) {
            columns.push(figures);
        }
    }
    columns.extend(pooled_columns(rows));
    columns
}

/// Returns the median and the 99th percentile of pooled times.
fn pooled_columns(rows: &[ResultRow]) -> Vec<Column> {
    let names: BTreeSet<&str> = rows.iter().flat_map(|row| row.pooled.keys().copied()).collect();
    let is_any = |name: &&str| rows.iter().any(|row| row.pooled.get(*name).is_some_and(|all| all.count > 0));
    let column = |name: &str, part: &str, figure: fn(&Summary) -> f64| {
        let figure = |row: &ResultRow| row.pooled.get(name).map_or(0.0, |pooled| figure(&pooled.ms));
        let summary = |row: &ResultRow| Summary { mean: figure(row), ..Summary::default() };
        Column {
            heading: format!("{name} {part}"),
            figures: rows.iter().map(summary).collect(),
            is_time: true,
        }
    };
    let both = |name| [column(name, "p50", |ms| ms.p50), column(name, "p99", |ms| ms.p99)];
    names.into_iter().filter(is_any).flat_map(both).collect()
}

/// Formats a number with about four digits.
pub fn rounded(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 1000.0 || size.fract() < 1e-9 => 0,
        size if size >= 100.0 => 1,
        size if size >= 1.0 => 2,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

/// Formats the rows as CSV: one line a row, four columns a figure, and four columns for each pooled time.
pub fn csv(rows: &[ResultRow]) -> String {
    let own: Vec<&str> = rows.first().map(|row| row.figures.keys().copied().collect()).unwrap_or_default();
    let mut text = "scenario,policy,clients,runs".to_owned();
    for figure in ["time_ms", "calls", "failed"].iter().chain(&own) {
        let _ = write!(text, ",{figure}_mean,{figure}_se,{figure}_p50,{figure}_p99");
    }
    let pooled: Vec<&str> = rows.first().map(|row| row.pooled.keys().copied().collect()).unwrap_or_default();
    for name in &pooled {
        let _ = write!(text, ",{name}_count,{name}_p50_ms,{name}_p99_ms,{name}_worst_ms");
    }
    text.push('\n');
    for row in rows {
        let _ = write!(text, "{},{},{},{}", row.scenario, quoted(&row.policy), row.clients, row.runs);
        let figures = own.iter().map(|name| row.figures.get(name).copied().unwrap_or_default());
        for Summary { mean, se, p50, p99 } in [row.time_ms, row.calls, row.failed].into_iter().chain(figures)
        {
            let _ = write!(text, ",{mean},{se},{p50},{p99}");
        }
        for Pooled { count, ms, worst_ms, .. } in pooled.iter().filter_map(|name| row.pooled.get(name)) {
            let _ = write!(text, ",{count},{},{},{worst_ms}", ms.p50, ms.p99);
        }
        text.push('\n');
    }
    text
}

/// Formats the finishing ranks of clients as CSV, one line an id. Returns `None` if the scenario does not record them.
pub fn ranks_csv(rows: &[ResultRow]) -> Option<String> {
    rows.iter().any(|row| !row.ranks.is_empty()).then(|| {
        let mut text = "scenario,policy,clients,runs,id,rank_mean,rank_se\n".to_owned();
        for row in rows {
            let policy = quoted(&row.policy);
            for Rank { id, mean, se } in row.ranks.iter() {
                let _ =
                    writeln!(text, "{},{policy},{},{},{id},{mean},{se}", row.scenario, row.clients, row.runs);
            }
        }
        text
    })
}

/// Quotes a CSV field.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_four_digits() {
        let shown = [0.0, 0.123_456, 7.0, 7.123, 123.456, 2015.4].map(rounded);
        assert_eq!(shown, ["0", "0.1235", "7", "7.12", "123.5", "2015"]);
    }

    #[test]
    fn csv_fields_with_special_characters_are_quoted() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
