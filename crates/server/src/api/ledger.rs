//! `/v1/ledger`: status, transactions, history and members of a ledger.

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

/// The maximum body size in bytes: the largest permitted number of commands with the longest values, and a reserve.
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

/// Returns the ledgers of this daemon. If it has none, the requested ledger does not exist either.
fn ledgers<'a>(app: &'a App, namespace: &str) -> Result<&'a Ledgers, Problem> {
    app.ledgers.as_deref().ok_or_else(|| no_ledger(namespace))
}

fn node(app: &App, namespace: &str) -> Result<Node, Problem> {
    ledgers(app, namespace)?.node(namespace)
}
