//! The audit log.

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::chrome::{Chrome, Visitor, render};
use crate::app::App;
use crate::keep::{AuditEntry, AuditPage};
use crate::problem::Problem;

const ON_A_PAGE: u32 = 100;

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditLog {
    chrome: Chrome,
    entries: Vec<AuditEntry>,
    is_first: bool,
    next: Option<String>,
}

/// What operators did, the latest first.
#[utoipa::path(get, path = "/audit", tag = "pages", security(("token" = ["admin", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn audit(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let mut page = AuditPage::newest(ON_A_PAGE);
    page.namespace = visitor.access.own().map(str::to_owned);
    page.before = visitor.query.get("before").parse().ok();
    let entries = app.keep.audit(&page).await?;
    let is_full = entries.len() >= ON_A_PAGE as usize;
    let next = entries.last().filter(|_| is_full).map(|entry| format!("/audit?before={}", entry.id));
    let is_first = page.before.is_none();
    render(&AuditLog { chrome: visitor.page("/audit", "Audit log"), entries, is_first, next })
}
