//! `/v1/locks`: locks for clients that renew and release them themselves.

mod act;
mod form;
mod handing;
mod look;

use axum::extract::DefaultBodyLimit;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The maximum body size in bytes: the longest key in base64, and a reserve.
const MAX_BODY: usize = 128 * 1024;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(look::list))
        .routes(routes!(look::show))
        .routes(routes!(act::acquire))
        .routes(routes!(act::renew))
        .routes(routes!(act::release))
        .routes(routes!(act::force_release))
        .routes(routes!(act::raise_era))
        .layer(DefaultBodyLimit::max(MAX_BODY))
}
