//! Rows as CSV.

use std::fmt::Write;

use crate::scenario::duel::Rank;
use crate::{Pooled, Row, Summary};

/// Formats the rows as CSV: one line a row, four columns a figure, and four columns for each pooled time.
pub fn csv(rows: &[Row]) -> String {
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
pub fn ranks_csv(rows: &[Row]) -> Option<String> {
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
    fn odd_names_are_quoted() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
