//! The processes that work on this store: version, load, and policy drift.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use holdoff_work::NodeRecord;

use super::chrome::{Chrome, Visitor, render};
use crate::app::App;
use crate::problem::Problem;

#[derive(Template)]
#[template(path = "nodes.html")]
struct NodesPage {
    chrome: Chrome,
    nodes: Vec<NodeRecord>,
    active: String,
    place: String,
}

/// The nodes on this store.
#[utoipa::path(get, path = "/nodes", tag = "pages", security(("token" = ["read"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn nodes(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let nodes = app.work.nodes().await?;
    let active = app.work.policies().id().to_string();
    render(&NodesPage {
        chrome: visitor.page("/nodes", "Nodes"),
        nodes,
        active,
        place: app.place.to_string(),
    })
}
