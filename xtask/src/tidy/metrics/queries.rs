//! Checks the queries of the dashboard and the alerts.

use std::collections::BTreeSet;

use super::{Metric, Metrics, is_name};

/// The labels that Prometheus adds to all scraped metrics.
const SCRAPED: [&str; 2] = ["instance", "job"];

/// Returns the problems in the queries of a file.
pub(super) fn check(text: &str, known: &Metrics) -> Vec<String> {
    let text = text.replace("\\\"", "\"");
    // Split into queries: an alert, or a target of a panel.
    let queries = text.split("- alert:").flat_map(|part| part.split("\"refId\"")).skip(1);
    queries.flat_map(|query| one(query, known)).collect()
}

fn one(query: &str, known: &Metrics) -> Vec<String> {
    let mut findings = Vec::new();
    let mut labels: BTreeSet<&str> = SCRAPED.into();
    let mut from = 0;
    while let Some(at) = query[from..].find("holdoff_").map(|at| from + at) {
        let name = word(&query[at..]);
        from = at + name.len();
        if !is_name(name) {
            continue;
        }
        let Some((plain, metric)) = find(name, known) else {
            findings.push(format!("uses {name}, which {} does not mention", super::DOCUMENT));
            continue;
        };
        labels.extend(metric.labels.iter().map(String::as_str));
        if metric.kind == "histogram" {
            labels.insert("le");
        }
        for label in matchers(&query[from..]) {
            if !metric.labels.contains(label) && !SCRAPED.contains(&label) {
                findings.push(format!("{plain} has no label `{label}`"));
            }
        }
    }
    for label in used(query).into_iter().filter(|label| !labels.contains(label)) {
        findings.push(format!("nothing in it has the label `{label}`"));
    }
    findings
}

/// Returns a metric by its name, or by the name of one of a histogram's series.
fn find<'a>(name: &'a str, known: &'a Metrics) -> Option<(&'a str, &'a Metric)> {
    let series = ["_bucket", "_sum", "_count"].iter().filter_map(|end| name.strip_suffix(end));
    let of_histogram = series.filter_map(|plain| Some((plain, known.get(plain)?)));
    let mut of_histogram = of_histogram.filter(|(_, metric)| metric.kind == "histogram");
    known.get(name).map(|metric| (name, metric)).or_else(|| of_histogram.next())
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    &text[..end]
}

/// Returns the labels in `{label="value", …}`, if `rest` begins with it.
fn matchers(rest: &str) -> Vec<&str> {
    let Some(inside) = rest.strip_prefix('{') else { return Vec::new() };
    // Every second part is inside quotes.
    let outside = inside.split('"').step_by(2);
    let until_closed: Vec<&str> = outside
        .scan(false, |is_over, part| {
            let shown = (!*is_over).then(|| part.split('}').next().unwrap_or_default());
            *is_over |= part.contains('}');
            shown
        })
        .collect();
    let label = |part: &&str| part.trim_start_matches([',', ' ']).len();
    let parts = until_closed.into_iter().filter(|part| label(part) > 0);
    parts.map(|part| word(part.trim_start_matches([',', ' ']))).filter(|label| !label.is_empty()).collect()
}

/// Returns the labels in `by (…)`, in `$labels.…` and in a legend's `{{…}}`.
fn used(query: &str) -> Vec<&str> {
    let lists = query.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
    let grouped = lists.flat_map(|list| list.split(',')).map(str::trim);
    let told = query.split("$labels.").skip(1).map(word);
    let legends = query.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
    let is_label = |text: &&str| !text.is_empty() && word(text) == *text;
    grouped.chain(told).chain(legends).filter(is_label).collect()
}
