//! `holdoff work show`

use std::io::Write;

use holdoff_work::{AttemptRecord, Format, Moment, Payload, StepRecord, StepState, TaskId, TaskRecord};

use super::Desk;
use crate::failure::Failure;
use crate::output::{Table, style, time};

pub(super) async fn run(desk: &Desk, id: TaskId, payloads: bool) -> Result<(), Failure> {
    let none = || Failure::Failed(format!("there is no task {id}"));
    let task = desk.work.task(id).await?.ok_or_else(none)?;
    let mut out = anstream::stdout();
    if desk.json {
        let shown = serde_json::to_string(&holdoff_server::show(&task, payloads));
        let shown = shown.map_err(|error| Failure::Failed(format!("the task cannot be shown: {error}")))?;
        return Ok(writeln!(out, "{shown}")?);
    }
    let heading = style::HEADING;
    writeln!(out, "{heading}task {}{heading:#} is {}\n", task.id, task.state)?;
    steps(&task, &mut out)?;
    if !task.attempts.is_empty() {
        writeln!(out, "\n{heading}attempts that did not succeed{heading:#}\n")?;
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
            happening(step, task.now),
        ]);
    }
    table.print(out)
}

/// Describes the current activity of a step, or the condition that it waits for.
fn happening(step: &StepRecord, now: Moment) -> String {
    let until =
        |moment: Option<Moment>| moment.map(|moment| moment.since(now)).filter(|left| !left.is_zero());
    match (step.state, until(step.due_at)) {
        (StepState::Ready, Some(left)) if step.failures > 0 => format!("next try in {}", time(left)),
        (StepState::Ready, Some(left)) => format!("runs in {}", time(left)),
        (StepState::Ready, None) => "due".to_owned(),
        (StepState::Running, _) => {
            let since = step.last_attempted_at.map_or_else(String::new, |began| time(now.since(began)));
            format!("for {since}")
        }
        (StepState::Blocked, _) => format!("waits for {}", step.waiting_for),
        (StepState::Failed | StepState::Conflicted, _) => step.message.clone().unwrap_or_default(),
        _ => step.ended_at.map_or_else(String::new, |ended| format!("{} ago", time(now.since(ended)))),
    }
}

fn attempts(task: &TaskRecord, out: &mut impl Write) -> std::io::Result<()> {
    let mut table = Table::new(["step", "began", "took", "outcome", "class", "then waited", "message"]);
    for attempt in &task.attempts {
        table.row(attempt_row(attempt));
    }
    table.print(out)
}

fn attempt_row(attempt: &AttemptRecord) -> [String; 7] {
    [
        attempt.step.number.to_string(),
        attempt.started_at.to_string(),
        time(attempt.took),
        attempt.outcome.name().to_owned(),
        attempt.class.clone().unwrap_or_default(),
        attempt.delay.map_or_else(String::new, time),
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
    let is_plain = |text: &&str| !text.chars().any(|sign| sign.is_control() && !sign.is_whitespace());
    match std::str::from_utf8(bytes).ok().filter(is_plain) {
        Some(text) => writeln!(out, "{what} of step {number}: {text}"),
        None => writeln!(out, "{what} of step {number}: {} bytes; --json shows them in base64", bytes.len()),
    }
}
