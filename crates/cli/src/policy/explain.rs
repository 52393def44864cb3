//! `holdoff policy explain`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueHint;
use holdoff_policy::{Explanation, Policy, PolicySet, Wait};
use holdoff_sim::chart::{Axis, Chart, ChartMark, Range, Shape, Unit};
use serde_json::json;

use super::describe;
use crate::config::find_policy;
use crate::error::CommandError;
use crate::output::{self, Table, bar, human, range, style, time};

#[derive(clap::Args, Debug)]
pub(crate) struct ExplainArgs {
    /// Name of the policy
    name: String,

    /// Draw the delay windows into this SVG file as well
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    plot: Option<PathBuf>,
}

pub(super) fn run(args: &ExplainArgs, set: &PolicySet, json: bool) -> Result<(), CommandError> {
    let policy = find_policy(set, &args.name)?;
    print(&args.name, policy, json)?;
    match &args.plot {
        Some(file) => plot(&args.name, policy, file),
        None => Ok(()),
    }
}

/// The maximum number of printed rows. The delays after that are all equal.
const MAX_ROWS: usize = 20;

fn print(name: &str, policy: &Policy, json: bool) -> Result<(), CommandError> {
    let mut out = output::stdout();
    let explanation = policy.explain();
    if json {
        return Ok(writeln!(out, "{}", as_json(name, &explanation))?);
    }
    let (bold, faint) = (style::HEADING, style::FAINT);
    writeln!(out, "{bold}{name}{bold:#}: {}\n", describe::sentence(policy))?;
    if explanation.waits.is_empty() {
        writeln!(out, "One attempt, no retries.")?;
        return Ok(());
    }
    if explanation.possible == 0 {
        writeln!(out, "It never retries: its deadline is shorter than the first delay.")?;
        return Ok(());
    }
    print_waits(&mut out, &explanation)?;
    writeln!(out, "\n{}", verdict(policy, &explanation))?;
    for rule in describe::rules(policy) {
        writeln!(out, "{faint}{rule}{faint:#}")?;
    }
    Ok(())
}

fn print_waits(out: &mut impl Write, explanation: &Explanation) -> std::io::Result<()> {
    // Delays that do not fit the deadline are not printed.
    let most = usize::try_from(explanation.possible).unwrap_or(usize::MAX);
    let possible: Vec<&Wait> = explanation.waits.iter().take(most).collect();
    let end = possible.iter().map(|wait| wait.window.high_us()).max().unwrap_or(1);
    let fill = |picture_width: Option<usize>| {
        let mut table = Table::new(["after attempt", "delay", "mean", "total", "window"]);
        for wait in possible.iter().take(MAX_ROWS) {
            let window = wait.window;
            let picture = picture_width
                .map_or_else(String::new, |width| bar(window.low_us(), window.high_us(), end, width));
            table.styled_row([
                wait.attempt.to_string(),
                range(window.low_us(), window.high_us()),
                human(wait.mean_us),
                range(wait.total_low_us, wait.total_high_us),
                picture,
            ]);
        }
        table
    };
    let room = output::width().saturating_sub(fill(None).width_before_last() + 1);
    fill(Some(room.clamp(12, 48))).print(out)?;
    let ends_with_deadline = possible.len() < explanation.waits.len();
    if possible.len() > MAX_ROWS || (explanation.more && !ends_with_deadline) {
        writeln!(out, " …")?;
    }
    Ok(())
}

/// Summarises the total delay and the end of the attempts.
fn verdict(policy: &Policy, explanation: &Explanation) -> String {
    let deadline = policy.deadline();
    let Some(total) = explanation.total else {
        return match deadline {
            Some(deadline) => format!("Retries until its deadline of {}.", time(deadline)),
            None => "Retries without end: set attempts or a deadline.".to_owned(),
        };
    };
    let (attempts, mean) = (policy.attempts(), human(total.mean_us));
    let delay = range(total.low_us, total.high_us);
    let verdict =
        format!("Gives up after attempt {attempts}, with a total delay of {delay} ({mean} on average).");
    let Some(deadline) = deadline else { return verdict };
    if explanation.possible + 1 < attempts {
        let possible = explanation.possible + 1;
        return format!(
            "Its deadline of {} allows at most {possible} of its {attempts} attempts.",
            time(deadline)
        );
    }
    if deadline <= Duration::from_micros(total.high_us) {
        return format!("{verdict} Its deadline of {} may expire first.", time(deadline));
    }
    verdict
}

fn as_json(name: &str, explanation: &Explanation) -> serde_json::Value {
    let attempts: Vec<_> = explanation
        .waits
        .iter()
        .map(|wait| {
            json!({
                "attempt": wait.attempt.get(),
                "low_us": wait.window.low_us(),
                "high_us": wait.window.high_us(),
                "mean_us": wait.mean_us,
                "total_low_us": wait.total_low_us,
                "total_high_us": wait.total_high_us,
            })
        })
        .collect();
    let total = explanation
        .total
        .map(|total| json!({ "low_us": total.low_us, "high_us": total.high_us, "mean_us": total.mean_us }));
    json!({ "policy": name, "attempts": attempts, "more": explanation.more, "total": total })
}

/// Draws every delay window that the policy can grant.
fn plot(name: &str, policy: &Policy, file: &Path) -> Result<(), CommandError> {
    std::fs::write(file, chart(name, policy).svg())
        .map_err(|error| CommandError::Failed(format!("cannot write {}: {error}", file.display())))?;
    note!("wrote {}", file.display());
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a chart needs less precision")]
fn chart(name: &str, policy: &Policy) -> Chart {
    let waits = policy.explain().waits;
    let range = |wait: &Wait| Range {
        x: f64::from(wait.attempt.get()),
        low: wait.window.low_us() as f64,
        high: wait.window.high_us() as f64,
    };
    let shape = Shape::Ranges(waits.iter().map(range).collect());
    Chart {
        title: name.to_owned(),
        x: Axis::linear("after attempt", Unit::Count),
        y: Axis::linear("delay", Unit::Micros),
        marks: vec![ChartMark { name: describe::sentence(policy), shape }],
    }
}
