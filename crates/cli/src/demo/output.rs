//! The output: the pages to open, progress messages and the summary.

use std::io::{Result, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::summary::Summary;
use crate::output::style::{FAINT, HEADING, NOTE, WARNING};
use crate::output::{self, Table};

/// The dashboard's pages and their content.
const PAGES: [(&str, &str); 10] = [
    ("/", "overview: rates, backlog, failures by operation and destination, open breakers"),
    ("/tasks", "orders of five steps; charge and pack run in parallel"),
    ("/steps?operation=payments.charge", "rate limited (429) and retried after Retry-After"),
    ("/failed", "legacy.export: permanent failure (400), not retried"),
    ("/conflicts", "crm.sync: correct the revision and resolve the conflict"),
    ("/signals", "dozens of alerts about a full disk, one task"),
    ("/locks", "deploy/production: holder, fencing token, number of waiters"),
    ("/queues", "the newsletter queue is paused, and resumed once a minute"),
    ("/policies", "a second version becomes active; compare the versions"),
    ("/audit", "the operator's actions; /nodes and /settings show the nodes and the configuration"),
];

/// The scheduled events.
const EVENTS: [(&str, &str); 5] = [
    ("3s", "the mail service is down for 20 s of every minute; the breaker opens and closes again"),
    ("4s", "the operator resolves a conflict, and acts again throughout the minute"),
    ("5s", "the operator deploys new policies"),
    ("8s", "a worker process is killed; its steps are rescued 3 s later"),
    ("10s", "access tokens for reports expire every ten seconds and are refreshed"),
];

/// The settings of this run.
pub(super) struct RunInfo<'a> {
    pub(super) url: &'a str,
    pub(super) seed: u64,
    /// The reason why the daemon does not use its usual port.
    pub(super) moved: Option<&'a str>,
    /// The directory in which the store stays.
    pub(super) kept: Option<&'a Path>,
}

/// Prints the addresses of the pages.
pub(super) fn print_greeting(info: &RunInfo<'_>, is_json: bool) -> Result<()> {
    let mut out = output::stdout();
    let RunInfo { url, seed, moved, kept } = info;
    if is_json {
        let kept = kept.map(|path| path.display().to_string());
        return writeln!(out, "{}", json!({ "url": url, "seed": seed, "data": kept }));
    }
    writeln!(out, "{HEADING}{url}{HEADING:#}  {FAINT}holdoff demo, seed {seed}{FAINT:#}")?;
    if let Some(why) = moved {
        writeln!(out, "{why}")?;
    }
    list(&mut out, "Pages", &PAGES)?;
    list(&mut out, "Events in every minute", &EVENTS)?;
    let end = match kept {
        None => "The simulated operator keeps acting and may revert your changes.\nCtrl-C stops the demo and removes its files.".to_owned(),
        Some(path) => format!("Ctrl-C stops the demo; the store stays in {}.", path.display()),
    };
    writeln!(out, "\n{end}")
}

fn list(out: &mut impl Write, heading: &str, rows: &[(&str, &str)]) -> Result<()> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    writeln!(out, "\n{HEADING}{heading}{HEADING:#}")?;
    rows.iter().try_for_each(|(name, about)| writeln!(out, "  {NOTE}{name:<width$}{NOTE:#}  {about}"))
}

/// Prints the summary.
pub(super) fn print_summary(summary: &Summary, is_json: bool) -> Result<()> {
    let mut out = output::stdout();
    if is_json {
        return writeln!(out, "{:#}", json!(summary));
    }
    let Summary { submitted, steps, attempts, signals, locks, target, .. } = summary;
    let mut table = Table::new(["", "count", "note"]);
    let mut row = |what: &str, count: u64, about: &str| {
        table.row([what.to_owned(), count.to_string(), about.to_owned()]);
    };
    row("tasks submitted", submitted.tasks, "");
    row("steps submitted", submitted.steps, "the sum of the following rows");
    row("  succeeded", steps.succeeded, "");
    row("  failed", steps.failed, "all attempts used, or permanent");
    row("  conflicted", steps.conflicted, "an operator must resolve them");
    row("  discarded", steps.discarded, "by the operator");
    row("  cancelled", steps.cancelled, "");
    row("  paused", steps.unfinished.paused, "their queue is paused");
    row("  blocked", steps.unfinished.blocked, "they wait for another step");
    row("  unfinished", steps.unfinished.other, "at the end of the drain timeout");
    row("attempts", attempts.made, "");
    row("  retried", attempts.retried, "by the policy");
    row("  rescued", attempts.rescued, "after their worker was killed");
    row("signals sent", signals.sent, "");
    row("  tasks created", signals.tasks, "");
    row("locks granted", locks.granted, "");
    row("  highest fencing token", locks.highest_token, "");
    row("requests to the target", target.requests, "");
    row("  refused", target.refused, "");
    row("  answered after the timeout", target.late, "");
    row("  repeated", target.repeated, "without a second effect");
    row("  effects", target.done, "one per idempotency key");
    table.print(&mut out)?;
    writeln!(out)?;
    if summary.inconsistencies.is_empty() {
        return writeln!(out, "The summary is consistent: the senders, the store and the target agree.");
    }
    writeln!(out, "{WARNING}The summary is inconsistent{WARNING:#} (seed {}):", summary.seed)?;
    summary.inconsistencies.iter().try_for_each(|problem| writeln!(out, "  {problem}"))
}

/// The time after which the messages end, because the schedule repeats.
const QUIET_AFTER: Duration = Duration::from_secs(60);

/// Prints events with their time. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgressLog {
    since: Instant,
}

impl ProgressLog {
    pub(super) const fn new(since: Instant) -> Self {
        Self { since }
    }

    pub(super) fn print(&self, what: &str) {
        let at = self.since.elapsed();
        if at < QUIET_AFTER {
            note!("{FAINT}{:>3}s{FAINT:#}  {what}", at.as_secs());
        }
    }
}
