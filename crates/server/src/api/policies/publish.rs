//! Versions of the policy set: deploying a file to every node, and the earlier versions.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use holdoff_policy::{Change, PolicySet, changes};
use holdoff_work::{Moment, VersionRecord};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::input::Sent;
use crate::access::NothingDone;
use crate::app::App;
use crate::keep::Deed;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::schema;

/// The recorded author of versions that come through the API.
const WHO: &str = "the API";

/// Policies to be put in force for every node on the store.
#[derive(Deserialize, ToSchema)]
#[schema(as = Publication)]
#[serde(deny_unknown_fields)]
pub(super) struct PublishForm {
    /// A policy file, as its text. Sections that are not about policies are passed by.
    file: String,
    /// Whether only to say what would change.
    #[serde(default)]
    dry_run: bool,
}

/// What came of it.
#[derive(Serialize, ToSchema)]
#[schema(as = Published)]
pub(super) struct PublishAnswer {
    /// The version that this file is.
    id: String,
    /// Whether it is in force now.
    active: bool,
    /// What is different from what was in force before.
    changes: Vec<ShownChange>,
}

/// What is different about one thing.
#[derive(Serialize, ToSchema)]
#[schema(as = PolicyChange)]
struct ShownChange {
    /// The policy or operation.
    subject: String,
    /// How it was, line by line; empty if it is new.
    before: Vec<String>,
    /// How it is now; empty if it is gone.
    after: Vec<String>,
}

/// A published version.
#[derive(Serialize, ToSchema)]
#[schema(as = PolicyVersion)]
pub(super) struct ShownVersion {
    /// Its name by content.
    id: String,
    /// Whether it is in force.
    active: bool,
    /// When it was first published.
    #[schema(value_type = schema::MomentText)]
    published_at: Moment,
    /// Who published it first, if that is known.
    published_by: Option<String>,
    /// When it last came into force, if that is known.
    #[schema(value_type = Option<schema::MomentText>)]
    activated_at: Option<Moment>,
    /// Who put it in force last, if that is known.
    activated_by: Option<String>,
}

/// Puts a file's policies in force for every node on the store. What cannot be used changes nothing.
#[utoipa::path(post, path = "/v1/policies", tag = "policies", security(("token" = ["admin"])),
    request_body = PublishForm,
    responses(
        (status = 200, description = "What changed, or would change.", body = PublishAnswer),
        (status = 400, description = "The file cannot be used; nothing was changed.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn publish(
    State(app): State<App>,
    Sent(form): Sent<PublishForm>,
) -> Result<Response, Problem> {
    let set = check(&app, &form.file)?;
    // Reads versions that other nodes have deployed since the last poll.
    app.work.look_at_policies().await?;
    let changes = changes(&app.work.policies(), &set).into_iter().map(show).collect();
    let id = set.id().to_string();
    if form.dry_run {
        let answer = PublishAnswer { id, active: false, changes };
        return Ok((Extension(NothingDone), Json(answer)).into_response());
    }
    let deed = put_in_force(&app, set, WHO).await?;
    Ok((Extension(deed), Json(PublishAnswer { id, active: true, changes })).into_response())
}

/// Parses and validates a policy file that is to be deployed. The error names the problems.
pub(crate) fn check(app: &App, file: &str) -> Result<PolicySet, Problem> {
    let invalid = |why: String| Problem::new(Kind::InvalidPolicies, format!("{why}; nothing was changed"));
    let set = PolicySet::from_toml(file).map_err(|problems| invalid(problems.to_string()))?;
    app.work.settings().check_policies(&set).map_err(|waits| invalid(waits.to_string()))?;
    Ok(set)
}

/// Deploys policies to every node on the store and returns the audit event.
pub(crate) async fn put_in_force(app: &App, set: PolicySet, who: &str) -> Result<Deed, Problem> {
    let deed = Deed::new("policies.publish", set.id().to_string());
    app.work.publish(set, who).await?;
    Ok(deed)
}

/// The versions that were published, the one in force among them.
#[utoipa::path(get, path = "/v1/policies/versions", tag = "policies", security(("token" = ["read"])),
    responses((status = 200, description = "The versions, the latest first.", body = Vec<ShownVersion>)))]
pub(super) async fn versions(State(app): State<App>) -> Result<Json<Vec<ShownVersion>>, Problem> {
    Ok(Json(app.work.versions().await?.into_iter().map(show_version).collect()))
}

fn show(Change { subject, before, after, .. }: Change) -> ShownChange {
    ShownChange { subject, before, after }
}

fn show_version(version: VersionRecord) -> ShownVersion {
    ShownVersion {
        id: version.id.to_string(),
        active: version.active,
        published_at: version.published_at,
        published_by: version.published_by,
        activated_at: version.activated_at,
        activated_by: version.activated_by,
    }
}
