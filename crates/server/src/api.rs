//! What is answered where.

mod audit;
mod body;
mod forms;
mod locks;
mod signals;
mod submit;
mod tasks;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::http::{Method, Uri};
use axum::routing::{get, post};
use axum::{Router, middleware};

use crate::access::{Door, ask};
use crate::app::App;
use crate::guard::guard;
use crate::problem::{Kind, Problem};
use crate::{health, page};

pub(crate) fn router(app: App, door: Arc<Door>) -> Router {
    Router::new()
        .route("/v1/tasks", post(submit::submit))
        .route("/v1/tasks/{id}", get(tasks::task))
        .route("/v1/signals", post(signals::signal))
        .merge(locks::router())
        .route("/v1/audit", get(audit::audit))
        .route("/", get(page::overview))
        .route("/style.css", get(page::style))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_so)
        .layer(DefaultBodyLimit::max(app.max_body()))
        .layer(middleware::from_fn_with_state(Arc::clone(&door), ask))
        .layer(middleware::from_fn_with_state(door, guard))
        .with_state(app)
}

async fn nothing_here(uri: Uri) -> Problem {
    Problem::new(Kind::NoSuchPage, format!("there is nothing at {}", uri.path()))
}

async fn not_so(method: Method, uri: Uri) -> Problem {
    Problem::new(Kind::NoSuchMethod, format!("{} does not take {method}", uri.path()))
}
