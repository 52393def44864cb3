//! Signals: how often each was received, and its task.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use holdoff_work::SignalRecord;

use super::chrome::{Chrome, Visitor, render};
use crate::app::App;
use crate::problem::Problem;

const MOST: u32 = 100;

#[derive(Template)]
#[template(path = "signals.html")]
struct SignalsPage {
    chrome: Chrome,
    signals: Vec<SignalRecord>,
}

/// Signals, the latest first.
#[utoipa::path(get, path = "/signals", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn signals(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let signals = app.work.signals(visitor.access.own(), MOST).await?;
    render(&SignalsPage { chrome: visitor.page("/signals", "Signals"), signals })
}
