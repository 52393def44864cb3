//! `POST /v1/tasks`

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use holdoff_work::{Fingerprint, Submitted, TaskId, TaskState};
use serde::Serialize;
use utoipa::ToSchema;

use super::{body, forms};
use crate::access::Access;
use crate::app::App;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::schema;

/// What became of a task that was sent.
#[derive(Serialize, ToSchema)]
#[schema(as = TakenTask)]
struct Taken {
    #[schema(value_type = schema::TaskIdText)]
    id: TaskId,
    /// Unknown of a task that is forgotten, and its key is not.
    #[schema(value_type = schema::TaskStateWord, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<TaskState>,
    /// Whether a task with the same key was taken in before; this is it.
    #[schema(required = false)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
}

/// What became of what was sent: of one task, or of several.
#[derive(ToSchema)]
#[schema(as = TakenTasks)]
#[serde(untagged)]
#[expect(dead_code, reason = "it stands in the document only")]
enum TakenTasks {
    One(Taken),
    Several(Vec<Taken>),
}

/// Takes tasks in.
///
/// When this is answered, they are durable: all of them, or none.
#[utoipa::path(post, path = "/v1/tasks", tag = "tasks", security(("token" = ["work", "namespace"])),
    params(("idempotency-key" = Option<String>, Header, min_length = 1, max_length = 150,
        description = "A task that is sent again under the same key is taken in once; with another body it is refused.")),
    request_body = forms::SentForm,
    responses(
        (status = 201, description = "Taken in.", body = TakenTasks,
            headers(("location" = String, description = "Where a single task is found."))),
        (status = 200, description = "All of them were taken in before.", body = TakenTasks),
        (status = 422, description = "The key was used with another body, or there are too many names already.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 429, description = "The queue is full; come back after `Retry-After`.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(crate) async fn submit(
    State(app): State<App>,
    access: Access,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let body = body::read(&headers, body, app.max_body())?;
    let mut sent = forms::read(&body, body::trace(&headers), &access)?;
    let mark = idempotent(&headers, &body, &mut sent)?;
    let submitted = app.work.submit_all(sent.tasks).await?;
    if let (Some(mark), Some(Submitted::Duplicate(task))) = (mark, submitted.first())
        && !task.bears(mark)
    {
        let detail = format!("under this Idempotency-Key task {task} was taken in, and its body was another");
        return Err(Problem::new(Kind::KeyReused, detail));
    }
    let mut taken = Vec::with_capacity(submitted.len());
    for fate in submitted {
        let (id, duplicate) = (fate.task(), matches!(fate, Submitted::Duplicate(_)));
        let state = if duplicate {
            app.work.task_outline(id).await?.map(|task| task.state)
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

/// The maximum length of an idempotency key.
const LONGEST_KEY: usize = 150;

/// Uses `Idempotency-Key` as the task's `dedup` key, and stores a fingerprint of key and body with the task. The
/// fingerprint detects a reused key with another body.
fn idempotent(
    headers: &HeaderMap,
    body: &[u8],
    sent: &mut forms::Sent,
) -> Result<Option<Fingerprint>, Problem> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let refused = |why: &str| Problem::new(Kind::InvalidTask, format!("Idempotency-Key: {why}"));
    let is_plain = |key: &&str| (1..=LONGEST_KEY).contains(&key.len());
    let key = key.to_str().ok().filter(is_plain);
    let key = key.ok_or_else(|| refused("expected 1 to 150 characters that are printed"))?;
    let (false, Some(task)) = (sent.is_list, sent.tasks.pop()) else {
        return Err(refused("it stands for one task; give those of a list a `dedup` each"));
    };
    if task.has_dedup() {
        return Err(refused("the task has a `dedup` key of its own"));
    }
    let mark = Fingerprint::of([key.as_bytes(), body]);
    sent.tasks.push(task.dedup(format!("idempotency-key: {key}")).mark(mark));
    Ok(Some(mark))
}

const IDEMPOTENCY_KEY: &str = "idempotency-key";
