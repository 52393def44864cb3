//! The dashboard: HTML pages for operators.
//!
//! Every page works as plain HTML with links and forms; scripts only avoid reloads. Pages act through the functions of
//! the API, and each handler declares its access requirement in the same form as an operation. Pages accept a session
//! cookie as well as a token; the API accepts tokens only.

mod admin;
mod assets;
mod chrome;
mod councils;
mod formatting;
mod ledger;
mod locks;
mod overview;
mod policies;
mod problem_page;
mod query;
mod queues;
mod session;
mod step;
mod steps;
mod tasks;
mod timeline;
mod whatif;

pub(crate) use assets::edition;
pub(crate) use chrome::html_response;
pub(crate) use problem_page::{is_same_origin, render_problems};
pub(crate) use session::{cookie, cookie_name, is_encrypted};

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::app::App;
use crate::events;
use crate::problem::Problem;

/// All pages, with their access requirements.
pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(overview::overview))
        .routes(routes!(tasks::tasks))
        .routes(routes!(tasks::task))
        .routes(routes!(tasks::cancel))
        .routes(routes!(steps::steps))
        .routes(routes!(steps::failed))
        .routes(routes!(steps::in_conflict))
        .routes(routes!(steps::confirm))
        .routes(routes!(steps::act))
        .routes(routes!(step::step))
        .routes(routes!(step::conflict, step::resolve))
        .routes(routes!(queues::queues))
        .routes(routes!(queues::pause))
        .routes(routes!(queues::signals))
        .routes(routes!(locks::locks))
        .routes(routes!(locks::release))
        .routes(routes!(councils::councils))
        .routes(routes!(ledger::ledger))
        .routes(routes!(policies::policies))
        .routes(routes!(policies::version, policies::redeploy))
        .routes(routes!(whatif::policy, whatif::deploy))
        .routes(routes!(admin::nodes))
        .routes(routes!(admin::audit))
        .routes(routes!(admin::settings))
        .routes(routes!(admin::create_token))
        .routes(routes!(admin::revoke_token))
        .routes(routes!(session::login, session::log_in))
        .routes(routes!(session::log_out))
        .routes(routes!(live))
        .routes(routes!(assets::asset))
}

/// Streams the kinds of changes as server-sent events. A page then reloads with the visitor's own permissions.
#[utoipa::path(get, path = "/live", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "Events, until one side closes the stream.")))]
async fn live(State(app): State<App>, caller: Caller, headers: HeaderMap) -> Result<Response, Problem> {
    events::open_stream(&app, &caller, &headers, events::EventDetail::KindsOnly)
}
