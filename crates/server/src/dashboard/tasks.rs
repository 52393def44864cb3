//! The list of tasks, and one task with its graph. In the picture each step stands one column after the last of its
//! dependencies.

use std::collections::BTreeMap;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use holdoff_work::{StepRecord, TaskId, TaskRecord, TaskState, TaskSummary};

use super::chrome::{Chrome, Visitor, render};
use super::query::PageQuery;
use crate::api::{self, TaskPath};
use crate::app::App;
use crate::problem::{Kind, Problem};

const ON_A_PAGE: u32 = 50;

#[derive(Template)]
#[template(path = "tasks.html")]
struct TasksPage {
    chrome: Chrome,
    query: PageQuery,
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
    let invalid = |_| Problem::new(Kind::InvalidQuery, "state: expected the state of a task");
    let state = Some(query.get("state")).filter(|word| !word.is_empty()).map(str::parse).transpose();
    let state: Option<TaskState> = state.map_err(invalid)?;
    let filter = query.filters().without("state").filter(&visitor.caller)?;
    let found = app.work.tasks(&filter, state, query.before()?, ON_A_PAGE).await?;
    let queues = app.work.stats().await?;
    let mut namespaces: Vec<String> = queues.into_iter().map(|queue| queue.namespace).collect();
    namespaces.retain(|namespace| visitor.caller.may_see(namespace));
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

/// Shows one task with its graph.
#[utoipa::path(get, path = "/tasks/{id}", tag = "pages", security(("token" = ["read", "namespace"])),
    params(("id" = String, Path, description = "The task.")), responses((status = 200, description = "The page.")))]
pub(super) async fn task(
    State(app): State<App>,
    visitor: Visitor,
    TaskPath(id): TaskPath,
) -> Result<Response, Problem> {
    // A task of another namespace is not found.
    let is_visible =
        |task: &TaskRecord| task.steps.iter().all(|step| visitor.caller.may_see(&step.namespace));
    let task = app.work.task_outline(id).await?.filter(is_visible);
    let no_such_task = || {
        let detail = "the task was never submitted here, or has been pruned (work.history)";
        Problem::new(Kind::NoSuchTask, detail)
    };
    let task = task.ok_or_else(no_such_task)?;
    let operation = task.steps.first().map(|step| step.operation.clone()).unwrap_or_default();
    let mut chrome = visitor.page("/tasks", format!("Task {operation}"));
    chrome.now = task.now;
    render(&TaskPage {
        chrome,
        id,
        graph: draw_graph(&task),
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
    TaskPath(id): TaskPath,
) -> Result<Response, Problem> {
    let (count, event) = api::cancel_task(&app, &visitor.caller, id).await?;
    Ok((Extension(event), visitor.redirect(&format!("/tasks/{id}?done=cancel&count={count}")))
        .into_response())
}

const BOX: (i32, i32) = (180, 44);
const GAP: (i32, i32) = (56, 16);
const MARGIN: i32 = 4;
/// The maximum number of steps in the picture. The table shows tasks with more.
const MAX_STEPS: usize = 150;

/// A graph, in points.
struct Graph {
    width: i32,
    height: i32,
    nodes: Vec<GraphNode>,
    edges: Vec<String>,
}

/// A step in the graph.
struct GraphNode {
    x: i32,
    y: i32,
    number: i32,
    name: String,
    state: &'static str,
}

/// Draws the graph of a task that has more than one step and at most [`MAX_STEPS`].
fn draw_graph(task: &TaskRecord) -> Option<Graph> {
    if task.steps.len() < 2 || task.steps.len() > MAX_STEPS {
        return None;
    }
    let columns = columns(task);
    let mut rows: BTreeMap<i32, i32> = BTreeMap::new();
    let mut nodes = Vec::new();
    let mut positions = BTreeMap::new();
    for step in &task.steps {
        let column = columns.get(&step.id.number).copied().unwrap_or(0);
        let row = rows.entry(column).or_insert(0);
        let (x, y) = (MARGIN + column * (BOX.0 + GAP.0), MARGIN + *row * (BOX.1 + GAP.1));
        *row += 1;
        positions.insert(step.id.number, (x, y));
        nodes.push(GraphNode {
            x,
            y,
            number: step.id.number,
            name: short_name(step),
            state: step.state.name(),
        });
    }
    let curve = |(from, to): &(i32, i32)| {
        let ((ax, ay), (bx, by)) = (positions.get(from)?, positions.get(to)?);
        let (ax, ay, bx, by) = (ax + BOX.0, ay + BOX.1 / 2, *bx, by + BOX.1 / 2);
        let bend = GAP.0 / 2;
        Some(format!("M{ax} {ay} C{} {ay} {} {by} {bx} {by}", ax + bend, bx - bend))
    };
    let edges = task.edges.iter().filter_map(curve).collect();
    let most = |ends: &mut dyn Iterator<Item = i32>| ends.max().unwrap_or(0) + MARGIN;
    let width = most(&mut nodes.iter().map(|node| node.x + BOX.0));
    let height = most(&mut nodes.iter().map(|node| node.y + BOX.1));
    Some(Graph { width, height, nodes, edges })
}

/// Returns the column of each step: the length of the longest chain of dependencies before it.
fn columns(task: &TaskRecord) -> BTreeMap<i32, i32> {
    let mut columns: BTreeMap<i32, i32> = task.steps.iter().map(|step| (step.id.number, 0)).collect();
    // In an acyclic graph the columns settle after at most as many rounds as there are steps; usually after a few.
    for _ in 0..task.steps.len() {
        let mut is_settled = true;
        for (from, to) in &task.edges {
            let least = columns.get(from).copied().unwrap_or(0) + 1;
            if let Some(column) = columns.get_mut(to).filter(|column| **column < least) {
                *column = least;
                is_settled = false;
            }
        }
        if is_settled {
            break;
        }
    }
    columns
}

/// Returns the name of a step, cut to the width of a box.
fn short_name(step: &StepRecord) -> String {
    const LONGEST: usize = 22;
    let name = step.name.as_deref().unwrap_or(&step.operation);
    match name.char_indices().nth(LONGEST) {
        None => name.to_owned(),
        Some(_) => name.chars().take(LONGEST - 1).chain(['…']).collect(),
    }
}
