//! The list of tasks, and one task with its graph.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use holdoff_work::{TaskId, TaskRecord, TaskState, TaskSummary};

use super::chrome::{Chrome, Visitor, render};
use super::graph::{self, Graph};
use super::query::Query;
use crate::api::{self, NamedTask};
use crate::app::App;
use crate::problem::{Kind, Problem};

const ON_A_PAGE: u32 = 50;

#[derive(Template)]
#[template(path = "tasks.html")]
struct TasksPage {
    chrome: Chrome,
    query: Query,
    states: Vec<(TaskState, bool)>,
    namespaces: Vec<String>,
    tasks: Vec<TaskSummary>,
    is_first: bool,
    first: String,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "task.html")]
struct TaskPage {
    chrome: Chrome,
    id: TaskId,
    task: TaskRecord,
    graph: Option<Graph>,
    namespace: String,
    is_running: bool,
}

/// Tasks, newest first.
#[utoipa::path(get, path = "/tasks", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn tasks(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let query = &visitor.query;
    let wrong = |_| Problem::new(Kind::InvalidQuery, "state: expected a task's state");
    let state = Some(query.get("state")).filter(|word| !word.is_empty()).map(str::parse).transpose();
    let state: Option<TaskState> = state.map_err(wrong)?;
    let filter = query.filters().without("state").filter(&visitor.access)?;
    let found = app.work.tasks(&filter, state, query.before()?, ON_A_PAGE).await?;
    let lanes = app.work.stats().await?;
    let mut namespaces: Vec<String> = lanes.into_iter().map(|lane| lane.namespace).collect();
    namespaces.retain(|namespace| visitor.access.sees(namespace));
    namespaces.sort_unstable();
    namespaces.dedup();
    let next = found.next.map(|task| query.filters().with("before", &task.to_string()).link());
    render(&TasksPage {
        chrome: visitor.page("/tasks", "Tasks"),
        states: TaskState::ALL.into_iter().map(|known| (known, state == Some(known))).collect(),
        namespaces,
        tasks: found.tasks,
        is_first: query.get("before").is_empty(),
        first: format!("/tasks{}", query.filters().link()),
        next: next.map(|link| format!("/tasks{link}")),
        query: query.clone(),
    })
}

/// One task with its graph.
#[utoipa::path(get, path = "/tasks/{id}", tag = "pages", security(("token" = ["read", "namespace"])),
    params(("id" = String, Path, description = "The task.")), responses((status = 200, description = "The page.")))]
pub(super) async fn task(
    State(app): State<App>,
    visitor: Visitor,
    NamedTask(id): NamedTask,
) -> Result<Response, Problem> {
    // A task of another namespace is not found.
    let is_seen = |task: &TaskRecord| task.steps.iter().all(|step| visitor.access.sees(&step.namespace));
    let task = app.work.task_outline(id).await?.filter(is_seen);
    let unknown = || {
        let detail = "it was never submitted here, or is forgotten (work.history)";
        Problem::new(Kind::NoSuchTask, detail)
    };
    let task = task.ok_or_else(unknown)?;
    let operation = task.steps.first().map(|step| step.operation.clone()).unwrap_or_default();
    let mut chrome = visitor.page("/tasks", format!("Task {operation}"));
    chrome.now = task.now;
    render(&TaskPage {
        chrome,
        id,
        graph: graph::draw(&task),
        namespace: task.steps.first().map(|step| step.namespace.clone()).unwrap_or_default(),
        is_running: task.state == TaskState::Running || task.state == TaskState::Failed,
        task,
    })
}

/// Cancels a task.
#[utoipa::path(post, path = "/tasks/{id}/cancel", tag = "pages", security(("token" = ["admin", "namespace"])),
    params(("id" = String, Path, description = "The task.")), responses((status = 303, description = "Cancelled.")))]
pub(super) async fn cancel(
    State(app): State<App>,
    visitor: Visitor,
    NamedTask(id): NamedTask,
) -> Result<Response, Problem> {
    let (count, deed) = api::cancel_task(&app, &visitor.access, id).await?;
    Ok((Extension(deed), visitor.send(&format!("/tasks/{id}?done=cancel&count={count}"))).into_response())
}
