//! The dashboard: HTML pages for operators.
//!
//! Every page works as plain HTML with links and forms; scripts only avoid reloads. Pages act through the functions of
//! the API, and each handler declares its access requirement in the same form as an operation. Pages accept a session
//! cookie as well as a token; the API accepts tokens only.

mod act;
mod assets;
mod audit;
mod bars;
mod chrome;
mod conflicts;
mod councils;
mod dress;
mod graph;
mod json;
mod ledger;
mod live;
mod locks;
mod nodes;
mod origin;
mod overview;
mod policies;
mod query;
mod queues;
mod session;
mod settings;
mod signals;
mod step;
mod steps;
mod tasks;
mod timeline;
mod whatif;
mod windows;
mod words;

pub(crate) use assets::edition;
pub(crate) use chrome::sent;
pub(crate) use dress::dress;
pub(crate) use session::cookie;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

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
        .routes(routes!(act::confirm))
        .routes(routes!(act::act))
        .routes(routes!(step::step))
        .routes(routes!(conflicts::conflict, conflicts::resolve))
        .routes(routes!(queues::queues))
        .routes(routes!(queues::pause))
        .routes(routes!(signals::signals))
        .routes(routes!(locks::locks))
        .routes(routes!(locks::release))
        .routes(routes!(councils::councils))
        .routes(routes!(ledger::ledger))
        .routes(routes!(policies::policies))
        .routes(routes!(policies::version, policies::restore))
        .routes(routes!(whatif::policy, whatif::publish))
        .routes(routes!(nodes::nodes))
        .routes(routes!(audit::audit))
        .routes(routes!(settings::settings))
        .routes(routes!(settings::make))
        .routes(routes!(settings::revoke))
        .routes(routes!(session::login, session::begin))
        .routes(routes!(session::end))
        .routes(routes!(live::live))
        .routes(routes!(assets::asset))
}
