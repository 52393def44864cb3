//! Reads the metrics of the code (a constant for the name, a description, and the recording macros) and those of the
//! document (the rows of its tables).

use std::collections::BTreeMap;

use super::{File, Metric, Metrics, is_name};

/// The labels that the document calls "all three".
const QUEUE_LABELS: [&str; 3] = ["namespace", "queue", "operation"];

const KINDS: [&str; 3] = ["counter", "gauge", "histogram"];

/// Reads the metrics in the source files of all crates.
pub(super) fn in_code(files: &[File], findings: &mut Vec<String>) -> Metrics {
    let mut metrics = Metrics::new();
    let is_source = |file: &&File| {
        file.has_extension("rs")
            && file.path.starts_with("crates")
            && file.path.iter().any(|part| part == "src")
    };
    for file in files.iter().filter(is_source) {
        if file.path.ends_with("metrics.rs") {
            metrics.extend(recorded(&file.text, findings));
        }
    }
    for file in files.iter().filter(is_source).filter(|file| !file.path.ends_with("metrics.rs")) {
        if KINDS.iter().any(|kind| calls(&file.text, &format!("{kind}!(")).next().is_some()) {
            findings.push(format!(
                "{} records a metric: move the recording to the metrics.rs of its crate",
                file.path.display()
            ));
        }
    }
    metrics
}

fn recorded(code: &str, findings: &mut Vec<String>) -> Metrics {
    let names = constants(code);
    let mut metrics = Metrics::new();
    for kind in KINDS {
        for arguments in calls(code, &format!("describe_{kind}!(")) {
            if let Some(name) = name_of(&names, arguments) {
                metrics.insert(name, Metric { kind: kind.to_owned(), ..Metric::default() });
            }
        }
    }
    for kind in KINDS {
        for arguments in calls(code, &format!("{kind}!(")) {
            let Some(name) = name_of(&names, arguments) else { continue };
            if let Some(metric) = metrics.get_mut(&name) {
                metric.labels.extend(labels(arguments));
            }
        }
    }
    let silent = names.values().filter(|name| !metrics.contains_key(*name));
    findings.extend(silent.map(|name| format!("{name} is never described")));
    metrics
}

/// Returns the constants of the form `const IDENT: &str = "name";`.
fn constants(code: &str) -> BTreeMap<&str, String> {
    let constant = |rest: &'_ str| -> Option<(usize, String)> {
        let (ident, value) = rest.split_once(": &str = \"")?;
        let name = value.split('"').next().filter(|name| is_name(name))?;
        Some((ident.len(), name.to_owned()))
    };
    code.split("const ")
        .skip(1)
        .filter_map(|rest| constant(rest).map(|(end, name)| (&rest[..end], name)))
        .collect()
}

fn name_of(names: &BTreeMap<&str, String>, arguments: &str) -> Option<String> {
    names.get(arguments.split([',', ')']).next().unwrap_or_default().trim()).cloned()
}

/// Returns the arguments of every call with this opening that is not part of a longer word.
fn calls<'a>(code: &'a str, opening: &'a str) -> impl Iterator<Item = &'a str> {
    code.match_indices(opening).filter_map(move |(at, _)| {
        let is_whole = !code[..at].ends_with(|c: char| c == '_' || c.is_alphanumeric());
        is_whole.then(|| to_closing(&code[at + opening.len()..]))
    })
}

fn to_closing(code: &str) -> &str {
    let mut open = 1;
    for (at, character) in code.char_indices() {
        match character {
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return &code[..at];
        }
    }
    code
}

/// Returns the labels of the form `"label" => value`, and the labels of a queue.
fn labels(arguments: &str) -> Vec<String> {
    let parts: Vec<&str> = arguments.split('"').collect();
    let pairs = parts.iter().zip(parts.iter().skip(1));
    let named = pairs.filter(|(_, after)| after.trim_start().starts_with("=>"));
    let lane = QUEUE_LABELS.iter().filter(|_| arguments.contains("&labels"));
    named.map(|(label, _)| *label).chain(lane.copied()).map(str::to_owned).collect()
}

/// Returns the metrics and the problems found.
pub(super) fn in_document(document: &str) -> (Metrics, Vec<String>) {
    let (mut metrics, mut findings) = (Metrics::new(), Vec::new());
    for line in document.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", name, kind, labels, _, ""] = cells[..] else { continue };
        let name = name.trim_matches('`');
        if !is_name(name) {
            continue;
        }
        let lane =
            QUEUE_LABELS.iter().filter(|_| labels.contains("all three")).map(|label| (*label).to_owned());
        let own = labels.split('`').skip(1).step_by(2).map(str::to_owned);
        let metric = Metric { kind: kind.to_owned(), labels: lane.chain(own).collect() };
        if metrics.insert(name.to_owned(), metric).is_some() {
            findings.push(format!("{} mentions {name} twice", super::DOCUMENT));
        }
    }
    (metrics, findings)
}
