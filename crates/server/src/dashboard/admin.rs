//! Pages of the daemon itself: its settings and API tokens, the nodes on its store, and the audit log.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use holdoff_policy::format_duration;
use holdoff_work::NodeRecord;

use super::chrome::{Chrome, Visitor, render};
use super::query::PageQuery;
use crate::access::Auth;
use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::token_store::{AuditEntry, AuditEvent, AuditPage, NewToken, TokenRecord, TokenScope};

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    chrome: Chrome,
    facts: Vec<(&'static str, String)>,
    tokens: Vec<TokenRow>,
    is_open: bool,
    /// The name of a token that was just created, and the token itself.
    created: Option<(String, String)>,
    error: Option<String>,
    form: PageQuery,
}

struct TokenRow {
    record: TokenRecord,
    state: &'static str,
}

/// Shows the settings of this daemon and its API tokens.
#[utoipa::path(get, path = "/settings", tag = "pages", security(("token" = ["admin"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn settings(
    State(app): State<App>,
    visitor: Visitor,
    Extension(auth): Extension<Arc<Auth>>,
) -> Result<Response, Problem> {
    render(&page(&app, &visitor, auth.is_open(), PageQuery::default()).await?)
}

/// Creates an API token and shows it once.
#[utoipa::path(post, path = "/settings/tokens", tag = "pages", security(("token" = ["admin"])),
    responses((status = 200, description = "The page, with the token.")))]
pub(super) async fn create_token(
    State(app): State<App>,
    visitor: Visitor,
    Extension(auth): Extension<Arc<Auth>>,
    form: String,
) -> Result<Response, Problem> {
    if auth.is_open() {
        // Any program on this machine reaches an open daemon, and a token outlives the day when tokens become required.
        let detail = "this daemon requires no API token, so it creates none; create one with `holdoff token create` and the \
                      daemon's --store or --data";
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    let form = PageQuery::read(&form);
    let issued = match new_token(&form) {
        Ok(new) => app.token_store.issue(&new).await.map_err(|source| match source {
            crate::Error::Token(why) => why.to_string(),
            other => {
                tracing::warn!(error = %other, "failed to create an API token");
                "the store did not answer; submit the form again".to_owned()
            }
        }),
        Err(why) => Err(why),
    };
    let mut page = page(&app, &visitor, auth.is_open(), form.clone()).await?;
    match issued {
        Ok(issued) => {
            let TokenRecord { id, scope, name, namespace, .. } = &issued.record;
            let event = AuditEvent::new("token.create", format!("{id} {scope} {name}"));
            let event = namespace.iter().fold(event, AuditEvent::in_namespace);
            page.created = Some((issued.record.name.clone(), issued.token));
            page.form = PageQuery::default();
            Ok((Extension(event), render(&page)?).into_response())
        }
        Err(why) => {
            page.error = Some(why);
            Ok((StatusCode::UNPROCESSABLE_ENTITY, render(&page)?).into_response())
        }
    }
}

/// Revokes an API token.
#[utoipa::path(post, path = "/settings/tokens/revoke", tag = "pages", security(("token" = ["admin"])),
    responses((status = 303, description = "The API token is revoked.")))]
pub(super) async fn revoke_token(
    State(app): State<App>,
    visitor: Visitor,
    form: String,
) -> Result<Response, Problem> {
    let form = PageQuery::read(&form);
    let id = form.get("id");
    if !app.token_store.revoke(id).await? {
        return Err(Problem::new(Kind::NotFound, "no active API token has this id"));
    }
    Ok((Extension(AuditEvent::new("token.revoke", id)), visitor.redirect("/settings?done=revoke"))
        .into_response())
}

async fn page(app: &App, visitor: &Visitor, is_open: bool, form: PageQuery) -> Result<SettingsPage, Problem> {
    let chrome = visitor.page("/settings", "Settings").still();
    let state = |record: &TokenRecord| match record {
        record if record.revoked_at.is_some() => "revoked",
        record if !record.is_valid(chrome.now) => "expired",
        _ => "valid",
    };
    let tokens = app.token_store.tokens().await?;
    let tokens = tokens.into_iter().map(|record| TokenRow { state: state(&record), record }).collect();
    Ok(SettingsPage { facts: facts(app), tokens, is_open, created: None, error: None, form, chrome })
}

fn new_token(form: &PageQuery) -> Result<NewToken, String> {
    let scope: TokenScope =
        form.get("scope").parse().map_err(|_| "select the scope of the API token".to_owned())?;
    let mut new = NewToken::new(form.get("name"), scope);
    if !form.get("namespace").is_empty() {
        new = new.namespace(form.get("namespace"));
    }
    if !form.get("expires").is_empty() {
        let expires = holdoff_policy::parse_duration(form.get("expires"));
        new = new.expires(expires.map_err(|why| format!("expected a duration such as \"90d\": {why}"))?);
    }
    Ok(new)
}

/// Returns the settings that may be shown.
fn facts(app: &App) -> Vec<(&'static str, String)> {
    let settings = app.work.settings();
    let time = |span: Duration| format_duration(span);
    let mut kept = match app.locking.ledger() {
        None => vec![("Store of work and locks", app.store.to_string())],
        Some(name) => {
            vec![("Store of work", app.store.to_string()), ("Store of locks", format!("the ledger {name}"))]
        }
    };
    kept.extend([
        ("Version", env!("CARGO_PKG_VERSION").to_owned()),
        ("Lease of a step", time(settings.lease)),
        ("Retention of finished steps", time(settings.history.keep)),
        ("Retention of failed steps", time(settings.history.keep_failed)),
        ("Maximum payload", format!("{} bytes", settings.max_payload)),
        ("Default lease of a lock", time(app.locking.settings().lease())),
    ]);
    kept
}

#[derive(Template)]
#[template(path = "nodes.html")]
struct NodesPage {
    chrome: Chrome,
    nodes: Vec<NodeRecord>,
    active: String,
    store: String,
}

/// Lists the nodes on this store.
#[utoipa::path(get, path = "/nodes", tag = "pages", security(("token" = ["read"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn nodes(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let nodes = app.work.nodes().await?;
    let active = app.work.policies().id().to_string();
    render(&NodesPage {
        chrome: visitor.page("/nodes", "Nodes"),
        nodes,
        active,
        store: app.store.to_string(),
    })
}

const ON_A_PAGE: u32 = 100;

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditLog {
    chrome: Chrome,
    entries: Vec<AuditEntry>,
    is_first: bool,
    next: Option<String>,
}

/// Lists the actions of operators, newest first.
#[utoipa::path(get, path = "/audit", tag = "pages", security(("token" = ["admin", "namespace"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn audit(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let mut page = AuditPage::newest(ON_A_PAGE);
    page.namespace = visitor.caller.own_namespace().map(str::to_owned);
    page.before = visitor.query.get("before").parse().ok();
    let entries = app.token_store.audit(&page).await?;
    let is_full = entries.len() >= ON_A_PAGE as usize;
    let next = entries.last().filter(|_| is_full).map(|entry| format!("/audit?before={}", entry.id));
    let is_first = page.before.is_none();
    render(&AuditLog { chrome: visitor.page("/audit", "Audit log"), entries, is_first, next })
}
