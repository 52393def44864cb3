//! Checks that the names, kinds and labels of metrics agree in the code, the document, the dashboard and the
//! alerts.

mod queries;
mod sources;

use std::collections::{BTreeMap, BTreeSet};

use super::File;

const DOCUMENT: &str = "docs/metrics.md";
const RUNBOOK: &str = "docs/operate.md";
const DASHBOARD: &str = "deploy/grafana/holdoff.json";
const ALERTS: &str = "deploy/prometheus/alerts.yml";

/// The name prefixes of the components' metrics.
const PREFIXES: [&str; 8] = [
    "holdoff_retry_",
    "holdoff_net_",
    "holdoff_work_",
    "holdoff_lock_",
    "holdoff_server_",
    "holdoff_council_",
    "holdoff_acceptor_",
    "holdoff_ledger_",
];

/// A metric as one source describes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Metric {
    kind: String,
    labels: BTreeSet<String>,
}

type Metrics = BTreeMap<String, Metric>;

pub(super) fn check(files: &[File]) -> Vec<String> {
    let text = |path: &str| {
        files.iter().find(|file| file.path.as_os_str() == path).map_or("", |file| file.text.as_str())
    };
    let (in_document, mut findings) = sources::in_document(text(DOCUMENT));
    let in_code = sources::in_code(files, &mut findings);
    findings.extend(compare(&in_code, &in_document));
    for path in [DASHBOARD, ALERTS] {
        findings
            .extend(queries::check(text(path), &in_document).into_iter().map(|why| format!("{path}: {why}")));
    }
    findings.extend(without_runbook(text(ALERTS), text(RUNBOOK)));
    findings
}

fn compare(in_code: &Metrics, in_document: &Metrics) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, metric) in in_code {
        match in_document.get(name) {
            None => findings.push(format!("{DOCUMENT} does not mention the metric {name}")),
            Some(documented) if documented.kind != metric.kind => {
                findings.push(format!(
                    "{DOCUMENT} calls {name} a {}, and it is a {}",
                    documented.kind, metric.kind
                ));
            }
            Some(documented) if documented.labels != metric.labels => findings.push(format!(
                "{DOCUMENT} gives {name} the labels {:?}, and it has {:?}",
                documented.labels, metric.labels
            )),
            Some(_) => {}
        }
    }
    let stale = in_document.keys().filter(|name| !in_code.contains_key(*name));
    findings.extend(stale.map(|name| format!("{DOCUMENT} mentions {name}, which does not exist")));
    findings
}

/// Checks that every alert links to a runbook heading of the same name.
fn without_runbook(alerts: &str, runbook: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for alert in alerts.split("- alert:").skip(1) {
        let name = alert.split_whitespace().next().unwrap_or_default();
        let expected = format!("{RUNBOOK}#{}", name.to_ascii_lowercase());
        let said = alert.split("runbook: ").nth(1).and_then(|rest| rest.split([' ', ',', '}', '\n']).next());
        if said != Some(expected.as_str()) {
            findings.push(format!("{ALERTS}: {name} does not say `runbook: {expected}`"));
        }
        if !runbook.lines().any(|line| line.trim_start_matches('#').trim() == name && line.starts_with('#')) {
            findings.push(format!("{RUNBOOK} has no heading {name}, which {ALERTS} points to"));
        }
    }
    findings
}

/// Returns whether this is a metric's name.
fn is_name(word: &str) -> bool {
    let is_plain = word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    is_plain && PREFIXES.iter().any(|prefix| word.len() > prefix.len() && word.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "| `holdoff_work_steps` | gauge | all three, `state` | steps |\n\
                         | `holdoff_work_run_seconds` | histogram | `operation` | runs |\n";
    const CODE: &str = r#"
        const STEPS: &str = "holdoff_work_steps";
        const RUN: &str = "holdoff_work_run_seconds";
        fn describe() { describe_gauge!(STEPS, "steps"); describe_histogram!(RUN, Unit::Seconds, "runs"); }
        fn a() { gauge!(STEPS, "namespace" => n, "queue" => q(1), "operation" => o, "state" => s).set(1.0); }
        fn b() { histogram!(RUN, "operation" => o).record(1.0); }"#;
    const QUERY: &str = r#"{"refId": "A", "expr": "sum by (le) (rate(holdoff_work_run_seconds_bucket{operation=\"a,b\"}[5m]))"}"#;
    const ALERT: &str = "- alert: Late\n  expr: max by (queue) (holdoff_work_steps{state=~\"due\"}) > 1\n  \
                         annotations: {summary: '{{ $labels.queue }}', runbook: docs/operate.md#late}";

    fn found(changed: &str, from: &str, to: &str) -> Vec<String> {
        let texts = [
            (DOCUMENT, TABLE),
            ("crates/work/src/metrics.rs", CODE),
            (DASHBOARD, QUERY),
            (ALERTS, ALERT),
            (RUNBOOK, "### Late\n"),
        ];
        let file = |(path, text): (&str, &str)| {
            assert!(path != changed || text.contains(from), "{from} is not in {path}");
            let text = if path == changed { text.replace(from, to) } else { text.to_owned() };
            File { path: path.into(), text }
        };
        check(&texts.map(file))
    }

    #[test]
    fn matching_sources_have_no_findings() {
        assert_eq!(found("", "", ""), Vec::<String>::new());
    }

    #[test]
    fn every_disagreement_is_found() {
        let code = "crates/work/src/metrics.rs";
        let cases = [
            (
                DOCUMENT,
                "holdoff_work_steps",
                "holdoff_work_stepz",
                "does not mention the metric holdoff_work_steps",
            ),
            (DOCUMENT, "gauge", "counter", "calls holdoff_work_steps a counter"),
            (DOCUMENT, ", `state`", "", "gives holdoff_work_steps the labels"),
            (code, "\"state\" =>", "\"status\" =>", "gives holdoff_work_steps the labels"),
            (code, "describe_gauge!(STEPS, \"steps\");", "", "holdoff_work_steps is never described"),
            (DASHBOARD, "run_seconds", "ran_seconds", "uses holdoff_work_ran_seconds_bucket"),
            (DASHBOARD, "{operation", "{queue", "holdoff_work_run_seconds has no label `queue`"),
            (DASHBOARD, "(le)", "(queue)", "nothing in it has the label `queue`"),
            (ALERTS, "_steps{", "_step{", "uses holdoff_work_step,"),
            (ALERTS, "{state", "{stage", "holdoff_work_steps has no label `stage`"),
            (ALERTS, "$labels.queue", "$labels.operatoin", "nothing in it has the label `operatoin`"),
            (ALERTS, "#late", "#later", "Late does not say `runbook: docs/operate.md#late`"),
            (RUNBOOK, "Late", "Later", "has no heading Late"),
        ];
        for (path, from, to, expected) in cases {
            let found = found(path, from, to);
            assert!(found.iter().any(|finding| finding.contains(expected)), "{from} → {to}: {found:?}");
        }
    }
}
