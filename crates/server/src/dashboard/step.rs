//! A step: its data, its attempts on a timeline, its next transition, and the resolution of its conflict.

use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use holdoff_work::{
    AttemptRecord, DelaySource, FailureReason, Format, Moment, Payload, QueueStats, StepRecord, StepState,
};
use serde_json::value::RawValue;

use super::chrome::{Chrome, Visitor, render};
use super::formatting;
use super::query::PageQuery;
use super::timeline::{self, Timeline};
use crate::api::{self, StepPath};
use crate::app::App;
use crate::problem::{Kind, Problem};

/// The maximum number of bytes shown of a payload.
const MAX_SHOWN_BYTES: usize = 64 * 1024;

#[derive(Template)]
#[template(path = "step.html")]
#[expect(clippy::struct_excessive_bools, reason = "the template needs these flags")]
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

/// Shows one step with its attempts.
#[utoipa::path(get, path = "/steps/{task}/{number}", tag = "pages", security(("token" = ["read", "namespace"])),
    params(("task" = String, Path, description = "The id of the task."), ("number" = u32, Path, description = "The number of the step.")),
    responses((status = 200, description = "The page.")))]
pub(super) async fn step(
    State(app): State<App>,
    visitor: Visitor,
    StepPath(id): StepPath,
) -> Result<Response, Problem> {
    let (task, step) = api::find_step(&app, &visitor.caller, id).await?;
    let attempts: Vec<AttemptRecord> =
        task.attempts.into_iter().filter(|attempt| attempt.step == id).collect();
    let policies = app.work.policies();
    let policy = policies.policy(&step.policy);
    let timeline =
        timeline::draw(&step, &attempts.iter().collect::<Vec<_>>(), policy.map(|policy| &**policy), task.now);
    let is_its_queue = |queue: &QueueStats| {
        (&queue.namespace, &queue.queue, &queue.operation) == (&step.namespace, &step.queue, &step.operation)
    };
    let is_paused = step.state == StepState::Ready
        && app.work.stats().await?.iter().any(|queue| queue.paused && is_its_queue(queue));
    let shows_payload = visitor.query.get("payload") == "shown";
    let name = step.name.clone().unwrap_or_else(|| step.operation.clone());
    let mut chrome = visitor.page("/steps", format!("{name}, {}", step.state));
    chrome.now = task.now;
    render(&StepPage {
        next: describe_next(&step, &chrome, is_paused),
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
fn describe_next(step: &StepRecord, chrome: &Chrome, is_paused: bool) -> String {
    let failures = formatting::many(u64::from(step.failures), "failure", "failures");
    let due = step.due_at.filter(|due| *due > chrome.now);
    match (step.state, due) {
        (StepState::Blocked, _) => {
            let parents = formatting::many(u64::from(step.waiting_for), "step", "steps");
            format!("Waiting for {parents} of its task.")
        }
        (StepState::Ready, _) if is_paused => format!(
            "Its operation or its queue {} is paused: it is not dispatched until an operator resumes it.",
            step.queue
        ),
        (StepState::Ready, Some(due)) if step.failures > 0 => {
            format!("After {failures}, the next attempt is due {}.", chrome.ago(&due))
        }
        (StepState::Ready, Some(due)) => format!("Due {}.", chrome.ago(&due)),
        (StepState::Ready, None) => "Due now: the next free worker claims it.".to_owned(),
        (StepState::Running, Some(due)) => {
            format!("A worker holds it. Without a heartbeat, the step is rescued {}.", chrome.ago(&due))
        }
        (StepState::Running, None) => "The lease of its worker has expired: the step is rescued.".to_owned(),
        (StepState::Failed, _) => match step.reason {
            Some(FailureReason::Permanent) => format!(
                "Failed for good after {failures}: the failure is permanent, and would most likely recur. Correct the request \
                 or the other side, then retry."
            ),
            Some(reason) => {
                format!("Failed for good after {failures}: {}. An operator can retry it.", reason.describe())
            }
            None => format!("Failed for good after {failures}. An operator can retry it."),
        },
        (StepState::Conflicted, _) => "In conflict: an operator must resolve it.".to_owned(),
        (StepState::Succeeded, _) => "Succeeded.".to_owned(),
        _ => "Ended: it will not run again.".to_owned(),
    }
}

/// Returns a payload as text for display.
fn text(payload: &Payload) -> String {
    let bytes = payload.as_bytes();
    let shown = match payload.format() {
        Format::Empty => return "(empty)".to_owned(),
        Format::Json => formatting::pretty_json(&String::from_utf8_lossy(bytes)),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return format!("({} bytes that are not text)", bytes.len()),
        },
    };
    if shown.len() <= MAX_SHOWN_BYTES {
        return shown;
    }
    let cut: String = shown.chars().take(MAX_SHOWN_BYTES / 4).collect();
    format!("{cut}\n… truncated: {} bytes in total; the API returns all of them", bytes.len())
}

#[derive(Template)]
#[template(path = "conflict.html")]
struct Conflict {
    chrome: Chrome,
    step: StepRecord,
    /// The payload to edit; `None` if it is not text.
    payload: Option<String>,
    seen: String,
    error: Option<String>,
    is_open: bool,
}

/// Shows a conflict and its payload.
#[utoipa::path(get, path = "/conflicts/{task}/{number}", tag = "pages", security(("token" = ["admin", "namespace"])),
    params(("task" = String, Path, description = "The id of the task."), ("number" = u32, Path, description = "The number of the step.")),
    responses((status = 200, description = "The page.")))]
pub(super) async fn conflict(
    State(app): State<App>,
    visitor: Visitor,
    StepPath(id): StepPath,
) -> Result<Response, Problem> {
    let (_, step) = api::find_step(&app, &visitor.caller, id).await?;
    let payload = step.payload.as_ref().and_then(editable);
    render(&conflict_page(&visitor, step, payload, None))
}

/// Resolves a conflict: the step is retried, with its payload or with the submitted one.
#[utoipa::path(post, path = "/conflicts/{task}/{number}", tag = "pages", security(("token" = ["admin", "namespace"])),
    params(("task" = String, Path, description = "The id of the task."), ("number" = u32, Path, description = "The number of the step.")),
    responses((status = 303, description = "The step is retried.")))]
pub(super) async fn resolve(
    State(app): State<App>,
    visitor: Visitor,
    StepPath(id): StepPath,
    form: String,
) -> Result<Response, Problem> {
    let form = PageQuery::form(&form);
    let (_, step) = api::find_step(&app, &visitor.caller, id).await?;
    let submitted = form.get("payload").to_owned();
    let resolved = match changed(&step, &submitted) {
        Ok(payload) => api::resolve_conflict(&app, &step, payload, Some(form.get("seen"))).await,
        Err(error) => Err(error),
    };
    match resolved {
        Ok(event) => {
            let to = format!("/steps/{}/{}?done=resolve", step.id.task, step.id.number);
            Ok((Extension(event), visitor.redirect(&to)).into_response())
        }
        // The page shows the submitted text again, with the error.
        Err(error) => {
            let page = conflict_page(&visitor, step, Some(submitted), Some(error.detail().to_owned()));
            Ok((StatusCode::UNPROCESSABLE_ENTITY, render(&page)?).into_response())
        }
    }
}

fn conflict_page(
    visitor: &Visitor,
    step: StepRecord,
    payload: Option<String>,
    error: Option<String>,
) -> Conflict {
    Conflict {
        chrome: visitor.page("/conflicts", format!("Resolve {}", step.operation)).still(),
        payload,
        seen: api::etag(&step),
        error,
        is_open: step.state == StepState::Conflicted,
        step,
    }
}

/// Returns the submitted payload if it differs from the current one.
fn changed(step: &StepRecord, submitted: &str) -> Result<Option<Payload>, Problem> {
    let Some(before) = &step.payload else { return Ok(None) };
    let Some(shown) = editable(before) else { return Ok(None) };
    // Browsers send CRLF line ends, whatever the original had.
    let submitted = submitted.replace("\r\n", "\n");
    if submitted == shown.replace("\r\n", "\n") {
        return Ok(None);
    }
    if before.format() != Format::Json {
        return Ok(Some(Payload::bytes(submitted.into_bytes())));
    }
    // Kept as written: numbers keep their digits, and keys their order.
    let json: Box<RawValue> = serde_json::from_str(&formatting::compact_json(&submitted))
        .map_err(|why| Problem::new(Kind::InvalidBody, format!("the payload is not JSON: {why}")))?;
    Payload::json(&json).map(Some).map_err(|why| Problem::new(Kind::InvalidBody, why.to_string()))
}

/// Returns a payload as text that can be edited without loss, or `None` if it is not text.
fn editable(payload: &Payload) -> Option<String> {
    const MAX_EDITABLE_BYTES: usize = 32 * 1024;
    let text =
        std::str::from_utf8(payload.as_bytes()).ok().filter(|text| text.len() <= MAX_EDITABLE_BYTES)?;
    match payload.format() {
        Format::Empty => None,
        Format::Json => Some(formatting::pretty_json(text)),
        _ => Some(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edited_payload_loses_no_digits() {
        let large = r#"{"url":"x","id":12345678901234567890123}"#;
        let raw: Box<RawValue> = serde_json::from_str(large).unwrap();
        let shown = editable(&Payload::json(&raw).unwrap()).unwrap();
        assert_eq!(shown, "{\n  \"url\": \"x\",\n  \"id\": 12345678901234567890123\n}");
        assert_eq!(formatting::compact_json(&shown), large);
        assert_eq!(editable(&Payload::bytes(b"a,b\r\n".to_vec())).unwrap(), "a,b\r\n");
        assert!(editable(&Payload::bytes(vec![0xff])).is_none());
    }
}
