//! Extractors of handlers. Invalid input becomes a problem response.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use holdoff_work::{StepId, TaskId};
use serde::de::DeserializeOwned;

use super::{body, forms};
use crate::app::App;
use crate::problem::{Kind, Problem};

/// A JSON body of this type.
pub(crate) struct Sent<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Sent<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let headers = request.headers().clone();
        let bytes = body::read(&headers, Bytes::from_request(request, app).await, app.max_body())?;
        forms::parse(&bytes).map(Self).map_err(|why| Problem::new(Kind::InvalidBody, why))
    }
}

/// A query string of this type.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, app).await {
            Ok(Query(wish)) => Ok(Self(wish)),
            Err(wrong) => Err(Problem::new(Kind::InvalidQuery, wrong.body_text())),
        }
    }
}

/// The task that a path names by `{id}`.
pub(crate) struct NamedTask(pub(crate) TaskId);

impl FromRequestParts<App> for NamedTask {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Path(id) = Path::<String>::from_request_parts(parts, app)
            .await
            .map_err(|wrong| Problem::new(Kind::InvalidId, wrong.body_text()))?;
        let id = id.parse().map_err(|_| Problem::new(Kind::InvalidId, "expected a UUID"))?;
        Ok(Self(id))
    }
}

/// The step that a path names by `{task}/{number}`.
pub(crate) struct NamedStep(pub(crate) StepId);

impl FromRequestParts<App> for NamedStep {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Path((task, number)) = Path::<(String, String)>::from_request_parts(parts, app)
            .await
            .map_err(|wrong| Problem::new(Kind::InvalidId, wrong.body_text()))?;
        let step = format!("{task}/{number}").parse();
        let step = step.map_err(|_| Problem::new(Kind::InvalidId, "expected a UUID, and a number from 0"))?;
        Ok(Self(step))
    }
}

/// Checks a name or another short text: every store must be able to keep it, and a log to show it.
pub(super) fn check_text(what: &str, text: &str, longest: usize) -> Result<(), String> {
    let length = text.chars().count();
    if length > longest || text.chars().any(char::is_control) {
        return Err(format!("{what}: expected at most {longest} characters, and none that is not printed"));
    }
    Ok(())
}
