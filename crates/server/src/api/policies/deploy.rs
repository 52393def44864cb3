//! Versions of the policy set: deploying a file to every node, and the earlier versions.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use holdoff_policy::{PolicyChange, PolicySet, changes};
use holdoff_work::{Moment, VersionRecord};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::input::JsonBody;
use crate::access::NoChange;
use crate::app::App;
use crate::problem::{Kind, Problem, ProblemBody};
use crate::schema;
use crate::token_store::AuditEvent;

/// The recorded author of versions that come through the API.
const DEPLOYED_BY: &str = "the API";

/// Policies to be deployed to every node on the store.
#[derive(Deserialize, ToSchema)]
#[schema(as = PolicyDeployment)]
#[serde(deny_unknown_fields)]
pub(super) struct DeployForm {
    /// The text of a policy file. Sections that are not about policies are ignored.
    file: String,
    /// Whether only to list the changes, without deploying.
    #[serde(default)]
    dry_run: bool,
}

/// The result.
#[derive(Serialize, ToSchema)]
#[schema(as = PolicyDeploymentResult)]
pub(super) struct DeployResult {
    /// The version id of the file.
    id: String,
    /// Whether the version is active now.
    active: bool,
    /// The differences from the previously active version.
    changes: Vec<PolicyChangeView>,
}

/// The difference of one policy or operation.
#[derive(Serialize, ToSchema)]
#[schema(as = PolicyChange)]
struct PolicyChangeView {
    /// The policy or operation.
    subject: String,
    /// The lines before the change; empty if it is new.
    before: Vec<String>,
    /// The lines after the change; empty if it was removed.
    after: Vec<String>,
}

/// A deployed version.
#[derive(Serialize, ToSchema)]
#[schema(as = PolicyVersion)]
pub(super) struct PolicyVersionView {
    /// The version id: a digest of the content.
    id: String,
    /// Whether the version is active.
    active: bool,
    /// The time of the first deployment.
    #[schema(value_type = schema::MomentText)]
    deployed_at: Moment,
    /// The author of the first deployment, if known.
    deployed_by: Option<String>,
    /// The time at which it last became active, if known.
    #[schema(value_type = Option<schema::MomentText>)]
    activated_at: Option<Moment>,
    /// The author of the last activation, if known.
    activated_by: Option<String>,
}

/// Deploys the policies of a file to every node on the store. An invalid file changes nothing.
#[utoipa::path(post, path = "/v1/policies", tag = "policies", security(("token" = ["admin"])),
    request_body = DeployForm,
    responses(
        (status = 200, description = "The changes, made or pending.", body = DeployResult),
        (status = 400, description = "The file is invalid; nothing was changed.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn deploy(
    State(app): State<App>,
    JsonBody(form): JsonBody<DeployForm>,
) -> Result<Response, Problem> {
    let set = check_policies(&app, &form.file)?;
    // Reads versions that other nodes have deployed since the last poll.
    app.work.refresh_policies().await?;
    let changes = changes(&app.work.policies(), &set).into_iter().map(view_change).collect();
    let id = set.id().to_string();
    if form.dry_run {
        let result = DeployResult { id, active: false, changes };
        return Ok((Extension(NoChange), Json(result)).into_response());
    }
    let event = deploy_policies(&app, set, DEPLOYED_BY).await?;
    Ok((Extension(event), Json(DeployResult { id, active: true, changes })).into_response())
}

/// Parses and validates a policy file that is to be deployed. The error names the problems.
pub(crate) fn check_policies(app: &App, file: &str) -> Result<PolicySet, Problem> {
    let invalid = |why: String| Problem::new(Kind::InvalidPolicies, format!("{why}; nothing was changed"));
    let set = PolicySet::from_toml(file).map_err(|problems| invalid(problems.to_string()))?;
    app.work.settings().check_policies(&set).map_err(|waits| invalid(waits.to_string()))?;
    Ok(set)
}

/// Deploys policies to every node on the store and returns the audit event.
pub(crate) async fn deploy_policies(
    app: &App,
    set: PolicySet,
    deployed_by: &str,
) -> Result<AuditEvent, Problem> {
    let event = AuditEvent::new("policies.deploy", set.id().to_string());
    app.work.deploy(set, deployed_by).await?;
    Ok(event)
}

/// Lists the deployed versions, including the active one.
#[utoipa::path(get, path = "/v1/policies/versions", tag = "policies", security(("token" = ["read"])),
    responses((status = 200, description = "The versions, newest first.", body = Vec<PolicyVersionView>)))]
pub(super) async fn versions(State(app): State<App>) -> Result<Json<Vec<PolicyVersionView>>, Problem> {
    Ok(Json(app.work.versions().await?.into_iter().map(view_version).collect()))
}

fn view_change(PolicyChange { subject, before, after, .. }: PolicyChange) -> PolicyChangeView {
    PolicyChangeView { subject, before, after }
}

fn view_version(version: VersionRecord) -> PolicyVersionView {
    PolicyVersionView {
        id: version.id.to_string(),
        active: version.active,
        deployed_at: version.deployed_at,
        deployed_by: version.deployed_by,
        activated_at: version.activated_at,
        activated_by: version.activated_by,
    }
}
