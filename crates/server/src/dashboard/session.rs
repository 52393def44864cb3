//! Login with an API token, and logout.
//!
//! A session is a token of its own, derived from the API token of the login. It has the same rights, lasts for 12 hours
//! at most, and ends with that API token. The browser keeps it in a cookie that no script can read.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};

use super::chrome::{Chrome, Visitor, render, sent};
use super::query::Query;
use crate::access::{Access, Door, Peer};
use crate::app::App;
use crate::clock;
use crate::keep::NewToken;
use crate::problem::{Problem, Said};

const COOKIE_NAME: &str = "holdoff_session";
/// The lifetime of a session.
const LASTS: Duration = Duration::from_secs(12 * 60 * 60);

#[derive(Template)]
#[template(path = "login.html")]
struct Login {
    chrome: Chrome,
    next: String,
    wrong: Option<String>,
}

/// Returns the session token of a request's cookies.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs = all.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE_NAME).map(|(_, value)| value).filter(|value| !value.is_empty())
}

/// Where to log in.
#[utoipa::path(get, path = "/login", tag = "pages", security(()), responses((status = 200, description = "The page.")))]
pub(super) async fn login(
    visitor: Visitor,
    Extension(door): Extension<Arc<Door>>,
) -> Result<Response, Problem> {
    if door.is_open() {
        return Ok(visitor.send("/").into_response());
    }
    let next = visitor.query.get("next").to_owned();
    render(&Login { chrome: visitor.page("/login", "Log in").still(), next, wrong: None })
}

/// Logs in.
#[utoipa::path(post, path = "/login", tag = "pages", security(()), responses((status = 303, description = "Welcome.")))]
pub(super) async fn begin(
    State(app): State<App>,
    visitor: Visitor,
    Extension(door): Extension<Arc<Door>>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    form: String,
) -> Result<Response, Problem> {
    let form = Query::read(&form);
    let next = form.get("next").to_owned();
    let token = match door.greet(form.get("token"), peer.map(|Extension(peer)| peer)).await {
        Ok(token) => token,
        Err(refusal) => return Ok(again(&visitor, next, refusal.into_response())),
    };
    // The store ends the session with its token, even if this clock is wrong.
    let left = token.expires_at.map_or(LASTS, |end| end.since(clock::wall()).min(LASTS));
    let session = app.keep.issue(&NewToken::session(&token, left.max(Duration::from_secs(1)))).await?;
    tracing::info!(who = token.name, "logged in");
    let cookie = set_cookie(&app, &headers, &session.token, left);
    Ok(([(SET_COOKIE, cookie)], Redirect::to(&format!("{}{}", app.base, safe(&next)))).into_response())
}

/// Renders the login page again, with the error. The page does not repeat the submitted token.
fn again(visitor: &Visitor, next: String, refusal: Response) -> Response {
    let detail = refusal.extensions().get::<Said>().map(|said| said.detail.clone()).unwrap_or_default();
    let status = refusal.status();
    let wrong = match status {
        StatusCode::UNAUTHORIZED => {
            "This token opens nothing here: it was mistyped, is revoked or has expired.".to_owned()
        }
        _ => detail,
    };
    let page = Login { chrome: visitor.page("/login", "Log in").still(), next, wrong: Some(wrong) };
    match page.render() {
        Ok(text) => (status, sent(text)).into_response(),
        Err(_) => refusal,
    }
}

/// Logs out: the session opens nothing any more.
#[utoipa::path(post, path = "/logout", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 303, description = "Goodbye.")))]
pub(super) async fn end(
    State(app): State<App>,
    visitor: Visitor,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if let Access::Token(token) = &visitor.access
        && token.session_of.is_some()
    {
        app.keep.revoke(&token.id).await?;
    }
    let cookie = set_cookie(&app, &headers, "", Duration::ZERO);
    Ok(([(SET_COOKIE, cookie)], visitor.send("/login")).into_response())
}

/// Returns the `Set-Cookie` value that deletes the session's cookie.
pub(super) fn gone(app: &App) -> String {
    set_cookie(app, &HeaderMap::new(), "", Duration::ZERO)
}

fn set_cookie(app: &App, headers: &HeaderMap, value: &str, lasts: Duration) -> String {
    let is_private =
        app.is_private || headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
    let path = if app.base.is_empty() { "/" } else { &app.base };
    let secure = if is_private { "; Secure" } else { "" };
    let seconds = lasts.as_secs();
    format!("{COOKIE_NAME}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}")
}

/// Returns the path to go to after the login. Only paths of this daemon are accepted, so that a link to the login
/// cannot redirect to another site.
fn safe(next: &str) -> &str {
    let is_ours = next.starts_with('/')
        && !next.starts_with("//")
        && !next.contains(|sign: char| sign.is_control() || sign == '\\');
    if is_ours { next } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_elsewhere() {
        for (next, to) in [
            ("/steps?state=failed", "/steps?state=failed"),
            ("", "/"),
            ("//evil.example", "/"),
            ("https://evil.example", "/"),
            ("/\\evil.example", "/"),
            // A browser removes a tab from a URL.
            ("/\t/evil.example", "/"),
        ] {
            assert_eq!(safe(next), to);
        }
    }

    #[test]
    fn the_session_is_found_among_other_cookies() {
        let find = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(COOKIE, text.parse().unwrap());
            cookie(&headers).map(str::to_owned)
        };
        assert_eq!(find("a=b; holdoff_session=x_y").as_deref(), Some("x_y"));
        assert_eq!(find("holdoff_session="), None);
        assert_eq!(find("xholdoff_session=z"), None);
    }
}
