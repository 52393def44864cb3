//! Queues and operations: their backlog, and pausing them. Signals: the count of each, and its task.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use holdoff_work::{Pausable, QueueStats, SignalRecord};

use super::chrome::{Chrome, Visitor, render};
use super::formatting;
use super::query::PageQuery;
use crate::api;
use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::token_store::AuditEvent;

/// The maximum number of rows on the page.
const MAX_ROWS: usize = 500;

#[derive(Template)]
#[template(path = "queues.html")]
struct QueuesPage {
    chrome: Chrome,
    rows: Vec<QueueRow>,
    queues: std::collections::BTreeSet<String>,
    left_out: usize,
}

struct QueueRow {
    stats: QueueStats,
    steps: String,
    oldest: String,
}

/// Lists queues and their operations by name.
#[utoipa::path(get, path = "/queues", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn queues(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let mut rows = app.work.stats().await?;
    rows.retain(|row| visitor.caller.may_see(&row.namespace));
    let left_out = rows.len().saturating_sub(MAX_ROWS);
    rows.truncate(MAX_ROWS);
    let row = |stats: QueueStats| {
        let query = PageQuery::default().with("namespace", &stats.namespace).with("queue", &stats.queue);
        let query = query.with("operation", &stats.operation);
        let oldest = if stats.due == 0 { "–".to_owned() } else { formatting::coarse(stats.oldest_due) };
        QueueRow { steps: format!("/steps{}", query.link()), oldest, stats }
    };
    render(&QueuesPage {
        chrome: visitor.page("/queues", "Queues"),
        queues: rows.iter().map(|row| row.queue.clone()).collect(),
        rows: rows.into_iter().map(row).collect(),
        left_out,
    })
}

/// Pauses or resumes an operation or a queue.
#[utoipa::path(post, path = "/queues/pause", tag = "pages", security(("token" = ["admin", "namespace"])),
    responses((status = 303, description = "Succeeded.")))]
pub(super) async fn pause(
    State(app): State<App>,
    visitor: Visitor,
    form: String,
) -> Result<Response, Problem> {
    let form = PageQuery::form(&form);
    let namespace = visitor.caller.namespace(form.text("namespace"))?;
    let (queue, operation) = (form.get("queue"), form.get("operation"));
    let paused = form.get("do") == "pause";
    let set = async |what, name: &str| api::set_paused(&app, namespace.clone(), what, name, paused).await;
    let (event, name) = match (queue, operation) {
        ("", operation) => (set(Pausable::Operation, operation).await?, operation.to_owned()),
        (queue, "") => (set(Pausable::Queue, queue).await?, queue.to_owned()),
        // A row may be paused by its operation or by its queue. To resume the row, both are resumed.
        (queue, operation) if !paused => {
            let event = set(Pausable::Operation, operation).await?;
            set(Pausable::Queue, queue).await?;
            let both = format!("{operation} and its queue {queue}");
            (AuditEvent { object: both.clone(), ..event }, both)
        }
        _ => {
            return Err(Problem::new(Kind::InvalidBody, "expected a queue or an operation, got both"));
        }
    };
    let done = if paused { "pause" } else { "resume" };
    let said = PageQuery::default().with("done", done).with("what", &name);
    Ok((Extension(event), visitor.redirect(&format!("/queues{}", said.link()))).into_response())
}

const MOST: u32 = 100;

#[derive(Template)]
#[template(path = "signals.html")]
struct SignalsPage {
    chrome: Chrome,
    signals: Vec<SignalRecord>,
}

/// Lists signals, newest first.
#[utoipa::path(get, path = "/signals", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn signals(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let signals = app.work.signals(visitor.caller.own_namespace(), MOST).await?;
    render(&SignalsPage { chrome: visitor.page("/signals", "Signals"), signals })
}
