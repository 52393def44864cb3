//! `/v1/tasks`: submission ([`submit`]), queries and cancellation of tasks.

mod form;
mod submit;

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use holdoff_work::{Action, Moment, StepFilter, TaskId, TaskRecord, TaskState, TaskSummary};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::input::{HumanDuration, Query, TaskPath};
use super::list::FilterForm;
use super::list::{self, ListPage};
use super::steps::MAX_WITH_PAYLOADS;
use crate::access::Caller;
use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::schema::{DurationText, MomentText, TaskIdText, TaskStateWord};
use crate::token_store::AuditEvent;
use crate::view::TaskView;

pub(super) use form::TaskForm;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(tasks, submit::submit))
        .routes(routes!(task))
        .routes(routes!(cancel_task))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct TasksQuery {
    /// Only tasks in this state.
    #[param(value_type = Option<TaskStateWord>)]
    state: Option<TaskState>,
    namespace: Option<String>,
    /// Only tasks with a step in this queue.
    queue: Option<String>,
    /// Only tasks with a step of this operation; `*` matches any characters.
    operation: Option<String>,
    /// Only those submitted at least this long ago.
    #[param(value_type = Option<DurationText>)]
    older_than: Option<HumanDuration>,
    /// Only those submitted at most this long ago.
    #[param(value_type = Option<DurationText>)]
    newer_than: Option<HumanDuration>,
    /// Only tasks with this text in a step's name or last message.
    text: Option<String>,
    /// The maximum number of items on the page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// The `next` of the previous page.
    cursor: Option<String>,
}

impl TasksQuery {
    fn filter(self, caller: &Caller) -> Result<StepFilter, Problem> {
        let form = FilterForm {
            namespace: caller.namespace_filter(self.namespace)?,
            queue: self.queue,
            operation: self.operation,
            older_than: self.older_than,
            newer_than: self.newer_than,
            text: self.text,
            ..FilterForm::default()
        };
        form.filter().map_err(|why| Problem::new(Kind::InvalidQuery, why))
    }
}

/// A task in a list.
#[derive(Serialize, ToSchema)]
#[schema(as = TaskSummary)]
struct TaskSummaryView {
    #[schema(value_type = TaskIdText)]
    id: TaskId,
    #[schema(value_type = TaskStateWord)]
    state: TaskState,
    namespace: String,
    /// The operation of the first step.
    operation: String,
    #[schema(value_type = MomentText)]
    created_at: Moment,
    /// The time at which the last step ended; absent while the task runs.
    #[schema(value_type = MomentText, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Moment>,
    /// The number of steps in each state.
    steps: BTreeMap<&'static str, u64>,
}

impl From<TaskSummary> for TaskSummaryView {
    fn from(task: TaskSummary) -> Self {
        Self {
            id: task.id,
            state: task.state,
            namespace: task.namespace,
            operation: task.operation,
            created_at: task.created_at,
            ended_at: task.ended_at,
            steps: task.steps.into_iter().map(|(state, count)| (state.name(), count)).collect(),
        }
    }
}

/// Lists tasks, newest first.
#[utoipa::path(get, path = "/v1/tasks", tag = "tasks", security(("token" = ["read", "namespace"])), params(TasksQuery),
    responses((status = 200, description = "A page of the list.", body = ListPage<TaskSummaryView>)))]
async fn tasks(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<TasksQuery>,
) -> Result<Response, Problem> {
    let limit = list::limit(query.limit)?;
    let before = list::parse_cursor(query.cursor.as_deref(), |end| end.parse::<TaskId>().ok())?;
    let state = query.state;
    let found = app.work.tasks(&query.filter(&caller)?, state, before, limit).await?;
    let shown: Vec<TaskSummaryView> = found.tasks.into_iter().map(Into::into).collect();
    Ok(Json(ListPage::new(shown, found.next.map(|id| id.to_string()))).into_response())
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct TaskQuery {
    /// Whether to include payloads and outputs, of at most 50 steps.
    #[serde(default)]
    payloads: bool,
}

/// Returns a task with its steps and their attempts.
#[utoipa::path(get, path = "/v1/tasks/{id}", tag = "tasks", security(("token" = ["read", "namespace"])),
    params(("id" = inline(TaskIdText), Path, description = "The task."), TaskQuery),
    responses((status = 200, description = "The task.", body = TaskView<'static>)))]
async fn task(
    State(app): State<App>,
    caller: Caller,
    TaskPath(id): TaskPath,
    Query(query): Query<TaskQuery>,
) -> Result<Response, Problem> {
    // A task of another namespace is not found.
    let is_visible = |task: &TaskRecord| task.steps.iter().all(|step| caller.may_see(&step.namespace));
    let mut record = app.work.task_outline(id).await?.filter(is_visible).ok_or_else(|| no_such_task(id))?;
    if query.payloads {
        let count = record.steps.len();
        if count > MAX_WITH_PAYLOADS as usize {
            let detail = format!(
                "task {id} has {count} steps, and a response has the payloads of at most {MAX_WITH_PAYLOADS}: list them with \
                 GET /v1/steps?task={id}&payloads=true"
            );
            return Err(Problem::new(Kind::InvalidQuery, detail));
        }
        record = app.work.task(id).await?.ok_or_else(|| no_such_task(id))?;
    }
    Ok(Json(TaskView::new(&record)).into_response())
}

fn no_such_task(id: TaskId) -> Problem {
    let detail =
        format!("task {id} does not exist: it was never submitted here, or has been pruned (work.history)");
    Problem::new(Kind::NoSuchTask, detail)
}

/// The result of a cancellation.
#[derive(Serialize, ToSchema)]
#[schema(as = CancelledTask)]
struct CancelledTask {
    /// The number of cancelled steps; 0 if the task had already ended.
    count: u64,
}

/// Cancels a task: all its unfinished steps.
///
/// A running step is not interrupted, but its report is rejected.
#[utoipa::path(post, path = "/v1/tasks/{id}/cancel", tag = "tasks", security(("token" = ["admin", "namespace"])),
    params(("id" = inline(TaskIdText), Path, description = "The task.")),
    responses((status = 200, description = "The task is cancelled.", body = CancelledTask)))]
async fn cancel_task(
    State(app): State<App>,
    caller: Caller,
    TaskPath(id): TaskPath,
) -> Result<(Extension<AuditEvent>, Json<CancelledTask>), Problem> {
    let (count, event) = cancel(&app, &caller, id).await?;
    Ok((Extension(event), Json(CancelledTask { count })))
}

/// Cancels a task. Returns the number of cancelled steps and the audit event.
pub(crate) async fn cancel(app: &App, caller: &Caller, id: TaskId) -> Result<(u64, AuditEvent), Problem> {
    let mut filter = StepFilter::task(id);
    filter.namespace = caller.namespace_filter(None)?;
    let count = app.work.act(&filter, &Action::Cancel).await?;
    let is_visible = |task: &TaskRecord| task.steps.iter().all(|step| caller.may_see(&step.namespace));
    let task = app.work.task_outline(id).await?.filter(is_visible);
    if count == 0 && task.is_none() {
        return Err(no_such_task(id));
    }
    let mut event = AuditEvent::new("task.cancel", id.to_string()).with_count(count);
    let namespace = task.and_then(|task| task.steps.into_iter().next()).map(|step| step.namespace);
    event.namespace = filter.namespace.or(namespace);
    Ok((count, event))
}
