//! Middleware that renders problems of pages as HTML, and redirects to the login if a token is missing.

use askama::Template;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{ACCEPT, RETRY_AFTER, SET_COOKIE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

use super::chrome::{Chrome, Visitor, sent};
use super::query::Query;
use super::{origin, session};
use crate::access::{Access, bearer};
use crate::api;
use crate::app::App;
use crate::problem::{Kind, Problem, Said};

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    chrome: Chrome,
    status: u16,
    detail: String,
}

/// Renders the problems of pages as HTML.
pub(crate) async fn dress(State(app): State<App>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let is_page = route.as_ref().is_some_and(|route| api::is_page(route.as_str()));
    let is_lost = route.is_none() && wants_a_page(request.headers());
    if !is_page && !is_lost {
        return next.run(request).await;
    }
    let is_look = matches!(*request.method(), Method::GET | Method::HEAD);
    let asked = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    let has_token = bearer(request.headers()).is_some();
    let response = if is_look || has_token || origin::is_ours(request.headers()) {
        next.run(request).await
    } else {
        let detail =
            "this was not sent from a page of this daemon; open the page here, and send it from there";
        Problem::new(Kind::Forbidden, detail).into_response()
    };
    let Some(said) = response.extensions().get::<Said>().cloned() else { return response };
    if response.status() == StatusCode::UNAUTHORIZED && is_look && !has_token {
        return to_login(&app, &asked).into_response();
    }
    if response.status() == StatusCode::UNAUTHORIZED && !has_token {
        // The session of a submitted form has ended: nothing was done.
        let detail = "your session is over, and nothing was done; log in, and send it again".to_owned();
        let mut page = shown(&app, &response, Said { title: "Log in again", detail });
        if let Ok(gone) = session::gone(&app).parse() {
            page.headers_mut().insert(SET_COOKIE, gone);
        }
        return page;
    }
    shown(&app, &response, said)
}

fn to_login(app: &App, asked: &str) -> Redirect {
    let next = if asked == "/" { Query::default() } else { Query::default().with("next", asked) };
    Redirect::to(&format!("{}/login{}", app.base, next.link()))
}

fn shown(app: &App, response: &Response, said: Said) -> Response {
    let visitor = Visitor { access: Access::Nobody, query: Query::default(), base: app.base.clone() };
    let status = response.status();
    let chrome = visitor.page("", said.title).still();
    let page = ProblemPage { chrome, status: status.as_u16(), detail: said.detail };
    let Ok(text) = page.render() else { return status.into_response() };
    let mut page = (status, sent(text)).into_response();
    if let Some(wait) = response.headers().get(RETRY_AFTER) {
        page.headers_mut().insert(RETRY_AFTER, wait.clone());
    }
    if let Some(challenge) = response.headers().get("www-authenticate") {
        page.headers_mut().insert("www-authenticate", challenge.clone());
    }
    page
}

fn wants_a_page(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).is_some_and(|all| all.contains("text/html"))
}
