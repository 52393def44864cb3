//! `/v1/steps`, `/v1/failed` and `/v1/conflicts`

mod act;
mod look;
mod resolve;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use act::carry_out;
pub(crate) use look::{etag, find as find_step};
pub(crate) use resolve::decide as decide_conflict;

use crate::app::App;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(look::steps))
        .routes(routes!(look::step))
        .routes(routes!(look::attempts))
        .routes(routes!(look::failed))
        .routes(routes!(look::conflicts))
        .routes(routes!(act::retry))
        .routes(routes!(act::cancel))
        .routes(routes!(act::discard))
        .routes(routes!(resolve::resolve))
}
