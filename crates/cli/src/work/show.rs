//! `holdoff work show`

use std::io::Write;
use std::time::Duration;

use holdoff_server::TaskView;
use holdoff_work::{AttemptRecord, Format, Moment, Payload, StepRecord, StepState, TaskRecord};

use super::WorkContext;
use super::act::Target;
use crate::error::CommandError;
use crate::output::{self, Table, style, time};

#[derive(clap::Args, Debug)]
pub(super) struct ShowArgs {
    /// Task, or a step of it as TASK/NUMBER
    #[arg(value_name = "TASK")]
    target: Target,

    /// Show payloads and outputs
    #[arg(long)]
    payloads: bool,
}

pub(super) async fn run(context: &WorkContext, args: &ShowArgs) -> Result<(), CommandError> {
    let ShowArgs { target, payloads } = *args;
    let id = target.task();
    let none = || CommandError::Failed(format!("there is no task {id}"));
    let work = &context.work;
    let task = if payloads { work.task(id).await? } else { work.task_outline(id).await? };
    let task = task.ok_or_else(none)?;
    if let Target::Step(step) = target
        && task.steps.iter().all(|one| one.id != step)
    {
        return Err(CommandError::Failed(format!("task {id} has no step {}", step.number)));
    }
    let mut out = output::stdout();
    if context.json {
        let shown = serde_json::to_string(&TaskView::new(&task));
        let shown =
            shown.map_err(|error| CommandError::Failed(format!("cannot format the task: {error}")))?;
        return Ok(writeln!(out, "{shown}")?);
    }
    let heading = style::HEADING;
    writeln!(out, "{heading}task {}{heading:#} is {}\n", task.id, task.state)?;
    steps(&task, &mut out)?;
    if !task.attempts.is_empty() {
        writeln!(out, "\n{heading}unsuccessful attempts{heading:#}\n")?;
        attempts(&task, &mut out)?;
    }
    if payloads {
        for step in &task.steps {
            writeln!(out)?;
            print_payload(&mut out, step, "payload", step.payload.as_ref())?;
            print_payload(&mut out, step, "output", step.output.as_ref())?;
        }
    }
    Ok(())
}

fn steps(task: &TaskRecord, out: &mut impl Write) -> std::io::Result<()> {
    let mut table = Table::new(["step", "name", "operation", "state", "failures", "policy", "now"]);
    for step in &task.steps {
        table.row([
            step.id.number.to_string(),
            step.name.clone().unwrap_or_default(),
            step.operation.clone(),
            step.state.to_string(),
            step.failures.to_string(),
            step.policy.clone(),
            activity(step, task.now),
        ]);
    }
    table.print(out)
}

/// Describes the current activity of a step, or the condition that it waits for.
fn activity(step: &StepRecord, now: Moment) -> String {
    let until =
        |moment: Option<Moment>| moment.map(|moment| moment.since(now)).filter(|left| !left.is_zero());
    let doing = doing(step, now, until(step.due_at));
    match until(step.expires_at).filter(|_| matches!(step.state, StepState::Blocked | StepState::Ready)) {
        Some(left) => format!("{doing}, expires in {}", time(left)),
        None => doing,
    }
}

fn doing(step: &StepRecord, now: Moment, due_in: Option<Duration>) -> String {
    match (step.state, due_in) {
        (StepState::Ready, Some(left)) if step.failures > 0 => format!("next attempt in {}", time(left)),
        (StepState::Ready, Some(left)) => format!("runs in {}", time(left)),
        (StepState::Ready, None) => "due".to_owned(),
        (StepState::Running, _) => {
            let since = step.last_attempted_at.map_or_else(String::new, |began| time(now.since(began)));
            format!("for {since}")
        }
        (StepState::Blocked, _) if step.waiting_for == 1 => "waits for 1 step".to_owned(),
        (StepState::Blocked, _) => format!("waits for {} steps", step.waiting_for),
        (StepState::Failed | StepState::Conflicted, _) => {
            let reason = step.reason.map(|reason| format!("{}: ", reason.name())).unwrap_or_default();
            reason + step.message.as_deref().unwrap_or_default()
        }
        _ => step.ended_at.map_or_else(String::new, |ended| format!("{} ago", time(now.since(ended)))),
    }
}

fn attempts(task: &TaskRecord, out: &mut impl Write) -> std::io::Result<()> {
    let columns = ["step", "started", "duration", "outcome", "class", "next delay", "retry-after", "message"];
    let mut table = Table::new(columns);
    for attempt in &task.attempts {
        table.row(attempt_row(attempt));
    }
    table.print(out)
}

fn attempt_row(attempt: &AttemptRecord) -> [String; 8] {
    [
        attempt.step.number.to_string(),
        attempt.started_at.to_string(),
        time(attempt.took),
        attempt.outcome.name().to_owned(),
        attempt.class.clone().unwrap_or_default(),
        match (attempt.delay, attempt.delay_source) {
            (Some(delay), Some(source)) => format!("{} by {}", time(delay), source.name()),
            (delay, _) => delay.map_or_else(String::new, time),
        },
        attempt.retry_after.map_or_else(String::new, time),
        attempt.message.clone().unwrap_or_default(),
    ]
}

/// Prints a payload. Binary content is summarised, because it could corrupt the terminal.
fn print_payload(
    out: &mut impl Write,
    step: &StepRecord,
    what: &str,
    payload: Option<&Payload>,
) -> std::io::Result<()> {
    let number = step.id.number;
    let Some(payload) = payload.filter(|payload| payload.format() != Format::Empty) else {
        return writeln!(out, "{what} of step {number}: none");
    };
    let bytes = payload.as_bytes();
    let is_plain = |text: &&str| !text.chars().any(|c| c.is_control() && !c.is_whitespace());
    match std::str::from_utf8(bytes).ok().filter(is_plain) {
        Some(text) => writeln!(out, "{what} of step {number}: {text}"),
        None => writeln!(out, "{what} of step {number}: {} bytes; --json prints them in base64", bytes.len()),
    }
}
