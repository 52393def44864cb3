//! Responses to requests that fail authentication or authorization.

use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::WWW_AUTHENTICATE;
use axum::response::{IntoResponse, Response};

use crate::Error;
use crate::keep::Scope;
use crate::problem::{Kind, Problem};

/// The reason why a request is refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The token is missing or invalid. The response does not reveal which.
    NoToken(Scope),
    /// The token's scope is too small.
    TooLittle(Scope),
    /// The token is limited to one namespace, and the request cannot be confined to one.
    OneNamespace(Scope),
    /// The token has exceeded its rate limit.
    TooFast(Duration),
    /// The address has presented too many invalid tokens.
    TooManyWrong(Duration),
    /// The store did not answer, so the token is unknown.
    Unknown(Error),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::NoToken(scope) => {
                let detail = format!(
                    "this needs an API token of scope {scope}, in the header `Authorization: Bearer TOKEN`; \
                     `holdoff token create` makes one"
                );
                let challenge = format!("Bearer realm=\"holdoff\", scope=\"{scope}\"");
                challenged(Problem::new(Kind::Unauthorized, detail), &challenge)
            }
            Self::TooLittle(scope) => {
                let detail = format!("this needs an API token of scope {scope}");
                challenged(Problem::new(Kind::Forbidden, detail), &insufficient(scope))
            }
            Self::OneNamespace(scope) => {
                let detail = format!("this needs an API token of scope {scope} for all namespaces");
                challenged(Problem::new(Kind::Forbidden, detail), &insufficient(scope))
            }
            Self::TooFast(wait) => {
                let detail = "this API token asks more often than it may (server.rate)";
                Problem::new(Kind::TooManyRequests, detail).retry_after(wait).into_response()
            }
            Self::TooManyWrong(wait) => {
                let detail = "too many requests without a valid API token came from this address";
                Problem::new(Kind::TooManyRequests, detail).retry_after(wait).into_response()
            }
            Self::Unknown(error) => {
                tracing::warn!(%error, "a token could not be looked up");
                Problem::unavailable("the store did not answer in time; the request may be repeated")
                    .into_response()
            }
        }
    }
}

fn insufficient(scope: Scope) -> String {
    format!("Bearer realm=\"holdoff\", error=\"insufficient_scope\", scope=\"{scope}\"")
}

fn challenged(problem: Problem, challenge: &str) -> Response {
    let mut response = problem.into_response();
    if let Ok(challenge) = HeaderValue::from_str(challenge) {
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}
