//! `/v1/queues`, `/v1/operations` and `/v1/namespaces`

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use holdoff_policy::{PolicySet, as_micros_u64};
use holdoff_work::{Pausable, QueueStats};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::input::{JsonBody, Query, check_text};
use super::list::{self, ListPage};
use crate::access::Caller;
use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::token_store::AuditEvent;

/// The maximum length of a name.
const MAX_NAME_CHARS: usize = 200;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_queues))
        .routes(routes!(pause_queue))
        .routes(routes!(resume_queue))
        .routes(routes!(pause_operation))
        .routes(routes!(resume_operation))
        .routes(routes!(namespaces))
}

/// The number of steps of a queue and operation, by state.
#[derive(Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Queue)]
pub(crate) struct QueueView {
    pub(crate) namespace: String,
    pub(crate) queue: String,
    pub(crate) operation: String,
    pub(crate) paused: bool,
    /// Steps that wait for a parent.
    blocked: u64,
    /// Steps that are due now.
    due: u64,
    /// Steps that are due later.
    waiting: u64,
    /// Steps that a worker holds.
    running: u64,
    /// Steps that have failed for good.
    failed: u64,
    /// Steps that wait for an operator's decision.
    conflicted: u64,
    /// Steps that have succeeded and are still in the history.
    succeeded: u64,
    /// Steps that have been ready or running for longer than the staleness limit.
    stale: u64,
    /// How long the longest overdue step has been due, in microseconds.
    pub(crate) oldest_due_us: u64,
}

impl From<QueueStats> for QueueView {
    fn from(stats: QueueStats) -> Self {
        Self {
            blocked: stats.blocked,
            due: stats.due,
            waiting: stats.waiting,
            running: stats.running,
            failed: stats.failed,
            conflicted: stats.conflicted,
            succeeded: stats.succeeded,
            stale: stats.stale,
            oldest_due_us: as_micros_u64(stats.oldest_due),
            paused: stats.paused,
            namespace: stats.namespace,
            queue: stats.queue,
            operation: stats.operation,
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct QueuesQuery {
    namespace: Option<String>,
    queue: Option<String>,
    /// The maximum number of items on the page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// The `next` of the previous page.
    cursor: Option<String>,
}

/// Lists queues and their operations by name, with the number of steps in each state.
#[utoipa::path(get, path = "/v1/queues", tag = "queues", security(("token" = ["read", "namespace"])), params(QueuesQuery),
    responses((status = 200, description = "A page of the list.", body = ListPage<QueueView>)))]
pub(super) async fn list_queues(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<QueuesQuery>,
) -> Result<Response, Problem> {
    let namespace = caller.namespace_filter(query.namespace)?;
    let limit = list::limit(query.limit)? as usize;
    let after: Option<QueueKey> =
        list::parse_cursor(query.cursor.as_deref(), |end| serde_json::from_str(end).ok())?;
    let is_wanted = |queue: &QueueView| {
        namespace.as_ref().is_none_or(|namespace| *namespace == queue.namespace)
            && query.queue.as_ref().is_none_or(|wanted| *wanted == queue.queue)
            && after.as_ref().is_none_or(|after| key(queue) > *after)
    };
    let mut queues: Vec<QueueView> = app.work.stats().await?.into_iter().map(Into::into).collect();
    queues.retain(is_wanted);
    queues.sort_by_key(key);
    let has_more = queues.len() > limit;
    queues.truncate(limit);
    let end = queues.last().filter(|_| has_more).and_then(|queue| serde_json::to_string(&key(queue)).ok());
    Ok(Json(ListPage::new(queues, end)).into_response())
}

type QueueKey = (String, String, String);

fn key(queue: &QueueView) -> QueueKey {
    (queue.namespace.clone(), queue.queue.clone(), queue.operation.clone())
}

/// A queue.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QueueRef {
    #[schema(min_length = 1, max_length = 200)]
    namespace: Option<String>,
    #[schema(min_length = 1, max_length = 200)]
    queue: String,
}

/// An operation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OperationRef {
    #[schema(min_length = 1, max_length = 200)]
    namespace: Option<String>,
    #[schema(min_length = 1, max_length = 200)]
    operation: String,
}

/// Whether the dispatch of steps is paused.
#[derive(Serialize, ToSchema)]
pub(super) struct PauseState {
    paused: bool,
}

/// Pauses the dispatch of a queue's steps. Running steps continue.
#[utoipa::path(post, path = "/v1/queues/pause", tag = "queues", security(("token" = ["admin", "namespace"])),
    request_body = QueueRef, responses((status = 200, description = "The dispatch is paused.", body = PauseState)))]
pub(super) async fn pause_queue(
    State(app): State<App>,
    caller: Caller,
    JsonBody(named): JsonBody<QueueRef>,
) -> Result<PauseResponse, Problem> {
    set_and_respond(&app, caller.namespace(named.namespace)?, Pausable::Queue, &named.queue, true).await
}

/// Resumes the dispatch of a queue's steps.
#[utoipa::path(post, path = "/v1/queues/resume", tag = "queues", security(("token" = ["admin", "namespace"])),
    request_body = QueueRef, responses((status = 200, description = "The dispatch is not paused.", body = PauseState)))]
pub(super) async fn resume_queue(
    State(app): State<App>,
    caller: Caller,
    JsonBody(named): JsonBody<QueueRef>,
) -> Result<PauseResponse, Problem> {
    set_and_respond(&app, caller.namespace(named.namespace)?, Pausable::Queue, &named.queue, false).await
}

/// Pauses the dispatch of an operation's steps. Running steps continue.
#[utoipa::path(post, path = "/v1/operations/pause", tag = "queues", security(("token" = ["admin", "namespace"])),
    request_body = OperationRef, responses((status = 200, description = "The dispatch is paused.", body = PauseState)))]
pub(super) async fn pause_operation(
    State(app): State<App>,
    caller: Caller,
    JsonBody(named): JsonBody<OperationRef>,
) -> Result<PauseResponse, Problem> {
    set_and_respond(&app, caller.namespace(named.namespace)?, Pausable::Operation, &named.operation, true)
        .await
}

/// Resumes the dispatch of an operation's steps.
#[utoipa::path(post, path = "/v1/operations/resume", tag = "queues", security(("token" = ["admin", "namespace"])),
    request_body = OperationRef, responses((status = 200, description = "The dispatch is not paused.", body = PauseState)))]
pub(super) async fn resume_operation(
    State(app): State<App>,
    caller: Caller,
    JsonBody(named): JsonBody<OperationRef>,
) -> Result<PauseResponse, Problem> {
    set_and_respond(&app, caller.namespace(named.namespace)?, Pausable::Operation, &named.operation, false)
        .await
}

type PauseResponse = (Extension<AuditEvent>, Json<PauseState>);

async fn set_and_respond(
    app: &App,
    namespace: String,
    what: Pausable,
    name: &str,
    paused: bool,
) -> Result<PauseResponse, Problem> {
    let event = set_paused(app, namespace, what, name, paused).await?;
    Ok((Extension(event), Json(PauseState { paused })))
}

/// Pauses or resumes a queue or an operation and returns the audit event.
pub(crate) async fn set_paused(
    app: &App,
    namespace: String,
    what: Pausable,
    name: &str,
    paused: bool,
) -> Result<AuditEvent, Problem> {
    for (what, text) in [("namespace", &*namespace), ("name", name)] {
        if text.is_empty() {
            return Err(Problem::new(Kind::InvalidBody, format!("{what}: must not be empty")));
        }
        check_text(what, text, MAX_NAME_CHARS).map_err(|why| Problem::new(Kind::InvalidBody, why))?;
    }
    if paused {
        app.work.pause(&namespace, what, name).await?;
    } else {
        app.work.resume(&namespace, what, name).await?;
    }
    let kind = match what {
        Pausable::Queue => "queue",
        _ => "operation",
    };
    let verb = if paused { "pause" } else { "resume" };
    Ok(AuditEvent::new(format!("{kind}.{verb}"), name).in_namespace(namespace))
}

/// All namespaces: those with work, those of the policies, and the default one.
#[derive(Serialize, ToSchema)]
pub(super) struct Namespaces {
    items: BTreeSet<String>,
}

/// Lists the namespaces.
#[utoipa::path(get, path = "/v1/namespaces", tag = "queues", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The names.", body = Namespaces)))]
pub(super) async fn namespaces(State(app): State<App>, caller: Caller) -> Result<Json<Namespaces>, Problem> {
    let mut items: BTreeSet<String> = app.work.policies().namespaces().keys().cloned().collect();
    items.insert(PolicySet::DEFAULT_NAMESPACE.to_owned());
    items.extend(app.work.stats().await?.into_iter().map(|queue| queue.namespace));
    items.retain(|namespace| caller.may_see(namespace));
    Ok(Json(Namespaces { items }))
}
