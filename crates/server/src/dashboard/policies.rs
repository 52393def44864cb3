//! Policies: the active set, the linter's findings, and earlier versions.

use std::collections::BTreeMap;

use askama::Template;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use holdoff_policy::{Change, Finding, PolicySet, Scope, changes, lint};
use holdoff_work::VersionRecord;

use super::chrome::{Chrome, Visitor, render};
use super::windows::{self, Windows};
use crate::api;
use crate::app::App;
use crate::problem::{Kind, Problem};

#[derive(Template)]
#[template(path = "policies.html")]
struct PoliciesPage {
    chrome: Chrome,
    version: String,
    policies: Vec<Row>,
    findings: Vec<Finding>,
    versions: Vec<VersionRecord>,
    drift: Option<String>,
}

/// A policy in the list.
struct Row {
    name: String,
    is_own: bool,
    windows: Windows,
    attempts: String,
    /// The operations that use it.
    used: Vec<String>,
}

#[derive(Template)]
#[template(path = "version.html")]
struct VersionPage {
    chrome: Chrome,
    id: String,
    is_active: bool,
    changes: Vec<Change>,
    file: String,
}

/// The policies in force.
#[utoipa::path(get, path = "/policies", tag = "pages", security(("token" = ["read"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn policies(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let set = app.work.policies();
    let used = used(&set);
    let row = |(name, policy): (&String, &std::sync::Arc<holdoff_policy::Policy>)| Row {
        name: name.clone(),
        is_own: set.is_own(name),
        windows: windows::draw(policy),
        attempts: attempts(policy.attempts()),
        used: used.get(name).cloned().unwrap_or_default(),
    };
    let mut policies: Vec<Row> = set.policies().iter().map(row).collect();
    // The policies of the file come first, then the presets in use.
    policies.sort_by_key(|row| (!row.is_own, row.used.is_empty(), row.name.clone()));
    render(&PoliciesPage {
        chrome: visitor.page("/policies", "Policies"),
        version: set.id().to_string(),
        policies,
        findings: lint(&set),
        versions: app.work.versions().await?,
        drift: app.work.drift().map(|drift| drift.to_string()),
    })
}

/// A version that was in force, and what is different now.
#[utoipa::path(get, path = "/policies/versions/{id}", tag = "pages", security(("token" = ["read"])),
    params(("id" = String, Path, description = "The version.")), responses((status = 200, description = "The page.")))]
pub(super) async fn version(
    State(app): State<App>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let (record, set) = find(&app, &id).await?;
    render(&VersionPage {
        chrome: visitor
            .page("/policies", format!("Version {}", id.chars().take(12).collect::<String>()))
            .still(),
        is_active: record.active,
        changes: changes(&app.work.policies(), &set),
        file: set.to_toml(),
        id,
    })
}

/// Puts a version in force again.
#[utoipa::path(post, path = "/policies/versions/{id}", tag = "pages", security(("token" = ["admin"])),
    params(("id" = String, Path, description = "The version.")),
    responses((status = 303, description = "It is in force.")))]
pub(super) async fn restore(
    State(app): State<App>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let (_, set) = find(&app, &id).await?;
    let set = api::check_policies(&app, &set.to_toml())?;
    let deed = api::put_in_force(&app, set, &publisher(&visitor)).await?;
    Ok((Extension(deed), visitor.send("/policies?done=publish")).into_response())
}

async fn find(app: &App, id: &str) -> Result<(VersionRecord, PolicySet), Problem> {
    let unknown = || Problem::new(Kind::NoSuchPolicy, "there is no such version; the newest ones are kept");
    let versions = app.work.versions().await?;
    let record = versions.into_iter().find(|version| version.id.to_string() == id).ok_or_else(unknown)?;
    let set = app.work.version(record.id).await?.ok_or_else(unknown)?;
    Ok((record, set))
}

/// Returns the author to record for a deployment from a page.
pub(super) fn publisher(visitor: &Visitor) -> String {
    visitor
        .access
        .name()
        .map_or_else(|| "the dashboard".to_owned(), |name| format!("{name}, on the dashboard"))
}

pub(super) fn attempts(attempts: u32) -> String {
    match attempts {
        holdoff_policy::Policy::UNLIMITED => "unlimited tries".to_owned(),
        1 => "1 try".to_owned(),
        many => format!("{many} tries"),
    }
}

/// Returns, for each policy, the operations that use it.
pub(super) fn used(set: &PolicySet) -> BTreeMap<String, Vec<String>> {
    let mut used: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let default = set.root().default.clone().unwrap_or_else(|| PolicySet::DEFAULT_POLICY.to_owned());
    used.entry(default).or_default().push("everything else".to_owned());
    let mut add = |scope: &Scope, place: &str| {
        for (name, operation) in &scope.operations {
            used.entry(operation.policy.clone()).or_default().push(format!("{name}{place}"));
        }
        if let (Some(default), false) = (&scope.default, place.is_empty()) {
            used.entry(default.clone()).or_default().push(format!("everything else{place}"));
        }
    };
    add(set.root(), "");
    for (namespace, scope) in set.namespaces() {
        add(scope, &format!(" in {namespace}"));
    }
    used
}
