//! `/v1/locks`: locks for clients who keep them themselves.

mod act;
mod form;
mod handing;
mod look;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};

use crate::app::App;

/// The most bytes of a body: the longest key in base64, and some.
const MAX_BODY: usize = 128 * 1024;

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/v1/locks", get(look::list))
        .route("/v1/locks/show", get(look::show))
        .route("/v1/locks/acquire", post(act::acquire))
        .route("/v1/locks/renew", post(act::renew))
        .route("/v1/locks/release", post(act::release))
        .route("/v1/locks/force-release", post(act::force_release))
        .layer(DefaultBodyLimit::max(MAX_BODY))
}
