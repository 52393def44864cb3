//! Login with an API token, and logout.
//!
//! A session is a token of its own, derived from the API token of the login. It has the same rights, lasts for 12 hours
//! at most, and ends with that API token. The browser keeps it in a cookie that no script can read.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};

use super::chrome::{Chrome, Visitor, html_response, render};
use super::query::PageQuery;
use crate::access::{Auth, Caller, PeerIp};
use crate::app::App;
use crate::clock;
use crate::problem::{Kind, Problem, ProblemText};
use crate::token_store::NewToken;

/// A browser accepts a cookie with one of these prefixes over TLS only; one with `__Host-` only from this host, for all
/// of its paths. Therefore neither another host of the domain nor plain HTTP can plant a session.
const COOKIE_NAMES: [&str; 3] = ["holdoff_session", "__Secure-holdoff_session", "__Host-holdoff_session"];
/// The maximum size of the form of a login, in bytes: a stranger may send it.
const MAX_FORM_BYTES: usize = 4096;
/// The time within which the form of a login must arrive.
const FORM_TIMEOUT: Duration = Duration::from_secs(5);
/// The lifetime of a session.
const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

#[derive(Template)]
#[template(path = "login.html")]
struct Login {
    chrome: Chrome,
    next: String,
    wrong: Option<String>,
}

/// Returns whether the browser's connection uses TLS: to the daemon, or to a proxy in front of it.
pub(crate) fn is_encrypted(has_tls: bool, headers: &HeaderMap) -> bool {
    has_tls || headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https")
}

/// Returns the name of the session's cookie under this path prefix.
pub(crate) fn cookie_name(is_encrypted: bool, base: &str) -> &'static str {
    let [plain, secure, host] = COOKIE_NAMES;
    match (is_encrypted, base) {
        (false, _) => plain,
        (true, "") => host,
        (true, _) => secure,
    }
}

/// Returns the session token of a request's cookies.
pub(crate) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs = all.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(named, _)| *named == name).map(|(_, value)| value).filter(|value| !value.is_empty())
}

/// Shows the login form.
#[utoipa::path(get, path = "/login", tag = "pages", security(()), responses((status = 200, description = "The page.")))]
pub(super) async fn login(
    visitor: Visitor,
    Extension(auth): Extension<Arc<Auth>>,
) -> Result<Response, Problem> {
    if auth.is_open() {
        return Ok(visitor.redirect("/").into_response());
    }
    let next = visitor.query.get("next").to_owned();
    render(&Login { chrome: visitor.page("/login", "Log in").still(), next, wrong: None })
}

/// Logs in.
#[utoipa::path(post, path = "/login", tag = "pages", security(()), responses((status = 303, description = "The session has begun.")))]
pub(super) async fn log_in(
    State(app): State<App>,
    visitor: Visitor,
    Extension(auth): Extension<Arc<Auth>>,
    peer: Option<Extension<PeerIp>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let peer = peer.map(|Extension(peer)| peer);
    let Some(_place) = auth.enter_login(peer) else {
        let detail = "too many logins from this address are in progress";
        return Err(Problem::new(Kind::TooManyRequests, detail).retry_after(FORM_TIMEOUT));
    };
    let form = PageQuery::read(&read_form(body).await?);
    let next = form.get("next").to_owned();
    let token = match auth.login(form.get("token"), peer).await {
        Ok(token) => token,
        Err(refusal) => return Ok(login_failed(&visitor, next, refusal.into_response())),
    };
    // The store ends the session with its token, even if this clock is wrong.
    let left = token.expires_at.map_or(SESSION_LIFETIME, |at| at.since(clock::wall()).min(SESSION_LIFETIME));
    let session = app.token_store.issue(&NewToken::session(&token, left.max(Duration::from_secs(1)))).await?;
    tracing::info!(who = token.name, "logged in");
    let cookie = set_cookie(&app, &headers, &session.token, left);
    Ok(([(SET_COOKIE, cookie)], Redirect::to(&format!("{}{}", app.base, safe_path(&next)))).into_response())
}

async fn read_form(body: Body) -> Result<String, Problem> {
    let reading = tokio::time::timeout(FORM_TIMEOUT, to_bytes(body, MAX_FORM_BYTES)).await;
    let late = |_| {
        Problem::new(
            Kind::InvalidBody,
            format!("the form did not arrive within {} s", FORM_TIMEOUT.as_secs()),
        )
    };
    let unread = |_| {
        Problem::new(
            Kind::TooLarge,
            format!("the form exceeds {MAX_FORM_BYTES} bytes, or arrived incomplete"),
        )
    };
    Ok(String::from_utf8_lossy(&reading.map_err(late)?.map_err(unread)?).into_owned())
}

/// Renders the login page again, with the error. The page does not repeat the submitted token.
fn login_failed(visitor: &Visitor, next: String, refusal: Response) -> Response {
    let detail =
        refusal.extensions().get::<ProblemText>().map(|problem| problem.detail.clone()).unwrap_or_default();
    let status = refusal.status();
    let wrong = match status {
        StatusCode::UNAUTHORIZED => "Invalid API token: it was mistyped, revoked, or has expired.".to_owned(),
        _ => detail,
    };
    let page = Login { chrome: visitor.page("/login", "Log in").still(), next, wrong: Some(wrong) };
    match page.render() {
        Ok(text) => (status, html_response(text)).into_response(),
        Err(_) => refusal,
    }
}

/// Logs out: ends the session.
#[utoipa::path(post, path = "/logout", tag = "pages", security(("token" = ["read", "namespace"])),
    responses((status = 303, description = "The session has ended.")))]
pub(super) async fn log_out(
    State(app): State<App>,
    visitor: Visitor,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if let Caller::Token(token) = &visitor.caller
        && token.session_of.is_some()
    {
        app.token_store.revoke(&token.id).await?;
    }
    let cookie = set_cookie(&app, &headers, "", Duration::ZERO);
    Ok(([(SET_COOKIE, cookie)], visitor.redirect("/login")).into_response())
}

/// Returns the `Set-Cookie` value that deletes the session's cookie.
pub(super) fn expired_cookie(app: &App, headers: &HeaderMap) -> String {
    set_cookie(app, headers, "", Duration::ZERO)
}

fn set_cookie(app: &App, headers: &HeaderMap, value: &str, max_age: Duration) -> String {
    let is_encrypted = is_encrypted(app.has_tls, headers);
    let name = cookie_name(is_encrypted, &app.base);
    let path = if app.base.is_empty() { "/" } else { &app.base };
    let secure = if is_encrypted { "; Secure" } else { "" };
    let seconds = max_age.as_secs();
    format!("{name}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}")
}

/// Returns the path to go to after the login. Only paths of this daemon are accepted, so that a link to the login
/// cannot redirect to another site.
fn safe_path(next: &str) -> &str {
    let is_own_path = next.starts_with('/')
        && !next.starts_with("//")
        && !next.contains(|character: char| character.is_control() || character == '\\');
    if is_own_path { next } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_redirects_only_to_paths_of_this_daemon() {
        for (next, to) in [
            ("/steps?state=failed", "/steps?state=failed"),
            ("", "/"),
            ("//evil.example", "/"),
            ("https://evil.example", "/"),
            ("/\\evil.example", "/"),
            // A browser removes a tab from a URL.
            ("/\t/evil.example", "/"),
        ] {
            assert_eq!(safe_path(next), to);
        }
    }

    #[test]
    fn the_session_is_found_among_other_cookies() {
        let find = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(COOKIE, text.parse().unwrap());
            cookie(&headers, "holdoff_session").map(str::to_owned)
        };
        assert_eq!(find("a=b; holdoff_session=x_y").as_deref(), Some("x_y"));
        assert_eq!(find("holdoff_session="), None);
        assert_eq!(find("xholdoff_session=z"), None);
    }
}
