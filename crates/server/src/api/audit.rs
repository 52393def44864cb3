//! `GET /v1/audit`

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::Deserialize;

use crate::access::Access;
use crate::app::App;
use crate::keep::{AuditEntry, AuditPage};
use crate::problem::{Kind, Problem};

/// How many entries are shown unless it is said.
const USUAL: u32 = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wish {
    namespace: Option<String>,
    /// The number of the oldest entry of the page before.
    before: Option<i64>,
    limit: Option<u32>,
}

pub(crate) async fn audit(
    State(app): State<App>,
    access: Access,
    wish: Result<Query<Wish>, QueryRejection>,
) -> Result<Json<Vec<AuditEntry>>, Problem> {
    let Query(wish) = wish.map_err(|wrong| Problem::new(Kind::InvalidQuery, wrong.body_text()))?;
    let mut page = AuditPage::newest(wish.limit.unwrap_or(USUAL));
    page.namespace = access.only(wish.namespace)?;
    page.before = wish.before;
    Ok(Json(app.keep.audit(&page).await?))
}
