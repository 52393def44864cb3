//! The layer of the pages: it accepts forms of this origin only, renders problems as HTML, and redirects to the login if a
//! token is missing.
//!
//! A browser sends cookies with forms of any site, and lets any page reach loopback. But it reports the origin of the
//! form: in `Sec-Fetch-Site` if the connection is trustworthy, and always in `Origin`.

use askama::Template;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{ACCEPT, HOST, ORIGIN, RETRY_AFTER, SET_COOKIE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

use super::chrome::{Chrome, Visitor, html_response};
use super::query::PageQuery;
use super::session;
use crate::access::{Caller, bearer};
use crate::api;
use crate::app::App;
use crate::problem::{Kind, Problem, ProblemText};

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    chrome: Chrome,
    status: u16,
    detail: String,
}

/// Renders the problems of pages as HTML.
pub(crate) async fn render_problems(State(app): State<App>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let is_page = route.as_ref().is_some_and(|route| api::is_page(route.as_str()));
    let is_unknown = route.is_none() && accepts_html(request.headers());
    if !is_page && !is_unknown {
        return next.run(request).await;
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let asked = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    let has_token = bearer(request.headers()).is_some();
    let expired_cookie = session::expired_cookie(&app, request.headers());
    let response = if is_read || has_token || is_same_origin(request.headers()) {
        next.run(request).await
    } else {
        let detail = "the form was not sent from a page of this daemon; open the page on this daemon and submit it there";
        Problem::new(Kind::Forbidden, detail).into_response()
    };
    let Some(problem) = response.extensions().get::<ProblemText>().cloned() else { return response };
    if response.status() == StatusCode::UNAUTHORIZED && is_read && !has_token {
        return to_login(&app, &asked).into_response();
    }
    if response.status() == StatusCode::UNAUTHORIZED && !has_token {
        // The session of a submitted form has ended: nothing was done.
        let detail =
            "your session has ended, and nothing was done; log in and submit the form again".to_owned();
        let mut page = problem_page(&app, &response, ProblemText { title: "Log in again", detail });
        if let Ok(expired_cookie) = expired_cookie.parse() {
            page.headers_mut().insert(SET_COOKIE, expired_cookie);
        }
        return page;
    }
    problem_page(&app, &response, problem)
}

fn to_login(app: &App, asked: &str) -> Redirect {
    let next = if asked == "/" { PageQuery::default() } else { PageQuery::default().with("next", asked) };
    Redirect::to(&format!("{}/login{}", app.base, next.link()))
}

fn problem_page(app: &App, response: &Response, problem: ProblemText) -> Response {
    let visitor = Visitor { caller: Caller::Anonymous, query: PageQuery::default(), base: app.base.clone() };
    let status = response.status();
    let chrome = visitor.page("", problem.title).still();
    let page = ProblemPage { chrome, status: status.as_u16(), detail: problem.detail };
    let Ok(text) = page.render() else { return status.into_response() };
    let mut page = (status, html_response(text)).into_response();
    if let Some(wait) = response.headers().get(RETRY_AFTER) {
        page.headers_mut().insert(RETRY_AFTER, wait.clone());
    }
    if let Some(challenge) = response.headers().get("www-authenticate") {
        page.headers_mut().insert("www-authenticate", challenge.clone());
    }
    page
}

fn accepts_html(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).is_some_and(|all| all.contains("text/html"))
}

/// Returns whether the request comes from a page of this daemon.
pub(crate) fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text("sec-fetch-site") {
        return site == "same-origin";
    }
    let origin = text(ORIGIN.as_str()).and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(_, from)| Some(from) == text(HOST.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(fields: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(*name, value.parse().unwrap());
        }
        is_same_origin(&headers)
    }

    #[test]
    fn only_forms_of_this_origin_are_accepted() {
        assert!(with(&[("sec-fetch-site", "same-origin")]));
        for other in ["cross-site", "same-site", "none"] {
            assert!(!with(&[("sec-fetch-site", other), ("origin", "http://a:1"), ("host", "a:1")]));
        }
        assert!(with(&[("origin", "http://a:7070"), ("host", "a:7070")]));
        assert!(!with(&[("origin", "http://a:7071"), ("host", "a:7070")]));
        assert!(!with(&[("origin", "null"), ("host", "null")]));
        assert!(!with(&[("host", "a:7070")]));
    }
}
