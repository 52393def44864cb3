//! `POST /v1/signals`

mod form;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use holdoff_work::{Signalled, TaskId};
use serde::Serialize;
use utoipa::ToSchema;

use super::body;
use crate::access::Access;
use crate::app::App;
use crate::claims::Elsewhere;
use crate::problem::{Problem, ProblemBody};
use crate::schema;

/// What became of a signal.
#[derive(Serialize, ToSchema)]
#[schema(as = TakenSignal)]
struct Taken {
    /// The task that deals with it.
    #[schema(value_type = schema::TaskIdText)]
    task: TaskId,
    /// Whether this signal made it.
    created: bool,
    /// How many signals it stands for.
    occurrences: u64,
    /// By which key the node of the daemon goes that has the task, if that is another.
    #[schema(pattern = "^[0-9a-f]{64}$", nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    elsewhere: Option<String>,
}

/// Takes a signal in.
///
/// Many with the same fingerprint make one task as long as it lives; the others are counted.
#[utoipa::path(post, path = "/v1/signals", tag = "signals", security(("token" = ["work", "namespace"])),
    request_body = form::SignalForm,
    responses(
        (status = 201, description = "It made a task.", body = Taken,
            headers(("location" = String, description = "Where the task is found."))),
        (status = 200, description = "A task that lives was counted up.", body = Taken),
        (status = 422, description = "There are too many names already.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 429, description = "Too many wait, or the queue is full; come back after `Retry-After`.",
            body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(crate) async fn signal(
    State(app): State<App>,
    access: Access,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let body = body::read(&headers, body, app.max_body())?;
    let signal = form::read(&body, body::trace(&headers), &access)?;
    let (signalled, elsewhere) = app.gateway.take_in(signal).await?;
    let created = matches!(signalled, Signalled::Created(_));
    let elsewhere = elsewhere.map(|Elsewhere(key)| key);
    let taken = Taken { task: signalled.task(), created, occurrences: signalled.occurrences(), elsewhere };
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = (status, Json(&taken)).into_response();
    let location = HeaderValue::try_from(format!("/v1/tasks/{}", taken.task)).ok();
    // The `Location` of a task on another daemon would not be found here.
    if let Some(location) = location.filter(|_| taken.elsewhere.is_none()) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}
