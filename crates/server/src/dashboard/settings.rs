//! Settings of this daemon, and its API tokens.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use holdoff_policy::format_duration;

use super::chrome::{Chrome, Visitor, render};
use super::query::Query;
use crate::access::Door;
use crate::app::App;
use crate::keep::{Deed, NewToken, Scope, TokenRecord};
use crate::problem::{Kind, Problem};

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    chrome: Chrome,
    facts: Vec<(&'static str, String)>,
    tokens: Vec<Token>,
    is_open: bool,
    /// The name of a token that was just created, and the token itself.
    made: Option<(String, String)>,
    wrong: Option<String>,
    form: Query,
}

struct Token {
    record: TokenRecord,
    state: &'static str,
}

/// How this daemon runs, and its tokens.
#[utoipa::path(get, path = "/settings", tag = "pages", security(("token" = ["admin"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn settings(
    State(app): State<App>,
    visitor: Visitor,
    Extension(door): Extension<Arc<Door>>,
) -> Result<Response, Problem> {
    render(&page(&app, &visitor, door.is_open(), Query::default()).await?)
}

/// Makes a token, and shows it once.
#[utoipa::path(post, path = "/settings/tokens", tag = "pages", security(("token" = ["admin"])),
    responses((status = 200, description = "The page, with the token.")))]
pub(super) async fn make(
    State(app): State<App>,
    visitor: Visitor,
    Extension(door): Extension<Arc<Door>>,
    form: String,
) -> Result<Response, Problem> {
    let form = Query::read(&form);
    let issued = match wanted(&form) {
        Ok(new) => app.keep.issue(&new).await.map_err(|error| match error {
            crate::Error::Token(why) => why.to_string(),
            other => {
                tracing::warn!(error = %other, "a token could not be made");
                "the store did not answer; try again".to_owned()
            }
        }),
        Err(why) => Err(why),
    };
    let mut page = page(&app, &visitor, door.is_open(), form.clone()).await?;
    match issued {
        Ok(issued) => {
            let TokenRecord { id, scope, name, namespace, .. } = &issued.record;
            let deed = Deed::new("token.create", format!("{id} {scope} {name}"));
            let deed = namespace.iter().fold(deed, Deed::within);
            page.made = Some((issued.record.name.clone(), issued.token));
            page.form = Query::default();
            Ok((Extension(deed), render(&page)?).into_response())
        }
        Err(why) => {
            page.wrong = Some(why);
            Ok((StatusCode::UNPROCESSABLE_ENTITY, render(&page)?).into_response())
        }
    }
}

/// Revokes a token.
#[utoipa::path(post, path = "/settings/tokens/revoke", tag = "pages", security(("token" = ["admin"])),
    responses((status = 303, description = "It opens nothing any more.")))]
pub(super) async fn revoke(
    State(app): State<App>,
    visitor: Visitor,
    form: String,
) -> Result<Response, Problem> {
    let form = Query::read(&form);
    let id = form.get("id");
    if !app.keep.revoke(id).await? {
        return Err(Problem::new(Kind::NoSuchPage, "there is no such token that is not revoked yet"));
    }
    Ok((Extension(Deed::new("token.revoke", id)), visitor.send("/settings?done=revoke")).into_response())
}

async fn page(app: &App, visitor: &Visitor, is_open: bool, form: Query) -> Result<SettingsPage, Problem> {
    let chrome = visitor.page("/settings", "Settings").still();
    let state = |record: &TokenRecord| match record {
        record if record.revoked_at.is_some() => "revoked",
        record if !record.is_good(chrome.now) => "expired",
        _ => "good",
    };
    let tokens = app.keep.tokens().await?;
    let tokens = tokens.into_iter().map(|record| Token { state: state(&record), record }).collect();
    Ok(SettingsPage { facts: facts(app), tokens, is_open, made: None, wrong: None, form, chrome })
}

fn wanted(form: &Query) -> Result<NewToken, String> {
    let scope: Scope =
        form.get("scope").parse().map_err(|_| "choose what the token is good for".to_owned())?;
    let mut new = NewToken::new(form.get("name"), scope);
    if !form.get("namespace").is_empty() {
        new = new.namespace(form.get("namespace"));
    }
    if !form.get("expires").is_empty() {
        let expires = holdoff_policy::parse_duration(form.get("expires"));
        new = new.expires(expires.map_err(|why| format!("expected a time such as \"90d\": {why}"))?);
    }
    Ok(new)
}

/// Returns the settings that may be shown.
fn facts(app: &App) -> Vec<(&'static str, String)> {
    let settings = app.work.settings();
    let time = |span: Duration| format_duration(span);
    let mut kept = match app.locking.ledger() {
        None => vec![("Work and locks are kept in", app.place.to_string())],
        Some(name) => {
            vec![
                ("Work is kept in", app.place.to_string()),
                ("Locks are kept in", format!("the ledger {name}")),
            ]
        }
    };
    kept.extend([
        ("Version", env!("CARGO_PKG_VERSION").to_owned()),
        ("A worker has a step for", time(settings.lease)),
        ("Finished steps are kept for", time(settings.history.keep)),
        ("Failed steps are kept for", time(settings.history.keep_failed)),
        ("A payload has at most", format!("{} bytes", settings.max_payload)),
        ("A lock's lease lasts", time(app.locking.settings().lease())),
    ]);
    kept
}
