//! The routes of the API and the dashboard.

mod acceptor;
mod audit;
mod body;
mod forms;
mod input;
mod ledger;
mod locks;
mod openapi;
mod page;
mod policies;
mod queues;
mod signals;
mod steps;
mod submit;
mod tasks;
mod wish;
mod workers;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::http::{Method, Uri};
use axum::{Extension, Router, middleware};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Door, ask};
use crate::app::App;
use crate::guard::guard;
use crate::problem::{Kind, Problem};
use crate::retire::say_goodbye;
use crate::{dashboard, events, health, lab};

pub(crate) use forms::Wait;
pub(crate) use input::{NamedStep, NamedTask, Sent};
pub(crate) use openapi::{document, is_page, need_of, pages, scope};
pub(crate) use policies::{check_policies, put_in_force};
pub(crate) use queues::{ShownQueue, set_paused};
pub(crate) use steps::{carry_out, decide_conflict, etag, find_step};
pub(crate) use tasks::cancel as cancel_task;
pub(crate) use wish::{FilterForm, States};

/// All routes of the API, with their entries in the API's document.
fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(tasks::routes())
        .merge(steps::routes())
        .merge(workers::routes())
        .merge(queues::routes())
        .merge(locks::routes())
        .routes(routes!(signals::signal))
        .merge(acceptor::routes())
        .merge(ledger::routes())
        .merge(policies::routes())
        .routes(routes!(lab::run))
        .routes(routes!(events::listen))
        .routes(routes!(audit::audit))
        .routes(routes!(crate::docs::docs))
        .routes(routes!(openapi::served))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
}

/// Builds the router, with all its middleware.
pub(crate) fn router(app: App, door: Arc<Door>) -> Router {
    let (router, _) = routes().merge(dashboard::routes()).split_for_parts();
    router
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_so)
        .layer(DefaultBodyLimit::max(app.max_body()))
        .layer(Extension(Arc::clone(&door)))
        .layer(middleware::from_fn_with_state(Arc::clone(&door), ask))
        .layer(middleware::from_fn_with_state(app.clone(), dashboard::dress))
        .layer(middleware::from_fn_with_state(door, guard))
        .layer(middleware::from_fn_with_state(app.clone(), say_goodbye))
        .with_state(app)
}

async fn nothing_here(uri: Uri) -> Problem {
    Problem::new(Kind::NoSuchPage, format!("there is nothing at {}", uri.path()))
}

async fn not_so(method: Method, uri: Uri) -> Problem {
    Problem::new(Kind::NoSuchMethod, format!("{} does not take {method}", uri.path()))
}
