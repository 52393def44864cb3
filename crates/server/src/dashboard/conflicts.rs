//! Deciding a conflict: look at what was sent, change it if need be, and try again.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use holdoff_work::{Format, Payload, StepRecord, StepState};

use super::chrome::{Chrome, Visitor, render};
use super::query::Query;
use super::step::text;
use crate::api::{self, NamedStep};
use crate::app::App;
use crate::problem::{Kind, Problem};

#[derive(Template)]
#[template(path = "conflict.html")]
struct Conflict {
    chrome: Chrome,
    step: StepRecord,
    /// What is sent, to be changed; nothing if it is no text.
    payload: Option<String>,
    seen: String,
    wrong: Option<String>,
    is_open: bool,
}

/// A conflict, and what can be changed about it.
#[utoipa::path(get, path = "/conflicts/{task}/{number}", tag = "pages", security(("token" = ["admin", "namespace"])),
    params(("task" = String, Path, description = "Its task."), ("number" = u32, Path, description = "Its number.")),
    responses((status = 200, description = "The page.")))]
pub(super) async fn conflict(
    State(app): State<App>,
    visitor: Visitor,
    NamedStep(id): NamedStep,
) -> Result<Response, Problem> {
    let (_, step) = api::find_step(&app, &visitor.access, id).await?;
    let payload = step.payload.as_ref().filter(|payload| is_text(payload)).map(text);
    render(&page(&visitor, step, payload, None))
}

/// Resolves it: the step is tried again, as it was or with what was written.
#[utoipa::path(post, path = "/conflicts/{task}/{number}", tag = "pages", security(("token" = ["admin", "namespace"])),
    params(("task" = String, Path, description = "Its task."), ("number" = u32, Path, description = "Its number.")),
    responses((status = 303, description = "It is tried again.")))]
pub(super) async fn resolve(
    State(app): State<App>,
    visitor: Visitor,
    NamedStep(id): NamedStep,
    form: String,
) -> Result<Response, Problem> {
    let form = Query::read(&form);
    let (_, step) = api::find_step(&app, &visitor.access, id).await?;
    let written = form.get("payload").to_owned();
    let decided = match changed(&step, &written) {
        Ok(payload) => api::decide_conflict(&app, &step, payload, Some(form.get("seen"))).await,
        Err(wrong) => Err(wrong),
    };
    match decided {
        Ok(deed) => {
            let to = format!("/steps/{}/{}?done=resolve", step.id.task, step.id.number);
            Ok((Extension(deed), visitor.send(&to)).into_response())
        }
        // What was written is not lost: it stands there again, with what is wrong about it.
        Err(wrong) => {
            let page = page(&visitor, step, Some(written), Some(wrong.detail().to_owned()));
            Ok((StatusCode::UNPROCESSABLE_ENTITY, render(&page)?).into_response())
        }
    }
}

fn page(visitor: &Visitor, step: StepRecord, payload: Option<String>, wrong: Option<String>) -> Conflict {
    Conflict {
        chrome: visitor.page("/conflicts", format!("Resolve {}", step.operation)).still(),
        payload,
        seen: api::etag(&step),
        wrong,
        is_open: step.state == StepState::Conflicted,
        step,
    }
}

/// The payload that was written, if it is another than before.
fn changed(step: &StepRecord, written: &str) -> Result<Option<Payload>, Problem> {
    let Some(before) = step.payload.as_ref().filter(|payload| is_text(payload)) else { return Ok(None) };
    // Browsers end lines with a carriage return.
    let written = written.replace("\r\n", "\n");
    if written.trim() == text(before).trim() {
        return Ok(None);
    }
    if before.format() != Format::Json {
        return Ok(Some(Payload::bytes(written.into_bytes())));
    }
    let json: serde_json::Value = serde_json::from_str(&written)
        .map_err(|why| Problem::new(Kind::InvalidBody, format!("this is no JSON: {why}")))?;
    Payload::json(&json).map(Some).map_err(|why| Problem::new(Kind::InvalidBody, why.to_string()))
}

/// Whether a payload can be changed by hand without losing any of it.
fn is_text(payload: &Payload) -> bool {
    const MOST: usize = 32 * 1024;
    payload.as_bytes().len() <= MOST
        && match payload.format() {
            Format::Json => true,
            Format::Empty => false,
            _ => std::str::from_utf8(payload.as_bytes()).is_ok(),
        }
}
