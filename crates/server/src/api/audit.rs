//! `GET /v1/audit`

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::input::Asked;
use crate::access::Access;
use crate::app::App;
use crate::keep::{AuditEntry, AuditPage};
use crate::problem::Problem;

/// The default number of entries on a page.
const USUAL: u32 = 100;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditWish {
    /// Only what was done in this namespace.
    namespace: Option<String>,
    /// The number of the oldest entry of the page before.
    before: Option<i64>,
    /// How many entries at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// What operators did, the latest first.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", security(("token" = ["admin", "namespace"])),
    params(AuditWish),
    responses((status = 200, description = "What was done, and by whom.", body = Vec<AuditEntry>)))]
pub(crate) async fn audit(
    State(app): State<App>,
    access: Access,
    Asked(wish): Asked<AuditWish>,
) -> Result<Json<Vec<AuditEntry>>, Problem> {
    let mut page = AuditPage::newest(wish.limit.unwrap_or(USUAL));
    page.namespace = access.only(wish.namespace)?;
    page.before = wish.before;
    Ok(Json(app.keep.audit(&page).await?))
}
