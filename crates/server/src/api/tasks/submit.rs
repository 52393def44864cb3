//! `POST /v1/tasks`

use axum::Json;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use holdoff_work::{Fingerprint, Submitted, TaskId, TaskState};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::input::{JsonBytes, traceparent};
use super::form::{self, TaskBatch, TaskSubmission};
use crate::access::Caller;
use crate::app::App;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::schema;

/// The result of the submission of one task.
#[derive(Serialize, ToSchema)]
#[schema(as = AcceptedTask)]
struct AcceptedTask {
    #[schema(value_type = schema::TaskIdText)]
    id: TaskId,
    /// The state; absent if the task has been pruned while its key is still remembered.
    #[schema(value_type = schema::TaskStateWord, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<TaskState>,
    /// Whether this is an earlier task with the same key.
    #[schema(required = false)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
}

/// The result of a submission of one task, or of several.
#[derive(ToSchema)]
#[schema(as = AcceptedTasks)]
#[serde(untagged)]
#[expect(dead_code, reason = "only the API document uses it")]
enum AcceptedTasks {
    One(AcceptedTask),
    Several(Vec<AcceptedTask>),
}

/// Submits tasks.
///
/// When the response arrives, all tasks are durable, or none was accepted.
#[utoipa::path(post, path = "/v1/tasks", tag = "tasks", security(("token" = ["work", "namespace"])),
    params(("idempotency-key" = Option<String>, Header, min_length = 1, max_length = 150,
        description = "A repeated request with the same key creates no second task; with another body it is rejected.")),
    request_body = TaskSubmission,
    responses(
        (status = 201, description = "The tasks are durable.", body = AcceptedTasks,
            headers(("location" = String, description = "The path of the task, if the body was a single task."))),
        (status = 200, description = "All tasks were accepted before.", body = AcceptedTasks),
        (status = 422, description = "The key was used with another body, or too many queues and operations exist already.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 429, description = "The queue is full; retry after `Retry-After`.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn submit(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    let mut batch = form::read(&body, traceparent(&headers), &caller)?;
    let fingerprint = apply_idempotency_key(&headers, &body, &mut batch)?;
    let submitted = app.work.submit_all(batch.tasks).await?;
    if let (Some(fingerprint), Some(Submitted::Duplicate(task))) = (fingerprint, submitted.first())
        && !task.has_fingerprint(fingerprint)
    {
        let detail = format!("this Idempotency-Key was used for task {task} with another body");
        return Err(Problem::new(Kind::KeyReused, detail));
    }
    let mut accepted = Vec::with_capacity(submitted.len());
    for outcome in submitted {
        let (id, duplicate) = (outcome.task(), matches!(outcome, Submitted::Duplicate(_)));
        let state = if duplicate {
            app.work.task_outline(id).await?.map(|task| task.state)
        } else {
            Some(TaskState::Running)
        };
        accepted.push(AcceptedTask { id, state, duplicate });
    }
    let is_new = accepted.iter().any(|task| !task.duplicate);
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(match accepted.first() {
        Some(task) if !batch.is_list => {
            (status, [(LOCATION, format!("/v1/tasks/{}", task.id))], Json(task)).into_response()
        }
        _ => (status, Json(accepted)).into_response(),
    })
}

/// The maximum length of an idempotency key.
const MAX_KEY_BYTES: usize = 150;

/// Uses `Idempotency-Key` as the task's `dedup` key, and stores a fingerprint of key and body with the task. The
/// fingerprint detects a reused key with another body.
fn apply_idempotency_key(
    headers: &HeaderMap,
    body: &[u8],
    batch: &mut TaskBatch,
) -> Result<Option<Fingerprint>, Problem> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let invalid = |why: &str| Problem::new(Kind::InvalidTask, format!("Idempotency-Key: {why}"));
    let is_plain = |key: &&str| (1..=MAX_KEY_BYTES).contains(&key.len());
    let key = key.to_str().ok().filter(is_plain);
    let key = key.ok_or_else(|| invalid("expected 1 to 150 printable characters"))?;
    let (false, Some(task)) = (batch.is_list, batch.tasks.pop()) else {
        return Err(invalid("it identifies one task; in a list, give each task a `dedup` key"));
    };
    if task.has_dedup() {
        return Err(invalid("the task already has a `dedup` key"));
    }
    let fingerprint = Fingerprint::of([key.as_bytes(), body]);
    batch.tasks.push(task.dedup(format!("idempotency-key: {key}")).request_fingerprint(fingerprint));
    Ok(Some(fingerprint))
}

const IDEMPOTENCY_KEY: &str = "idempotency-key";
