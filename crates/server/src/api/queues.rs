//! `/v1/queues`, `/v1/operations` and `/v1/namespaces`

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use holdoff_policy::PolicySet;
use holdoff_work::{Pausable, QueueStats};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::input::{Asked, Sent, check_text};
use super::page::{self, Page};
use crate::access::Access;
use crate::app::App;
use crate::keep::Deed;
use crate::problem::{Kind, Problem};

/// The maximum length of a name.
const LONGEST_NAME: usize = 200;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(queues))
        .routes(routes!(pause_queue))
        .routes(routes!(resume_queue))
        .routes(routes!(pause_operation))
        .routes(routes!(resume_operation))
        .routes(routes!(namespaces))
}

/// How many steps of a queue and operation are in which state.
#[derive(Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Queue)]
pub(crate) struct ShownQueue {
    pub(crate) namespace: String,
    pub(crate) queue: String,
    pub(crate) operation: String,
    pub(crate) paused: bool,
    /// Waiting for a parent.
    blocked: u64,
    /// Due now.
    due: u64,
    /// Due later.
    waiting: u64,
    /// With a worker.
    running: u64,
    /// Given up.
    failed: u64,
    /// Waiting for somebody to decide.
    conflicted: u64,
    /// Finished, and still in the history.
    succeeded: u64,
    /// Ready or running for longer than the staleness limit.
    stale: u64,
    /// How long the longest overdue step has been due, in microseconds.
    pub(crate) oldest_due_us: u64,
}

impl From<QueueStats> for ShownQueue {
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
            oldest_due_us: u64::try_from(stats.oldest_due.as_micros()).unwrap_or(u64::MAX),
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
pub(super) struct QueuesWish {
    namespace: Option<String>,
    queue: Option<String>,
    /// The most on a page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// Queues and their operations, by name, with how much is in them.
#[utoipa::path(get, path = "/v1/queues", tag = "queues", security(("token" = ["read", "namespace"])), params(QueuesWish),
    responses((status = 200, description = "A page of them.", body = Page<ShownQueue>)))]
pub(super) async fn queues(
    State(app): State<App>,
    access: Access,
    Asked(wish): Asked<QueuesWish>,
) -> Result<Response, Problem> {
    let namespace = access.only(wish.namespace)?;
    let limit = page::limit(wish.limit)? as usize;
    let after: Option<Key> = page::after(wish.cursor.as_deref(), |end| serde_json::from_str(end).ok())?;
    let is_wanted = |lane: &ShownQueue| {
        namespace.as_ref().is_none_or(|namespace| *namespace == lane.namespace)
            && wish.queue.as_ref().is_none_or(|queue| *queue == lane.queue)
            && after.as_ref().is_none_or(|after| key(lane) > *after)
    };
    let mut lanes: Vec<ShownQueue> = app.work.stats().await?.into_iter().map(Into::into).collect();
    lanes.retain(is_wanted);
    lanes.sort_by_key(key);
    let is_more = lanes.len() > limit;
    lanes.truncate(limit);
    let end = lanes.last().filter(|_| is_more).and_then(|lane| serde_json::to_string(&key(lane)).ok());
    Ok(Json(Page::new(lanes, end)).into_response())
}

type Key = (String, String, String);

fn key(lane: &ShownQueue) -> Key {
    (lane.namespace.clone(), lane.queue.clone(), lane.operation.clone())
}

/// A queue.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NamedQueue {
    #[schema(min_length = 1, max_length = 200)]
    namespace: Option<String>,
    #[schema(min_length = 1, max_length = 200)]
    queue: String,
}

/// An operation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NamedOperation {
    #[schema(min_length = 1, max_length = 200)]
    namespace: Option<String>,
    #[schema(min_length = 1, max_length = 200)]
    operation: String,
}

/// Whether steps are given out.
#[derive(Serialize, ToSchema)]
pub(super) struct Paused {
    paused: bool,
}

/// Stops giving out the steps of a queue. What runs goes on.
#[utoipa::path(post, path = "/v1/queues/pause", tag = "queues", security(("token" = ["admin", "namespace"])),
    request_body = NamedQueue, responses((status = 200, description = "It is paused.", body = Paused)))]
pub(super) async fn pause_queue(
    State(app): State<App>,
    access: Access,
    Sent(named): Sent<NamedQueue>,
) -> Result<Answer, Problem> {
    set(&app, access.namespace(named.namespace)?, Pausable::Queue, &named.queue, true).await
}

/// Gives the steps of a queue out again.
#[utoipa::path(post, path = "/v1/queues/resume", tag = "queues", security(("token" = ["admin", "namespace"])),
    request_body = NamedQueue, responses((status = 200, description = "It is not paused.", body = Paused)))]
pub(super) async fn resume_queue(
    State(app): State<App>,
    access: Access,
    Sent(named): Sent<NamedQueue>,
) -> Result<Answer, Problem> {
    set(&app, access.namespace(named.namespace)?, Pausable::Queue, &named.queue, false).await
}

/// Stops giving out the steps of an operation. What runs goes on.
#[utoipa::path(post, path = "/v1/operations/pause", tag = "queues", security(("token" = ["admin", "namespace"])),
    request_body = NamedOperation, responses((status = 200, description = "It is paused.", body = Paused)))]
pub(super) async fn pause_operation(
    State(app): State<App>,
    access: Access,
    Sent(named): Sent<NamedOperation>,
) -> Result<Answer, Problem> {
    set(&app, access.namespace(named.namespace)?, Pausable::Operation, &named.operation, true).await
}

/// Gives the steps of an operation out again.
#[utoipa::path(post, path = "/v1/operations/resume", tag = "queues", security(("token" = ["admin", "namespace"])),
    request_body = NamedOperation, responses((status = 200, description = "It is not paused.", body = Paused)))]
pub(super) async fn resume_operation(
    State(app): State<App>,
    access: Access,
    Sent(named): Sent<NamedOperation>,
) -> Result<Answer, Problem> {
    set(&app, access.namespace(named.namespace)?, Pausable::Operation, &named.operation, false).await
}

type Answer = (Extension<Deed>, Json<Paused>);

async fn set(
    app: &App,
    namespace: String,
    what: Pausable,
    name: &str,
    paused: bool,
) -> Result<Answer, Problem> {
    let deed = set_paused(app, namespace, what, name, paused).await?;
    Ok((Extension(deed), Json(Paused { paused })))
}

/// Pauses or resumes a queue or an operation and returns the audit event.
pub(crate) async fn set_paused(
    app: &App,
    namespace: String,
    what: Pausable,
    name: &str,
    paused: bool,
) -> Result<Deed, Problem> {
    for (what, text) in [("namespace", &*namespace), ("name", name)] {
        if text.is_empty() {
            return Err(Problem::new(Kind::InvalidBody, format!("{what}: it is empty")));
        }
        check_text(what, text, LONGEST_NAME).map_err(|why| Problem::new(Kind::InvalidBody, why))?;
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
    Ok(Deed::new(format!("{kind}.{verb}"), name).within(namespace))
}

/// The namespaces there are: those with work in them, those of the policies, and the default.
#[derive(Serialize, ToSchema)]
pub(super) struct Namespaces {
    items: BTreeSet<String>,
}

/// The namespaces there are.
#[utoipa::path(get, path = "/v1/namespaces", tag = "queues", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "Their names.", body = Namespaces)))]
pub(super) async fn namespaces(State(app): State<App>, access: Access) -> Result<Json<Namespaces>, Problem> {
    let mut items: BTreeSet<String> = app.work.policies().namespaces().keys().cloned().collect();
    items.insert(PolicySet::DEFAULT_NAMESPACE.to_owned());
    items.extend(app.work.stats().await?.into_iter().map(|lane| lane.namespace));
    items.retain(|namespace| access.sees(namespace));
    Ok(Json(Namespaces { items }))
}
