//! A step: its data, its attempts on a timeline, and its next transition.

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use holdoff_policy::Class;
use holdoff_work::{AttemptRecord, Format, Moment, Payload, QueueStats, StepRecord, StepState};

use super::chrome::{Chrome, Visitor, render};
use super::json;
use super::timeline::{self, Timeline};
use super::words;
use crate::api::{self, NamedStep};
use crate::app::App;
use crate::problem::Problem;

/// The maximum number of bytes shown of a payload.
const MOST_SHOWN: usize = 64 * 1024;

#[derive(Template)]
#[template(path = "step.html")]
#[expect(clippy::struct_excessive_bools, reason = "a template asks many small questions")]
struct StepPage {
    chrome: Chrome,
    step: StepRecord,
    number: String,
    attempts: Vec<AttemptRecord>,
    timeline: Option<Timeline>,
    /// The successful attempt: its start, and its duration.
    success: Option<(Moment, Duration)>,
    /// The next transition, in words.
    next: String,
    has_policy: bool,
    shows_payload: bool,
    payload: Option<String>,
    output: Option<String>,
    can_retry: bool,
    is_over: bool,
}

/// One step with its tries.
#[utoipa::path(get, path = "/steps/{task}/{number}", tag = "pages", security(("token" = ["read", "namespace"])),
    params(("task" = String, Path, description = "Its task."), ("number" = u32, Path, description = "Its number.")),
    responses((status = 200, description = "The page.")))]
pub(super) async fn step(
    State(app): State<App>,
    visitor: Visitor,
    NamedStep(id): NamedStep,
) -> Result<Response, Problem> {
    let (task, step) = api::find_step(&app, &visitor.access, id).await?;
    let attempts: Vec<AttemptRecord> =
        task.attempts.into_iter().filter(|attempt| attempt.step == id).collect();
    let policies = app.work.policies();
    let policy = policies.policy(&step.policy);
    let timeline =
        timeline::draw(&step, &attempts.iter().collect::<Vec<_>>(), policy.map(|policy| &**policy), task.now);
    let is_its_lane = |lane: &QueueStats| {
        (&lane.namespace, &lane.queue, &lane.operation) == (&step.namespace, &step.queue, &step.operation)
    };
    let is_paused = step.state == StepState::Ready
        && app.work.stats().await?.iter().any(|lane| lane.paused && is_its_lane(lane));
    let shows_payload = visitor.query.get("payload") == "shown";
    let name = step.name.clone().unwrap_or_else(|| step.operation.clone());
    let mut chrome = visitor.page("/steps", format!("{name}, {}", step.state));
    chrome.now = task.now;
    render(&StepPage {
        next: next(&step, &chrome, is_paused),
        success: success(&step),
        number: step.id.number.to_string(),
        has_policy: policy.is_some(),
        payload: step.payload.as_ref().filter(|_| shows_payload).map(text),
        output: step.output.as_ref().filter(|_| shows_payload).map(text),
        can_retry: matches!(step.state, StepState::Failed | StepState::Conflicted),
        is_over: StepState::OVER.contains(&step.state),
        shows_payload,
        attempts,
        timeline,
        step,
        chrome,
    })
}

/// Returns the successful attempt, which the store does not record among the attempts.
fn success(step: &StepRecord) -> Option<(Moment, Duration)> {
    let began = step.last_attempted_at.filter(|_| step.state == StepState::Succeeded)?;
    Some((began, step.ended_at?.since(began)))
}

/// Returns the next transition of a step and its time, in words.
fn next(step: &StepRecord, chrome: &Chrome, is_paused: bool) -> String {
    let tries = words::many(u64::from(step.failures), "failure", "failures");
    let due = step.due_at.filter(|due| *due > chrome.now);
    match (step.state, due) {
        (StepState::Blocked, _) => {
            let parents = words::many(u64::from(step.waiting_for), "step", "steps");
            format!("It waits for {parents} of its task.")
        }
        (StepState::Ready, _) if is_paused => format!(
            "Its operation, or its queue {}, is paused: nothing happens until somebody resumes it.",
            step.queue
        ),
        (StepState::Ready, Some(due)) if step.failures > 0 => {
            format!("After {tries}, it is tried again {}.", chrome.ago(&due))
        }
        (StepState::Ready, Some(due)) => format!("It may run {}.", chrome.ago(&due)),
        (StepState::Ready, None) => "It is due: the next free worker takes it.".to_owned(),
        (StepState::Running, Some(due)) => format!(
            "A worker has it. If nothing is heard of that worker, the step is taken back {}.",
            chrome.ago(&due)
        ),
        (StepState::Running, None) => "A worker had it and is silent: the step is taken back.".to_owned(),
        (StepState::Failed, _) if step.class.as_deref() == Some(Class::Permanent.name()) => format!(
            "Given up after {tries}: it was refused for good, and the same would most likely be refused again. Mend what \
             is sent or who refuses it, then retry."
        ),
        (StepState::Failed, _) => {
            format!("Given up after {tries}. Nothing happens unless somebody retries it.")
        }
        (StepState::Conflicted, _) => "Nothing happens until somebody decides: resolve it.".to_owned(),
        (StepState::Succeeded, _) => "It is done.".to_owned(),
        _ => "It will not run again.".to_owned(),
    }
}

/// Returns a payload as text for display.
fn text(payload: &Payload) -> String {
    let bytes = payload.as_bytes();
    let shown = match payload.format() {
        Format::Empty => return "(empty)".to_owned(),
        Format::Json => json::spread(&String::from_utf8_lossy(bytes)),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return format!("({} bytes that are no text)", bytes.len()),
        },
    };
    if shown.len() <= MOST_SHOWN {
        return shown;
    }
    let cut: String = shown.chars().take(MOST_SHOWN / 4).collect();
    format!("{cut}\n… cut: {} bytes in all; the API shows the rest", bytes.len())
}
