//! The output: the pages to open, and the summary.

use std::io::{Result, Write};
use std::path::Path;

use serde_json::json;

use super::summary::Summary;
use crate::output::Table;
use crate::output::style::{FAINT, HEADING, NOTE, WARNING};

/// The dashboard's pages and their content.
const PAGES: [(&str, &str); 10] = [
    ("/", "the whole: rates, backlog, what fails and where, open breakers"),
    ("/tasks", "orders of five steps: charge and pack go side by side"),
    ("/steps?operation=payments.charge", "told to come back later (429), they do"),
    ("/failed", "legacy.export: refused for good (400), given up at once"),
    ("/conflicts", "crm.sync: correct the revision, resolve, and it goes on"),
    ("/signals", "dozens of alarms about a full disk, one task"),
    ("/locks", "deploy/production: who has it, its token, how many wait"),
    ("/queues", "newsletters wait: their queue is paused, and let go once a minute"),
    ("/policies", "a second version comes into force; see what changed"),
    ("/audit", "what the operator did; /nodes and /settings: who works here, and how"),
];

/// The scheduled events.
const HAPPENS: [(&str, &str); 5] = [
    ("3s", "the mail service is down for 20 s of every minute: the breaker opens, and closes again"),
    ("4s", "the operator decides a conflict, and so on through the minute"),
    ("5s", "policies are published"),
    ("8s", "a worker process is killed; its photos come back 3 s later"),
    ("10s", "tokens for reports expire every ten seconds, and are replaced"),
];

/// The settings of this run.
pub(super) struct Setting<'a> {
    pub(super) url: &'a str,
    pub(super) seed: u64,
    /// The reason why the daemon does not use its usual port.
    pub(super) moved: Option<&'a str>,
    /// The directory in which the store stays.
    pub(super) kept: Option<&'a Path>,
}

/// Prints the addresses of the pages.
pub(super) fn greet(setting: &Setting<'_>, is_json: bool) -> Result<()> {
    let mut out = anstream::stdout();
    let Setting { url, seed, moved, kept } = setting;
    if is_json {
        let kept = kept.map(|path| path.display().to_string());
        return writeln!(out, "{}", json!({ "url": url, "seed": seed, "data": kept }));
    }
    writeln!(out, "{HEADING}{url}{HEADING:#}  {FAINT}the demo of holdoff, seed {seed}{FAINT:#}")?;
    if let Some(why) = moved {
        writeln!(out, "{why}")?;
    }
    list(&mut out, "What to look at", &PAGES)?;
    list(&mut out, "What happens, in every minute", &HAPPENS)?;
    let end = match kept {
        None => "The operator goes on all the while, and may undo what you do.\nCtrl-C ends it and removes everything.".to_owned(),
        Some(path) => format!("Ctrl-C ends it; the store stays in {}.", path.display()),
    };
    writeln!(out, "\n{end}")
}

fn list(out: &mut impl Write, heading: &str, rows: &[(&str, &str)]) -> Result<()> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    writeln!(out, "\n{HEADING}{heading}{HEADING:#}")?;
    rows.iter().try_for_each(|(name, about)| writeln!(out, "  {NOTE}{name:<width$}{NOTE:#}  {about}"))
}

/// Prints the summary.
pub(super) fn summarise(summary: &Summary, is_json: bool) -> Result<()> {
    let mut out = anstream::stdout();
    if is_json {
        return writeln!(out, "{:#}", json!(summary));
    }
    let Summary { submitted, steps, attempts, signals, locks, target, .. } = summary;
    let mut table = Table::new(["what", "how many", ""]);
    let mut row = |what: &str, count: u64, about: &str| {
        table.row([what.to_owned(), count.to_string(), about.to_owned()]);
    };
    row("tasks submitted", submitted.tasks, "");
    row("steps of them", submitted.steps, "= all that follow");
    row("  succeeded", steps.succeeded, "");
    row("  failed", steps.failed, "given up by their policy");
    row("  conflicted", steps.conflicted, "somebody must decide");
    row("  discarded", steps.discarded, "given up by the operator");
    row("  cancelled", steps.cancelled, "");
    row("  left: paused", steps.left.paused, "their queue is paused");
    row("  left: blocked", steps.left.blocked, "a step before them is not done");
    row("  left: unfinished", steps.left.unfinished, "they did not end in time");
    row("attempts", attempts.made, "");
    row("  tried again", attempts.retried, "because the policy said so");
    row("  rescued", attempts.rescued, "their worker was killed");
    row("signals sent", signals.sent, "");
    row("  tasks made of them", signals.tasks, "");
    row("locks granted", locks.granted, "");
    row("  highest token", locks.highest_token, "");
    row("requests to the target", target.requests, "");
    row("  refused", target.refused, "");
    row("  answered too late", target.late, "");
    row("  asked for again", target.repeated, "and not done again");
    row("  done", target.done, "each once: by its idempotency key");
    table.print(&mut out)?;
    writeln!(out)?;
    if summary.wrong.is_empty() {
        return writeln!(
            out,
            "It adds up: what was sent, what the store holds and what the target did agree."
        );
    }
    writeln!(out, "{WARNING}It does not add up{WARNING:#} (seed {}):", summary.seed)?;
    summary.wrong.iter().try_for_each(|wrong| writeln!(out, "  {wrong}"))
}
