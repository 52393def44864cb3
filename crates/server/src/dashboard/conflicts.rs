//! Resolution of a conflict: the page shows the payload, the operator may edit it, and the step is retried.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use holdoff_work::{Format, Payload, StepRecord, StepState};
use serde_json::value::RawValue;

use super::chrome::{Chrome, Visitor, render};
use super::json;
use super::query::Query;
use crate::api::{self, NamedStep};
use crate::app::App;
use crate::problem::{Kind, Problem};

#[derive(Template)]
#[template(path = "conflict.html")]
struct Conflict {
    chrome: Chrome,
    step: StepRecord,
    /// The payload to edit; `None` if it is not text.
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
    let payload = step.payload.as_ref().and_then(editable);
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
    let form = Query::form(&form);
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
        // The page shows the submitted text again, with the error.
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

/// Returns the submitted payload if it differs from the current one.
fn changed(step: &StepRecord, written: &str) -> Result<Option<Payload>, Problem> {
    let Some(before) = &step.payload else { return Ok(None) };
    let Some(shown) = editable(before) else { return Ok(None) };
    // Browsers send CRLF line ends, whatever the original had.
    let written = written.replace("\r\n", "\n");
    if written == shown.replace("\r\n", "\n") {
        return Ok(None);
    }
    if before.format() != Format::Json {
        return Ok(Some(Payload::bytes(written.into_bytes())));
    }
    // Kept as written: numbers keep their digits, and keys their order.
    let json: Box<RawValue> = serde_json::from_str(&json::join(&written))
        .map_err(|why| Problem::new(Kind::InvalidBody, format!("this is not JSON: {why}")))?;
    Payload::json(&json).map(Some).map_err(|why| Problem::new(Kind::InvalidBody, why.to_string()))
}

/// Returns a payload as text that can be edited without loss, or `None` if it is not text.
fn editable(payload: &Payload) -> Option<String> {
    const MOST: usize = 32 * 1024;
    let text = std::str::from_utf8(payload.as_bytes()).ok().filter(|text| text.len() <= MOST)?;
    match payload.format() {
        Format::Empty => None,
        Format::Json => Some(json::spread(text)),
        _ => Some(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_by_being_shown() {
        let large = r#"{"url":"x","id":12345678901234567890123}"#;
        let raw: Box<RawValue> = serde_json::from_str(large).unwrap();
        let shown = editable(&Payload::json(&raw).unwrap()).unwrap();
        assert_eq!(shown, "{\n  \"url\": \"x\",\n  \"id\": 12345678901234567890123\n}");
        assert_eq!(json::join(&shown), large);
        assert_eq!(editable(&Payload::bytes(b"a,b\r\n".to_vec())).unwrap(), "a,b\r\n");
        assert!(editable(&Payload::bytes(vec![0xff])).is_none());
    }
}
