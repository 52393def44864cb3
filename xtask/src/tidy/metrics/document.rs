//! Reads the metrics of the document from the rows of its tables.

use super::{Metric, Metrics, is_name};

/// The labels that the document calls "all three".
pub(super) const OF_A_LANE: [&str; 3] = ["namespace", "queue", "operation"];

/// Returns the metrics and the problems found.
pub(super) fn read(document: &str) -> (Metrics, Vec<String>) {
    let (mut metrics, mut findings) = (Metrics::new(), Vec::new());
    for line in document.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", name, kind, labels, _, ""] = cells[..] else { continue };
        let name = name.trim_matches('`');
        if !is_name(name) {
            continue;
        }
        let lane = OF_A_LANE.iter().filter(|_| labels.contains("all three")).map(|label| (*label).to_owned());
        let own = labels.split('`').skip(1).step_by(2).map(str::to_owned);
        let metric = Metric { kind: kind.to_owned(), labels: lane.chain(own).collect() };
        if metrics.insert(name.to_owned(), metric).is_some() {
            findings.push(format!("{} mentions {name} twice", super::DOCUMENT));
        }
    }
    (metrics, findings)
}
