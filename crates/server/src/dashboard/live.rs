//! Server-sent events that tell open pages to reload.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use crate::access::Access;
use crate::app::App;
use crate::events;
use crate::problem::Problem;

/// That something changed, as server-sent events without a word about what: the page looks again, as whoever it is.
#[utoipa::path(get, path = "/live", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "Events, until one side ends it.")))]
pub(super) async fn live(
    State(app): State<App>,
    access: Access,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    events::seat(&app, &access, &headers, events::Telling::Names)
}
