//! `GET /v1/locks` and `GET /v1/locks/show`

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use holdoff_lock::Filter;
use serde::Deserialize;
use utoipa::IntoParams;

use super::form::{Named, Place};
use crate::access::Access;
use crate::app::App;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::show::{ShownLock, show_lock};

/// The most locks in one answer.
const MOST: u32 = 1000;

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
}

/// Locks, by namespace and key.
#[utoipa::path(get, path = "/v1/locks", tag = "locks", security(("token" = ["read", "namespace"])), params(Wish),
    responses((status = 200, description = "The locks.", body = Vec<ShownLock<'static>>)))]
pub(super) async fn list(
    State(app): State<App>,
    access: Access,
    wish: Result<Query<Wish>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(wish) = wish.map_err(|wrong| not_understood(&wrong))?;
    let mut filter = Filter::default().limit(wish.limit.unwrap_or(100).clamp(1, MOST));
    if let Some(namespace) = access.only(wish.namespace)? {
        filter = filter.namespace(namespace);
    }
    if let Some(prefix) = wish.prefix {
        filter = filter.prefix(prefix);
    }
    if wish.held {
        filter = filter.held();
    }
    let records = app.locks.list(&filter).await?;
    let shown: Vec<ShownLock<'_>> = records.iter().map(show_lock).collect();
    Ok(Json(shown).into_response())
}

/// One lock.
#[utoipa::path(get, path = "/v1/locks/show", tag = "locks", security(("token" = ["read", "namespace"])), params(Named),
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
    let Some(record) = app.locks.with_namespace(namespace)?.inspect(bytes).await? else {
        let detail = "it was never held, or nobody has used it for so long that it is forgotten";
        return Err(Problem::new(Kind::NoSuchLock, detail));
    };
    Ok(Json(show_lock(&record)).into_response())
}

fn not_understood(wrong: &QueryRejection) -> Problem {
    Problem::new(Kind::InvalidQuery, wrong.body_text())
}
