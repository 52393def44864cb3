//! `GET /v1/audit`

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::input::Query;
use crate::access::Caller;
use crate::app::App;
use crate::problem::Problem;
use crate::token_store::{AuditEntry, AuditPage};

/// The default number of entries on a page.
const USUAL: u32 = 100;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// Only actions in this namespace.
    namespace: Option<String>,
    /// The `id` of the oldest entry of the previous page.
    before: Option<i64>,
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Lists the actions of operators, newest first.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", security(("token" = ["admin", "namespace"])),
    params(AuditQuery),
    responses((status = 200, description = "The entries of the audit log.", body = Vec<AuditEntry>)))]
pub(crate) async fn audit(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<AuditQuery>,
) -> Result<Json<Vec<AuditEntry>>, Problem> {
    let mut page = AuditPage::newest(query.limit.unwrap_or(USUAL));
    page.namespace = caller.namespace_filter(query.namespace)?;
    page.before = query.before;
    Ok(Json(app.token_store.audit(&page).await?))
}
