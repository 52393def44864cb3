//! `GET /v1/ledger/history`

use axum::Json;
use axum::extract::State;
use holdoff_ledger::Slot;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::super::input::Asked;
use super::super::page;
use super::node;
use crate::access::Access;
use crate::app::App;
use crate::ledgers::{Node, within};
use crate::problem::{Kind, Problem, ProblemBody};
use crate::show::ShownEntry;

/// The number of entries read from the node at a time. Entries may be large.
const AT_A_TIME: usize = 16;
/// A page ends when its entries reach this many bytes.
const ENOUGH_BYTES: usize = 4 << 20;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryWish {
    namespace: Option<String>,
    /// Entries after this index; 0 unless it is said.
    #[serde(default)]
    #[param(required = false, default = 0)]
    after: u64,
    /// The most on a page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

/// Entries, in their order.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerHistory)]
pub(super) struct History {
    #[schema(value_type = Vec<ShownEntry>)]
    entries: Vec<Box<RawValue>>,
    /// Where the next page begins, to be sent back as `after`. At the end there is none; before it, a page may have fewer
    /// entries than were asked for.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// Entries of a ledger's history, as far as this daemon's node keeps them.
#[utoipa::path(get, path = "/v1/ledger/history", operation_id = "ledger_history", tag = "ledger",
    security(("token" = ["read", "namespace"])),
    params(HistoryWish),
    responses(
        (status = 200, description = "A page of them.", body = History),
        (status = 404, description = "This daemon has no such ledger.", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 410, description = "They are not kept any more; `first` is the first that is.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn history(
    State(app): State<App>,
    access: Access,
    Asked(wish): Asked<HistoryWish>,
) -> Result<Json<History>, Problem> {
    let node = node(&app, &access.namespace(wish.namespace)?)?;
    let limit = page::limit(wish.limit)? as usize;
    let (mut entries, mut bytes, mut after) = (Vec::new(), 0, Slot(wish.after));
    while entries.len() < limit && bytes < ENOUGH_BYTES {
        let wanted = AT_A_TIME.min(limit - entries.len());
        let pages = match within(node.history(after, wanted)).await? {
            Ok(pages) => pages,
            // Compaction removed the next entries while this page was built. The request for the next page gets the
            // error.
            Err(_) if !entries.is_empty() => break,
            Err(first) => return Err(gone(first)),
        };
        for page in &pages {
            after = page.index;
            let entry = serde_json::value::to_raw_value(&ShownEntry::from(page));
            let entry = entry.map_err(|why| Problem::new(Kind::Internal, why.to_string()))?;
            bytes += entry.get().len();
            entries.push(entry);
        }
        if pages.len() < wanted {
            break;
        }
    }
    let next = is_more(&node, after).then_some(after.0);
    Ok(Json(History { entries, next }))
}

fn is_more(node: &Node, after: Slot) -> bool {
    node.glance().borrow().head.index > after
}

/// Returns the problem for entries that this node no longer keeps.
fn gone(first: Slot) -> Problem {
    let before = first.0.saturating_sub(1);
    let detail =
        format!("this node keeps entries from {first} on: ask for those after {before}, or ask another node");
    Problem::new(Kind::HistoryGone, detail).with("first", first.0.into())
}
