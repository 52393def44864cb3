//! `POST /v1/signals`

mod form;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use holdoff_work::{Signalled, TaskId};
use serde::Serialize;

use super::body;
use crate::access::Access;
use crate::app::App;
use crate::problem::Problem;

/// What became of a signal.
#[derive(Serialize)]
struct Taken {
    task: TaskId,
    created: bool,
    occurrences: u64,
}

pub(crate) async fn signal(
    State(app): State<App>,
    access: Access,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let body = body::read(&headers, body, app.max_body())?;
    let signal = form::read(&body, body::trace(&headers), &access)?;
    let signalled = app.gateway.take_in(signal).await?;
    let created = matches!(signalled, Signalled::Created(_));
    let taken = Taken { task: signalled.task(), created, occurrences: signalled.occurrences() };
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, [(LOCATION, format!("/v1/tasks/{}", taken.task))], Json(taken)).into_response())
}
