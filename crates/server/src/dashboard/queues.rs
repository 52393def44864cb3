//! Queues and operations: how much waits where, and pausing it.

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
use crate::problem::{Kind, Problem};

/// The most lanes on the page.
const MOST: usize = 500;

#[derive(Template)]
#[template(path = "queues.html")]
struct QueuesPage {
    chrome: Chrome,
    lanes: Vec<Lane>,
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
    let (what, name) = match (form.get("queue"), form.get("operation")) {
        ("", operation) => (Pausable::Operation, operation),
        (queue, "") => (Pausable::Queue, queue),
        _ => {
            return Err(Problem::new(
                Kind::InvalidBody,
                "expected a queue or an operation, and there are both",
            ));
        }
    };
    let (paused, done) = match form.get("do") {
        "pause" => (true, "pause"),
        _ => (false, "resume"),
    };
    let said = Query::default().with("done", done).with("what", name);
    let deed = api::set_paused(&app, namespace, what, name, paused).await?;
    Ok((Extension(deed), visitor.send(&format!("/queues{}", said.link()))).into_response())
}
