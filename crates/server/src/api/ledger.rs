//! `/v1/ledger`: status, reads, history and events of a ledger. [`act`] has the changes.

mod act;
mod form;

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use holdoff_ledger::Slot;
use holdoff_ledger::machine::{Command, Either};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::input::{BodyRules, JsonBody, Query};
use super::list;
use crate::access::Caller;
use crate::app::App;
use crate::events::{HEARTBEAT, HEARTBEAT_COMMENT, TokenWatch, stream_response};
use crate::ledgers::{Ledgers, Node, no_ledger, status, with_timeout};
use crate::problem::{Kind, Problem, ProblemBody};
use crate::view::{EntryView, LedgerView, ResultView, ValueView, read_key};
use form::{KeyPath, LedgerRef, ReadConsistency, ReadForm, default_wait};

/// A body holds the largest permitted number of commands with the longest values, and a reserve.
const BODY_RULES: BodyRules = BodyRules { max_bytes: 2 << 20, invalid: Kind::InvalidBody };

pub(super) fn routes() -> OpenApiRouter<App> {
    let routes = OpenApiRouter::new()
        .routes(routes!(ledgers))
        .routes(routes!(show))
        .routes(routes!(history))
        .routes(routes!(events))
        .routes(routes!(act::submit))
        .routes(routes!(read))
        .routes(routes!(value))
        .routes(routes!(verify))
        .routes(routes!(act::add_member))
        .routes(routes!(act::remove_member))
        .routes(routes!(act::step_down))
        .routes(routes!(act::snapshot));
    BODY_RULES.apply(routes)
}

/// Returns the ledgers of this daemon. If it has none, the requested ledger does not exist either.
fn local_ledgers<'a>(app: &'a App, namespace: &str) -> Result<&'a Ledgers, Problem> {
    app.ledgers.as_deref().ok_or_else(|| no_ledger(namespace))
}

fn node(app: &App, namespace: &str) -> Result<Node, Problem> {
    local_ledgers(app, namespace)?.node(namespace)
}

/// Returns the name of the ledger that a request concerns. The ledger with the daemons' locks belongs to no namespace:
/// its history has the locks of all namespaces, and its members grant them.
fn ledger_name(app: &App, caller: &Caller, named: Option<String>) -> Result<String, Problem> {
    let name = caller.namespace(named)?;
    if app.may_see_ledger(caller, &name) {
        return Ok(name);
    }
    let detail = format!(
        "the daemons keep their locks in the ledger {name:?}, so it belongs to no namespace; this request needs an API \
         token for all namespaces"
    );
    Err(Problem::new(Kind::Forbidden, detail))
}

/// How long the result of a verification is reused, so that many requests cause one verification.
const VERIFICATION_MAX_AGE: Duration = Duration::from_secs(1);

/// The ledgers of this daemon.
#[derive(Serialize, ToSchema)]
#[schema(as = Ledgers)]
struct LedgerList {
    items: Vec<LedgerName>,
}

/// A ledger's name, and whether this node has joined it.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerName)]
struct LedgerName {
    namespace: String,
    joined: bool,
}

/// Lists the ledgers of which this daemon has a node.
#[utoipa::path(get, path = "/v1/ledgers", operation_id = "ledgers", tag = "ledger",
    security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The names.", body = LedgerList)))]
async fn ledgers(State(app): State<App>, caller: Caller) -> Json<LedgerList> {
    let mut names = app.ledgers.as_ref().map(|ledgers| ledgers.names()).unwrap_or_default();
    names.retain(|(name, _)| app.may_see_ledger(&caller, name));
    let view = |(namespace, joined)| LedgerName { namespace, joined };
    Json(LedgerList { items: names.into_iter().map(view).collect() })
}

/// Returns the status of this daemon's node of a ledger.
#[utoipa::path(get, path = "/v1/ledger", operation_id = "ledger", tag = "ledger",
    security(("token" = ["read", "namespace"])), params(LedgerRef),
    responses(
        (status = 200, description = "The status.", body = LedgerView),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
async fn show(
    State(app): State<App>,
    caller: Caller,
    Query(ledger): Query<LedgerRef>,
) -> Result<Json<LedgerView>, Problem> {
    let namespace = ledger_name(&app, &caller, ledger.namespace)?;
    let ledgers = local_ledgers(&app, &namespace)?;
    Ok(Json(match ledgers.find(&namespace)? {
        Some(node) => LedgerView::joined(ledgers, &status(&node).await?),
        None => LedgerView::joining(ledgers, &namespace),
    }))
}

/// The result of a read or the reason for its failure, and the last index that the read reflects.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerReadResult)]
struct ReadResult {
    index: u64,
    #[schema(inline)]
    #[serde(flatten)]
    result: ResultView,
}

/// Reads from a ledger.
#[utoipa::path(post, path = "/v1/ledger/read", operation_id = "ledger_read", tag = "ledger",
    security(("token" = ["read", "namespace"])),
    request_body = ReadForm,
    responses(
        (status = 200, description = "The result.", body = ReadResult),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 503, description = "The ledger has no leader. Retry after `Retry-After`, or read with consistency `local`.",
            body = ProblemBody, content_type = "application/problem+json"),
    ))]
async fn read(
    State(app): State<App>,
    caller: Caller,
    JsonBody(mut form): JsonBody<ReadForm>,
) -> Result<Json<ReadResult>, Problem> {
    let node = node(&app, &ledger_name(&app, &caller, form.namespace.take())?)?;
    let (goal, timeout) = (form.goal()?, form.timeout()?);
    let (index, answer) = node.read(goal, form.consistency.into(), timeout).await?;
    let result = match &answer {
        Ok(answer) => ResultView::answered(answer),
        Err(why) => ResultView::failed(why),
    };
    Ok(Json(ReadResult { index: index.0, result }))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ValueQuery {
    namespace: Option<String>,
    #[serde(default)]
    #[param(inline)]
    consistency: ReadConsistency,
}

/// A value, and the last index that the read reflects.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerValueResult)]
struct ValueResult {
    key: String,
    value: ValueView,
    index: u64,
}

/// Returns the value of a key.
#[utoipa::path(get, path = "/v1/ledger/values/{key}", operation_id = "ledger_value", tag = "ledger",
    security(("token" = ["read", "namespace"])),
    params(("key" = String, Path, description = "The key."), ValueQuery),
    responses(
        (status = 200, description = "The value.", body = ValueResult),
        (status = 404, description = "The key has no value.", body = ProblemBody, content_type = "application/problem+json"),
    ))]
async fn value(
    State(app): State<App>,
    caller: Caller,
    KeyPath(key): KeyPath,
    Query(query): Query<ValueQuery>,
) -> Result<Json<ValueResult>, Problem> {
    let node = node(&app, &ledger_name(&app, &caller, query.namespace)?)?;
    let invalid = |why: String| Problem::new(Kind::InvalidQuery, why);
    let get = Either::Second(vec![Command::Get(read_key(key.clone()).map_err(invalid)?)]);
    let (index, answer) = node.read(get, query.consistency.into(), default_wait()).await?;
    let value = match answer {
        Ok(Either::Second(values)) => values.into_iter().next().flatten(),
        _ => None,
    };
    let none = || Problem::new(Kind::NoSuchValue, format!("the key has no value up to index {index}"));
    Ok(Json(ValueResult { value: (&value.ok_or_else(none)?).into(), key, index: index.0 }))
}

/// The result of the verification of a node's history.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerVerification)]
struct VerificationView {
    /// The first verified index.
    first: u64,
    /// The last verified index.
    last: u64,
    /// The last index with valid signatures of a majority.
    certified: u64,
    /// The first inconsistency, if there is one.
    broken: Option<String>,
}

/// Verifies the history that this daemon's node keeps.
#[utoipa::path(get, path = "/v1/ledger/verify", operation_id = "ledger_verify", tag = "ledger",
    security(("token" = ["read", "namespace"])), params(LedgerRef),
    responses(
        (status = 200, description = "The result of the verification.", body = VerificationView),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
async fn verify(
    State(app): State<App>,
    caller: Caller,
    Query(ledger): Query<LedgerRef>,
) -> Result<Json<VerificationView>, Problem> {
    let namespace = ledger_name(&app, &caller, ledger.namespace)?;
    let ledgers = local_ledgers(&app, &namespace)?;
    let verified = ledgers.verified(&ledgers.node(&namespace)?, VERIFICATION_MAX_AGE).await?;
    let (first, last, certified) = (verified.first.0, verified.last.0, verified.certified.0);
    Ok(Json(VerificationView { first, last, certified, broken: verified.mismatch }))
}

/// The number of entries read from the node at a time. Entries may be large.
const BATCH: usize = 16;
/// A page ends when its entries reach this many bytes.
const MAX_PAGE_BYTES: usize = 4 << 20;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    namespace: Option<String>,
    /// Return entries after this index; 0 by default.
    #[serde(default)]
    #[param(required = false, default = 0)]
    after: u64,
    /// The maximum number of items on the page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

/// Entries in the order of their indices.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerHistory)]
struct HistoryPage {
    #[schema(value_type = Vec<EntryView>)]
    entries: Vec<Box<RawValue>>,
    /// The start of the next page, to be sent back as `after`; absent on the last page. Before the end, a page may have
    /// fewer entries than `limit`.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// Lists entries of a ledger's history that this daemon's node still keeps.
#[utoipa::path(get, path = "/v1/ledger/history", operation_id = "ledger_history", tag = "ledger",
    security(("token" = ["read", "namespace"])),
    params(HistoryQuery),
    responses(
        (status = 200, description = "A page of the list.", body = HistoryPage),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 410, description = "The node no longer keeps these entries; `first` is the oldest index that it keeps.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
async fn history(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<HistoryPage>, Problem> {
    let node = node(&app, &ledger_name(&app, &caller, query.namespace)?)?;
    let limit = list::limit(query.limit)? as usize;
    let (mut entries, mut bytes, mut after) = (Vec::new(), 0, Slot(query.after));
    while entries.len() < limit && bytes < MAX_PAGE_BYTES {
        let count = BATCH.min(limit - entries.len());
        let pages = match with_timeout(node.history(after, count)).await? {
            Ok(pages) => pages,
            // Compaction removed the next entries while this page was built. The request for the next page gets the
            // error.
            Err(_) if !entries.is_empty() => break,
            Err(first) => return Err(compacted(first)),
        };
        for page in &pages {
            after = page.index;
            let entry = serde_json::value::to_raw_value(&EntryView::from(page));
            let entry = entry.map_err(|why| Problem::new(Kind::Internal, why.to_string()))?;
            bytes += entry.get().len();
            entries.push(entry);
        }
        if pages.len() < count {
            break;
        }
    }
    let next = has_more(&node, after).then_some(after.0);
    Ok(Json(HistoryPage { entries, next }))
}

fn has_more(node: &Node, after: Slot) -> bool {
    node.watch_status().borrow().head.index > after
}

/// Returns the problem for entries that this node no longer keeps.
fn compacted(first: Slot) -> Problem {
    let before = first.0.saturating_sub(1);
    let detail = format!(
        "this node keeps the entries from index {first} on; read after {before}, or read from another node"
    );
    Problem::new(Kind::HistoryCompacted, detail).with("first", first.0.into())
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    namespace: Option<String>,
    /// Stream entries after this index. By default the stream begins with the next entry.
    after: Option<u64>,
}

/// Streams the entries of a ledger as they are applied, as server-sent events of type `entry` with the index as id.
///
/// `ready` is the first event. `missed` means that the node no longer keeps the entries before its `first`; the stream
/// continues there. `stopped` is the last event and gives the reason why the node has stopped.
#[utoipa::path(get, path = "/v1/ledger/events", operation_id = "ledger_events", tag = "ledger",
    security(("token" = ["read", "namespace"])),
    params(EventsQuery, ("last-event-id" = Option<String>, Header, description = "The id of the last received event; browsers send it when they reconnect.")),
    responses(
        (status = 200, description = "Events, until one side closes the stream.", body = String,
            content_type = "text/event-stream"),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 429, description = "Too many listeners; retry after `Retry-After`.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
async fn events(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Query(query): Query<EventsQuery>,
) -> Result<Response, Problem> {
    let node = node(&app, &ledger_name(&app, &caller, query.namespace)?)?;
    let permit = app.events.acquire_permit()?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let now = node.watch_status().borrow().head.index;
    let after = last.or(query.after).map_or(now, Slot);
    let token = TokenWatch::of(&app, &caller);
    Ok(stream_response(permit, app.stopping.clone(), move |sender| forward(node, after, token, sender)))
}

async fn forward(node: Node, after: Slot, mut token: TokenWatch, sender: mpsc::Sender<Bytes>) {
    let mut entries = node.subscribe(after);
    let mut text = event("ready", &serde_json::json!({ "after": after.0 }));
    while token.send(&sender, text).await {
        text = match tokio::time::timeout(HEARTBEAT, entries.next()).await {
            Ok(Ok(Ok(page))) => {
                let entry = serde_json::to_string(&EntryView::from(&page)).unwrap_or_default();
                format!("id: {}\nevent: entry\ndata: {entry}\n\n", page.index).into()
            }
            Ok(Ok(Err(first))) => event("missed", &serde_json::json!({ "first": first.0 })),
            Ok(Err(why)) => {
                let last = event("stopped", &serde_json::json!({ "reason": why.to_string() }));
                token.send(&sender, last).await;
                return;
            }
            Err(_) => HEARTBEAT_COMMENT,
        };
    }
}

fn event(name: &str, data: &serde_json::Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}
