//! Endpoints for monitoring: liveness, readiness and metrics.

use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use holdoff_work::TaskId;
use uuid::Uuid;

use crate::access::Access;
use crate::app::App;
use crate::problem::{Kind, Problem, ProblemBody};

/// The timeout of the store for readiness.
const PATIENCE: Duration = Duration::from_secs(2);

/// The process is alive.
#[utoipa::path(get, path = "/healthz", tag = "daemon", security(()),
    responses((status = 200, description = "It is.", body = String)))]
pub(crate) async fn healthz() -> &'static str {
    "alive\n"
}

/// The store answers, the acceptor and the ledgers too as far as there are any, locks can be had, and the daemon is not on its
/// way out.
///
/// A task is looked for that nobody has. Policies that differ from those of the other nodes are said to whoever shows a
/// token, and are no reason to send nobody here.
#[utoipa::path(get, path = "/readyz", tag = "daemon", security((), ("token" = ["read"])),
    responses((status = 200, description = "It does.", body = String)))]
pub(crate) async fn readyz(State(app): State<App>, access: Access) -> Result<String, Problem> {
    if app.retiring.is_cancelled() {
        return Err(Problem::new(Kind::Stopping, "what was accepted is answered; send what comes elsewhere"));
    }
    if let Some(why) = app.acceptor.as_ref().and_then(|acceptor| acceptor.lookout.stopped()) {
        let why = if access.is_known() { format!(": {why}") } else { String::new() };
        return Err(Problem::unavailable(format!("the acceptor has stopped{why}")));
    }
    if let Some(ledgers) = &app.ledgers
        && let Some((namespace, why)) = ledgers.stopped().await
    {
        let why = if access.is_known() { format!(" `{namespace}`: {why}") } else { String::new() };
        return Err(Problem::unavailable(format!("a ledger's node has stopped{why}")));
    }
    if let Err(problem) = app.locking.here().await {
        let not_here =
            || Problem::unavailable("the ledger that keeps the locks has not let this node in yet");
        return Err(if access.is_known() { problem } else { not_here() });
    }
    let nobodys = TaskId::from_uuid(Uuid::nil());
    match tokio::time::timeout(PATIENCE, app.work.task_outline(nobodys)).await {
        Ok(Ok(_)) => {
            let drift = app.work.drift().filter(|_| access.is_known());
            let drift = drift.map(|drift| format!("policy drift: {drift}\n"));
            Ok(format!("ready\n{}", drift.unwrap_or_default()))
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            Err(Problem::unavailable("the store refuses"))
        }
        Err(_) => {
            Err(Problem::unavailable(format!("the store has not answered within {} s", PATIENCE.as_secs())))
        }
    }
}

/// What was counted, as Prometheus reads it.
#[utoipa::path(get, path = "/metrics", tag = "daemon", security(("token" = ["read"])),
    responses(
        (status = 200, description = "The metrics.", body = String),
        (status = 404, description = "The program this runs in shows them elsewhere.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(crate) async fn metrics(State(app): State<App>) -> Result<Response, Problem> {
    let Some(metrics) = &app.metrics else {
        let detail = "the program this runs in has a recorder of its own; its metrics are there";
        return Err(Problem::new(Kind::NoSuchPage, detail));
    };
    if let Some(ledgers) = &app.ledgers {
        ledgers.set_metrics().await;
    }
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics.render()).into_response())
}
