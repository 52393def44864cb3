//! `GET /v1/locks` and `GET /v1/locks/show`

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use holdoff_lock::Filter;
use serde::Deserialize;

use super::form::{Named, Place};
use crate::access::Access;
use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::show::{ShownLock, show_lock};

/// The most locks in one answer.
const MOST: u32 = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    namespace: Option<String>,
    prefix: Option<String>,
    #[serde(default)]
    held: bool,
    limit: Option<u32>,
}

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
