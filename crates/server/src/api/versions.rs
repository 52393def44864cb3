//! `POST /v1/policies` and `GET /v1/policies/versions`: policies as versions.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::HeaderMap;
use axum::routing::{get, post};
use axum::{Json, Router};
use holdoff_policy::{Change, PolicySet, changes};
use holdoff_work::VersionRecord;
use serde::{Deserialize, Serialize};

use super::body;
use crate::app::App;
use crate::problem::{Kind, Problem};

/// The most bytes of a body: a policy file as a JSON text, and some.
const MAX_BODY: usize = 2 * PolicySet::MAX_FILE;

/// Who publishes what comes in here.
const WHO: &str = "the API";

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/v1/policies", post(publish))
        .route("/v1/policies/versions", get(versions))
        .layer(DefaultBodyLimit::max(MAX_BODY))
}

/// Policies to be put in force for every node on the store.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishForm {
    /// A policy file, as its text. Sections that are not about policies are passed by.
    file: String,
    /// Whether only to say what would change.
    #[serde(default)]
    dry_run: bool,
}

/// What came of it.
#[derive(Serialize)]
struct PublishAnswer {
    /// The version that this file is.
    id: String,
    /// Whether it is in force now.
    active: bool,
    /// What is different from what was in force before.
    changes: Vec<ShownChange>,
}

/// What is different about one thing.
#[derive(Serialize)]
struct ShownChange {
    subject: String,
    before: Vec<String>,
    after: Vec<String>,
}

async fn publish(
    State(app): State<App>,
    headers: HeaderMap,
    sent: Result<Bytes, BytesRejection>,
) -> Result<Json<PublishAnswer>, Problem> {
    let invalid = |why: String| Problem::new(Kind::InvalidPolicies, format!("{why}; nothing was changed"));
    let body = body::read(&headers, sent, MAX_BODY)?;
    let form: PublishForm = serde_json::from_slice(&body).map_err(|error| invalid(error.to_string()))?;
    let set = PolicySet::from_toml(&form.file).map_err(|problems| invalid(problems.to_string()))?;
    app.work.settings().check_policies(&set).map_err(|waits| invalid(waits.to_string()))?;
    // What others have published in the last moment counts too.
    app.work.look_at_policies().await?;
    let changes = changes(&app.work.policies(), &set).into_iter().map(show).collect();
    let id = set.id().to_string();
    if !form.dry_run {
        app.work.publish(set, WHO).await?;
    }
    Ok(Json(PublishAnswer { id, active: !form.dry_run, changes }))
}

async fn versions(State(app): State<App>) -> Result<Json<Vec<VersionRecord>>, Problem> {
    Ok(Json(app.work.versions().await?))
}

fn show(Change { subject, before, after, .. }: Change) -> ShownChange {
    ShownChange { subject, before, after }
}
