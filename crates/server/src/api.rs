//! What is answered where.

mod body;
mod forms;
mod locks;
mod signals;
mod submit;
mod tasks;
mod versions;

use axum::extract::DefaultBodyLimit;
use axum::http::{Method, Uri};
use axum::routing::{get, post};
use axum::{Router, middleware};

use crate::app::App;
use crate::guard::guard;
use crate::problem::{Kind, Problem};
use crate::retire::say_goodbye;
use crate::{health, page};

pub(crate) fn router(app: App) -> Router {
    Router::new()
        .route("/v1/tasks", post(submit::submit))
        .route("/v1/tasks/{id}", get(tasks::task))
        .route("/v1/signals", post(signals::signal))
        .merge(locks::router())
        .merge(versions::router())
        .route("/", get(page::overview))
        .route("/style.css", get(page::style))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_so)
        .layer(DefaultBodyLimit::max(app.max_body()))
        .layer(middleware::from_fn(guard))
        .layer(middleware::from_fn_with_state(app.clone(), say_goodbye))
        .with_state(app)
}

async fn nothing_here(uri: Uri) -> Problem {
    Problem::new(Kind::NoSuchPage, format!("there is nothing at {}", uri.path()))
}

async fn not_so(method: Method, uri: Uri) -> Problem {
    Problem::new(Kind::NoSuchMethod, format!("{} does not take {method}", uri.path()))
}
