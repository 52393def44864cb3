//! `GET /v1/ledger/events`

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use holdoff_ledger::Slot;
use serde::Deserialize;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::super::input::Asked;
use super::node;
use crate::access::Access;
use crate::app::App;
use crate::events::{HEARTBEAT, STILL_HERE, Welcome, told};
use crate::ledgers::Node;
use crate::problem::{Problem, ProblemBody};
use crate::show::ShownEntry;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsWish {
    namespace: Option<String>,
    /// Entries after this index; those that come from now on, unless it is said.
    after: Option<u64>,
}

/// The entries of a ledger as they are applied, as server-sent events: `entry`, each with the entry and its index as id.
///
/// `ready` comes first. `missed` says that entries before its `first` are not kept any more; it goes on from there.
/// `stopped` says why the node has ended, and is the last.
#[utoipa::path(get, path = "/v1/ledger/events", operation_id = "ledger_events", tag = "ledger",
    security(("token" = ["read", "namespace"])),
    params(EventsWish, ("last-event-id" = Option<String>, Header, description = "Sent by browsers that come back.")),
    responses(
        (status = 200, description = "Events, until one side ends it.", body = String,
            content_type = "text/event-stream"),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 429, description = "Too many listen; come back after `Retry-After`.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn events(
    State(app): State<App>,
    access: Access,
    headers: HeaderMap,
    Asked(wish): Asked<EventsWish>,
) -> Result<Response, Problem> {
    let node = node(&app, &access.namespace(wish.namespace)?)?;
    let seat = app.events.free_seat()?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let now = node.glance().borrow().head.index;
    let after = last.or(wish.after).map_or(now, Slot);
    let welcome = Welcome::of(&app, &access);
    Ok(told(seat, app.stopping.clone(), move |sender| forward(node, after, welcome, sender)))
}

async fn forward(node: Node, after: Slot, mut welcome: Welcome, sender: mpsc::Sender<Bytes>) {
    let mut entries = node.subscribe(after);
    let mut text = event("ready", &serde_json::json!({ "after": after.0 }));
    // The stream ends when the caller's token ends.
    while sender.send(text).await.is_ok() && welcome.lasts().await {
        text = match tokio::time::timeout(HEARTBEAT, entries.next()).await {
            Ok(Ok(Ok(page))) => {
                let entry = serde_json::to_string(&ShownEntry::from(&page)).unwrap_or_default();
                format!("id: {}\nevent: entry\ndata: {entry}\n\n", page.index).into()
            }
            Ok(Ok(Err(first))) => event("missed", &serde_json::json!({ "first": first.0 })),
            Ok(Err(why)) => {
                let last = event("stopped", &serde_json::json!({ "why": why.to_string() }));
                // The listener may have disconnected.
                let _ = sender.send(last).await;
                return;
            }
            Err(_) => STILL_HERE,
        };
    }
}

fn event(name: &str, data: &serde_json::Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}
