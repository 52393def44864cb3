//! Endpoints for monitoring: liveness, readiness and metrics.

use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use holdoff_work::TaskId;
use uuid::Uuid;

use crate::access::Caller;
use crate::app::App;
use crate::problem::{Kind, Problem, ProblemBody};

/// The timeout of the store for readiness.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns whether the process is alive.
#[utoipa::path(get, path = "/healthz", tag = "daemon", security(()),
    responses((status = 200, description = "The process is alive.", body = String)))]
pub(crate) async fn healthz() -> &'static str {
    "alive\n"
}

/// Returns whether the daemon is ready: the store answers, the acceptor and the ledgers run if there are any, locks are
/// available, and the daemon is not shutting down.
///
/// The check looks up a task that does not exist. A caller with an API token also sees policy drift, which does not make
/// the daemon unready.
#[utoipa::path(get, path = "/readyz", tag = "daemon", security((), ("token" = ["read"])),
    responses((status = 200, description = "The daemon is ready.", body = String)))]
pub(crate) async fn readyz(State(app): State<App>, caller: Caller) -> Result<String, Problem> {
    if app.shutting_down.is_cancelled() {
        return Err(Problem::new(
            Kind::Stopping,
            "the daemon is shutting down; send new requests to another daemon",
        ));
    }
    if let Some(why) = app.acceptor.as_ref().and_then(|acceptor| acceptor.inspector.stopped()) {
        let why = if caller.is_known() { format!(": {why}") } else { String::new() };
        return Err(Problem::unavailable(format!("the acceptor has stopped{why}")));
    }
    if let Some(ledgers) = &app.ledgers
        && let Some((namespace, why)) = ledgers.stopped().await
    {
        let why = if caller.is_known() { format!(" `{namespace}`: {why}") } else { String::new() };
        return Err(Problem::unavailable(format!("a ledger's node has stopped{why}")));
    }
    if let Err(problem) = app.locking.locks().await {
        let not_here = || Problem::unavailable("this node has not been added to the ledger of the locks yet");
        return Err(if caller.is_known() { problem } else { not_here() });
    }
    let unknown_task = TaskId::from_uuid(Uuid::nil());
    match tokio::time::timeout(STORE_TIMEOUT, app.work.task_outline(unknown_task)).await {
        Ok(Ok(_)) => {
            let drift = app.work.drift().filter(|_| caller.is_known());
            let drift = drift.map(|drift| format!("policy drift: {drift}\n"));
            Ok(format!("ready\n{}", drift.unwrap_or_default()))
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "readiness check failed");
            Err(Problem::unavailable("the store rejected the readiness check"))
        }
        Err(_) => Err(Problem::unavailable(format!(
            "the store did not answer within {} s",
            STORE_TIMEOUT.as_secs()
        ))),
    }
}

/// Returns the metrics in the Prometheus text format.
#[utoipa::path(get, path = "/metrics", tag = "daemon", security(("token" = ["read"])),
    responses(
        (status = 200, description = "The metrics.", body = String),
        (status = 404, description = "The embedding program exports the metrics itself.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(crate) async fn metrics(State(app): State<App>) -> Result<Response, Problem> {
    let Some(metrics) = &app.metrics else {
        let detail = "the embedding program has its own metrics recorder and exports the metrics itself";
        return Err(Problem::new(Kind::NotFound, detail));
    };
    if let Some(ledgers) = &app.ledgers {
        ledgers.set_metrics().await;
    }
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics.render()).into_response())
}
