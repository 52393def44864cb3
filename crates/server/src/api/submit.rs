//! `POST /v1/tasks`

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use holdoff_work::{Submitted, TaskId, TaskState};
use serde::Serialize;

use super::{body, forms};
use crate::access::Access;
use crate::app::App;
use crate::problem::Problem;

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
    access: Access,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let body = body::read(&headers, body, app.max_body())?;
    let sent = forms::read(&body, body::trace(&headers), &access)?;
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
