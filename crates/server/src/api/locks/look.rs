//! `GET /v1/locks` and `GET /v1/locks/show`

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use holdoff_lock::{Filter, LockRecord};
use serde::Deserialize;
use utoipa::IntoParams;

use super::super::page::{self, Page};
use super::form::{Named, Place};
use crate::access::Access;
use crate::app::App;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::show::{ShownLock, show_lock};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    namespace: Option<String>,
    /// Only those whose readable key begins so.
    prefix: Option<String>,
    /// Only those that somebody holds.
    #[serde(default)]
    held: bool,
    /// The most on a page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// Locks, by namespace and key.
#[utoipa::path(get, path = "/v1/locks", tag = "locks", security(("token" = ["read", "namespace"])), params(Wish),
    responses((status = 200, description = "A page of them.", body = Page<ShownLock<'static>>)))]
pub(super) async fn list(
    State(app): State<App>,
    access: Access,
    wish: Result<Query<Wish>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(wish) = wish.map_err(|wrong| not_understood(&wrong))?;
    let limit = page::limit(wish.limit)?;
    let mut filter = Filter::default().limit(limit);
    if let Some((namespace, key, digest)) = page::after(wish.cursor.as_deref(), read_mark)? {
        filter = filter.after(&namespace, &key, &digest);
    }
    if let Some(namespace) = access.only(wish.namespace)? {
        filter = filter.namespace(namespace);
    }
    if let Some(prefix) = wish.prefix {
        filter = filter.prefix(prefix);
    }
    if wish.held {
        filter = filter.held();
    }
    let records = app.locking.here().await?.list(&filter).await?;
    let is_full = records.len() >= limit as usize;
    let end = records.last().filter(|_| is_full).map(mark);
    let shown: Vec<ShownLock<'_>> = records.iter().map(show_lock).collect();
    Ok(Json(Page::new(shown, end)).into_response())
}

/// Returns the cursor of a lock in the list.
fn mark(lock: &LockRecord) -> String {
    serde_json::json!([lock.namespace, lock.key, lock.digest]).to_string()
}

fn read_mark(text: &str) -> Option<(String, String, String)> {
    serde_json::from_str(text).ok()
}

/// One lock.
#[utoipa::path(get, path = "/v1/locks/show", operation_id = "lock", tag = "locks",
    security(("token" = ["read", "namespace"])), params(Named),
    responses(
        (status = 200, description = "The lock.", body = ShownLock<'static>),
        (status = 404, description = "It was never held, or is forgotten.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn show(
    State(app): State<App>,
    access: Access,
    named: Result<Query<Named>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(named) = named.map_err(|wrong| not_understood(&wrong))?;
    let Place { namespace, bytes } = named.place(&access)?;
    let Some(record) = app.locking.here().await?.with_namespace(namespace)?.inspect(bytes).await? else {
        let detail = "it was never held, or nobody has used it for so long that it is forgotten";
        return Err(Problem::new(Kind::NoSuchLock, detail));
    };
    Ok(Json(show_lock(&record)).into_response())
}

fn not_understood(wrong: &QueryRejection) -> Problem {
    Problem::new(Kind::InvalidQuery, wrong.body_text())
}
