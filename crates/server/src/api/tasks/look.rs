//! Queries of tasks.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use holdoff_work::{Filter, Moment, TaskId, TaskRecord, TaskState, TaskSummary};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::forms::Wait;
use super::super::input::{Asked, NamedTask};
use super::super::page::{self, Page};
use super::super::wish::FilterForm;
use crate::access::Access;
use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::schema::{MomentText, TaskIdText, TaskStateWord, WaitText};
use crate::show::{ShownTask, show};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct TasksWish {
    /// In this state.
    #[param(value_type = Option<TaskStateWord>)]
    state: Option<TaskState>,
    namespace: Option<String>,
    /// With a step in this queue.
    queue: Option<String>,
    /// With a step of this operation; `*` stands for any run of characters.
    operation: Option<String>,
    /// Submitted at least so long ago.
    #[param(value_type = Option<WaitText>)]
    older_than: Option<Wait>,
    /// Submitted at most so long ago.
    #[param(value_type = Option<WaitText>)]
    newer_than: Option<Wait>,
    /// With this text in a step's name or its last message.
    text: Option<String>,
    /// The most on a page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

impl TasksWish {
    fn filter(self, access: &Access) -> Result<Filter, Problem> {
        let form = FilterForm {
            namespace: access.only(self.namespace)?,
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
struct ShownSummary {
    #[schema(value_type = TaskIdText)]
    id: TaskId,
    #[schema(value_type = TaskStateWord)]
    state: TaskState,
    namespace: String,
    /// The operation of its first step.
    operation: String,
    #[schema(value_type = MomentText)]
    created_at: Moment,
    /// When its last step ended, unless it still runs.
    #[schema(value_type = MomentText, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Moment>,
    /// How many of its steps are in which state.
    steps: BTreeMap<&'static str, u64>,
}

impl From<TaskSummary> for ShownSummary {
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

/// Tasks, newest first.
#[utoipa::path(get, path = "/v1/tasks", tag = "tasks", security(("token" = ["read", "namespace"])), params(TasksWish),
    responses((status = 200, description = "A page of them.", body = Page<ShownSummary>)))]
pub(super) async fn tasks(
    State(app): State<App>,
    access: Access,
    Asked(wish): Asked<TasksWish>,
) -> Result<Response, Problem> {
    let limit = page::limit(wish.limit)?;
    let before = page::after(wish.cursor.as_deref(), |end| end.parse::<TaskId>().ok())?;
    let state = wish.state;
    let found = app.work.tasks(&wish.filter(&access)?, state, before, limit).await?;
    let shown: Vec<ShownSummary> = found.tasks.into_iter().map(Into::into).collect();
    Ok(Json(Page::new(shown, found.next.map(|id| id.to_string()))).into_response())
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskWish {
    /// Whether payloads are shown.
    #[serde(default)]
    payloads: bool,
}

/// A task with its steps and their attempts.
#[utoipa::path(get, path = "/v1/tasks/{id}", tag = "tasks", security(("token" = ["read", "namespace"])),
    params(("id" = inline(TaskIdText), Path, description = "The task."), TaskWish),
    responses((status = 200, description = "The task.", body = ShownTask<'static>)))]
pub(super) async fn task(
    State(app): State<App>,
    access: Access,
    NamedTask(id): NamedTask,
    Asked(wish): Asked<TaskWish>,
) -> Result<Response, Problem> {
    // A task of another namespace is not found.
    let is_seen = |task: &TaskRecord| task.steps.iter().all(|step| access.sees(&step.namespace));
    let Some(record) = app.work.task(id).await?.filter(is_seen) else { return Err(unknown(id)) };
    Ok(Json(show(&record, wish.payloads)).into_response())
}

pub(super) fn unknown(id: TaskId) -> Problem {
    let detail =
        format!("there is no task {id}: it was never submitted here, or is forgotten (work.history)");
    Problem::new(Kind::NoSuchTask, detail)
}
