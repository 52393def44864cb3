//! `POST /v1/tasks`

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use holdoff_work::{Submitted, TaskId, TaskState};
use serde::Serialize;

use super::forms;
use crate::app::App;
use crate::problem::{Kind, Problem};

/// What became of a task that was sent.
#[derive(Serialize)]
struct Taken {
    id: TaskId,
    /// Unknown of a task that is forgotten, and its key is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<TaskState>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
}

pub(crate) async fn submit(
    State(app): State<App>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    check_type(&headers)?;
    let body = body.map_err(|rejection| unread(&rejection, app.max_body()))?;
    let sent = forms::read(&body, trace(&headers)).map_err(|why| Problem::new(Kind::InvalidTask, why))?;
    let submitted = app.work.submit_all(sent.tasks).await?;
    let mut taken = Vec::with_capacity(submitted.len());
    for fate in submitted {
        let (id, duplicate) = (fate.task(), matches!(fate, Submitted::Duplicate(_)));
        let state = if duplicate {
            app.work.task(id).await?.map(|task| task.state)
        } else {
            Some(TaskState::Running)
        };
        taken.push(Taken { id, state, duplicate });
    }
    let is_new = taken.iter().any(|task| !task.duplicate);
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(match taken.first() {
        Some(task) if !sent.is_list => {
            (status, [(LOCATION, format!("/v1/tasks/{}", task.id))], Json(task)).into_response()
        }
        _ => (status, Json(taken)).into_response(),
    })
}

/// A browser asks before it sends this type to somebody else's server, and is not answered.
fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let named = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = named.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Problem::new(
        Kind::NotJson,
        "expected the header `Content-Type: application/json` (curl has `--json`)",
    ))
}

fn unread(rejection: &BytesRejection, limit: usize) -> Problem {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return Problem::new(Kind::TooLarge, format!("the body may have {limit} bytes; nothing was stored"));
    }
    Problem::new(Kind::InvalidTask, "the body did not arrive in one piece; nothing was stored")
}

/// The caller's trace. One that is not well formed is passed over, as the standard asks.
fn trace(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let lengths = parts.iter().map(|part| part.len());
    (lengths.eq([2, 32, 16, 2]) && parts.iter().all(|part| is_hex(part))).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_passed_on_if_it_is_one() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", text.parse().unwrap());
            trace(&headers).map(str::to_owned)
        };
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(read(good).as_deref(), Some(good));
        for bad in ["", "00", "00-xyz", &good[1..], &good.to_uppercase(), &format!("{good}-more")] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
