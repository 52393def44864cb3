//! The routes of the API and the dashboard.

mod acceptor;
mod audit;
mod input;
mod ledger;
mod list;
mod locks;
mod openapi;
mod policies;
mod queues;
mod signals;
mod steps;
mod tasks;
mod workers;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::http::{Method, Uri};
use axum::{Extension, Router, middleware};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Auth, authenticate};
use crate::app::App;
use crate::guard::{close_on_shutdown, guard};
use crate::problem::{Kind, Problem};
use crate::{dashboard, events, health, lab};

pub(crate) use input::{HumanDuration, JsonBody, StepPath, TaskPath};
pub(crate) use list::{FilterForm, States};
pub(crate) use openapi::{is_page, pages, requirement_of};
pub(crate) use policies::{check_policies, deploy_policies};
pub(crate) use queues::{QueueView, set_paused};
pub(crate) use steps::{apply_action, etag, find_step, resolve_conflict};
pub(crate) use tasks::cancel as cancel_task;
pub(crate) use workers::PullWorkers;

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
        .routes(routes!(openapi::docs))
        .routes(routes!(openapi::openapi_json))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
}

/// Builds the router, with all its middleware. The layer of the dashboard is on the pages and on unknown paths only.
pub(crate) fn router(app: App, auth: Arc<Auth>) -> Router {
    let authentication = || middleware::from_fn_with_state(Arc::clone(&auth), authenticate);
    let page_layer = || middleware::from_fn_with_state(app.clone(), dashboard::render_problems);
    let (api, _) = routes().split_for_parts();
    let (pages, _) = dashboard::routes().split_for_parts();
    let api = api.method_not_allowed_fallback(method_not_allowed).layer(authentication());
    let pages = pages.method_not_allowed_fallback(method_not_allowed).layer(authentication());
    api.merge(pages.layer(page_layer()))
        .fallback(not_found.layer(authentication()).layer(page_layer()))
        .layer(DefaultBodyLimit::max(app.max_body()))
        .layer(Extension(Arc::clone(&auth)))
        .layer(middleware::from_fn_with_state(auth, guard))
        .layer(middleware::from_fn_with_state(app.clone(), close_on_shutdown))
        .with_state(app)
}

async fn not_found(uri: Uri) -> Problem {
    Problem::new(Kind::NotFound, format!("no route matches {}", uri.path()))
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(Kind::MethodNotAllowed, format!("{} does not support {method}", uri.path()))
}
