//! A report as one HTML page.

use std::fmt::Write;

use super::{answer, charts, columns, rounded};
use crate::chart::escaped;
use crate::{Plan, Row, Summary};

const STYLE: &str = include_str!("page.css");

/// Formats a self-contained page: the plan, the table, the charts. It has no scripts and loads nothing.
///
/// `sources` are the texts needed to repeat the run: the command, the parameters, the policies.
pub fn page(plan: &Plan, rows: &[Row], sources: &[&str]) -> String {
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

fn table(rows: &[Row]) -> String {
    let columns = columns(rows);
    let mut html =
        "<div class=\"table\"><table><thead><tr><th>policy</th><th>clients</th><th>failed</th>".to_owned();
    for column in &columns {
        let _ = write!(html, "<th>{}</th>", escaped(&column.heading));
    }
    html.push_str("</tr></thead><tbody>");
    for (index, row) in rows.iter().enumerate() {
        let is_new_crowd = index > 0 && rows.get(index - 1).is_some_and(|last| last.clients != row.clients);
        let class = if is_new_crowd { " class=\"crowd\"" } else { "" };
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
