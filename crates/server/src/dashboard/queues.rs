//! Queues and operations: their backlog, and pausing them.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use holdoff_work::{Pausable, QueueStats};

use super::chrome::{Chrome, Visitor, render};
use super::query::Query;
use super::words;
use crate::api;
use crate::app::App;
use crate::keep::Deed;
use crate::problem::{Kind, Problem};

/// The maximum number of rows on the page.
const MOST: usize = 500;

#[derive(Template)]
#[template(path = "queues.html")]
struct QueuesPage {
    chrome: Chrome,
    lanes: Vec<Lane>,
    queues: std::collections::BTreeSet<String>,
    left_out: usize,
}

struct Lane {
    stats: QueueStats,
    steps: String,
    oldest: String,
}

/// Queues and their operations, by name.
#[utoipa::path(get, path = "/queues", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn queues(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let mut lanes = app.work.stats().await?;
    lanes.retain(|lane| visitor.access.sees(&lane.namespace));
    let left_out = lanes.len().saturating_sub(MOST);
    lanes.truncate(MOST);
    let lane = |stats: QueueStats| {
        let query = Query::default().with("namespace", &stats.namespace).with("queue", &stats.queue);
        let query = query.with("operation", &stats.operation);
        let oldest = if stats.due == 0 { "–".to_owned() } else { words::coarse(stats.oldest_due) };
        Lane { steps: format!("/steps{}", query.link()), oldest, stats }
    };
    render(&QueuesPage {
        chrome: visitor.page("/queues", "Queues"),
        queues: lanes.iter().map(|lane| lane.queue.clone()).collect(),
        lanes: lanes.into_iter().map(lane).collect(),
        left_out,
    })
}

/// Pauses or resumes an operation or a queue.
#[utoipa::path(post, path = "/queues/pause", tag = "pages", security(("token" = ["admin", "namespace"])),
    responses((status = 303, description = "It is done.")))]
pub(super) async fn pause(
    State(app): State<App>,
    visitor: Visitor,
    form: String,
) -> Result<Response, Problem> {
    let form = Query::form(&form);
    let namespace = visitor.access.namespace(form.text("namespace"))?;
    let (queue, operation) = (form.get("queue"), form.get("operation"));
    let paused = form.get("do") == "pause";
    let set = async |what, name: &str| api::set_paused(&app, namespace.clone(), what, name, paused).await;
    let (deed, name) = match (queue, operation) {
        ("", operation) => (set(Pausable::Operation, operation).await?, operation.to_owned()),
        (queue, "") => (set(Pausable::Queue, queue).await?, queue.to_owned()),
        // A row may be paused by its operation or by its queue. To resume the row, both are resumed.
        (queue, operation) if !paused => {
            let deed = set(Pausable::Operation, operation).await?;
            set(Pausable::Queue, queue).await?;
            let both = format!("{operation} and its queue {queue}");
            (Deed { object: both.clone(), ..deed }, both)
        }
        _ => {
            return Err(Problem::new(
                Kind::InvalidBody,
                "expected a queue or an operation, and there are both",
            ));
        }
    };
    let done = if paused { "pause" } else { "resume" };
    let said = Query::default().with("done", done).with("what", &name);
    Ok((Extension(deed), visitor.send(&format!("/queues{}", said.link()))).into_response())
}
