//! `/v1/ledger`: one leader, one history.

mod act;
mod form;
mod history;
mod look;
mod members;
mod stream;

use axum::extract::DefaultBodyLimit;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::ledgers::{Ledgers, Node, no_ledger};
use crate::problem::Problem;

/// The most bytes of a body: as many commands as there may be with the longest values, and some.
const MAX_BODY: usize = 2 << 20;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(look::ledgers))
        .routes(routes!(look::show))
        .routes(routes!(history::history))
        .routes(routes!(stream::events))
        .routes(routes!(act::submit))
        .routes(routes!(look::read))
        .routes(routes!(look::value))
        .routes(routes!(look::verify))
        .routes(routes!(members::admit))
        .routes(routes!(members::dismiss))
        .routes(routes!(act::step_down))
        .routes(routes!(act::snapshot))
        .layer(DefaultBodyLimit::max(MAX_BODY))
}

/// The ledgers of this daemon; without any there is not this one either.
fn ledgers<'a>(app: &'a App, namespace: &str) -> Result<&'a Ledgers, Problem> {
    app.ledgers.as_deref().ok_or_else(|| no_ledger(namespace))
}

fn node(app: &App, namespace: &str) -> Result<Node, Problem> {
    ledgers(app, namespace)?.node(namespace)
}
