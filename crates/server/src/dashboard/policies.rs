//! Policies: the active set with its delays as bars, the linter's findings, and earlier versions.

use std::collections::BTreeMap;

use askama::Template;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use holdoff_policy::{Finding, Policy, PolicyChange, PolicyScope, PolicySet, changes, lint};
use holdoff_work::VersionRecord;

use super::chrome::{Chrome, Visitor, render};
use super::formatting;
use crate::api;
use crate::app::App;
use crate::problem::{Kind, Problem};

#[derive(Template)]
#[template(path = "policies.html")]
struct PoliciesPage {
    chrome: Chrome,
    version: String,
    policies: Vec<PolicyRow>,
    findings: Vec<Finding>,
    versions: Vec<VersionRecord>,
    drift: Option<String>,
}

/// A policy in the list.
struct PolicyRow {
    name: String,
    is_own: bool,
    windows: DelayWindows,
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
    changes: Vec<PolicyChange>,
    file: String,
}

/// The active policies.
#[utoipa::path(get, path = "/policies", tag = "pages", security(("token" = ["read"])),
    responses((status = 200, description = "The page.")))]
pub(super) async fn policies(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    let set = app.work.policies();
    let used = used(&set);
    let row = |(name, policy): (&String, &std::sync::Arc<holdoff_policy::Policy>)| PolicyRow {
        name: name.clone(),
        is_own: set.is_own(name),
        windows: draw_windows(policy),
        attempts: attempts(policy.attempts()),
        used: used.get(name).cloned().unwrap_or_default(),
    };
    let mut policies: Vec<PolicyRow> = set.policies().iter().map(row).collect();
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

/// Shows an earlier version and its differences from the active one.
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

/// Deploys an earlier version again.
#[utoipa::path(post, path = "/policies/versions/{id}", tag = "pages", security(("token" = ["admin"])),
    params(("id" = String, Path, description = "The version.")),
    responses((status = 303, description = "The version is active.")))]
pub(super) async fn redeploy(
    State(app): State<App>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let (_, set) = find(&app, &id).await?;
    let set = api::check_policies(&app, &set.to_toml())?;
    let event = api::deploy_policies(&app, set, &deployed_by(&visitor)).await?;
    Ok((Extension(event), visitor.redirect("/policies?done=deploy")).into_response())
}

async fn find(app: &App, id: &str) -> Result<(VersionRecord, PolicySet), Problem> {
    let unknown = || Problem::new(Kind::NoSuchPolicy, "unknown version; only the newest versions are kept");
    let versions = app.work.versions().await?;
    let record = versions.into_iter().find(|version| version.id.to_string() == id).ok_or_else(unknown)?;
    let set = app.work.version(record.id).await?.ok_or_else(unknown)?;
    Ok((record, set))
}

/// Returns the author to record for a deployment from a page.
pub(super) fn deployed_by(visitor: &Visitor) -> String {
    visitor
        .caller
        .name()
        .map_or_else(|| "the dashboard".to_owned(), |name| format!("{name}, on the dashboard"))
}

pub(super) fn attempts(attempts: u32) -> String {
    match attempts {
        holdoff_policy::Policy::UNLIMITED => "unlimited attempts".to_owned(),
        1 => "1 attempt".to_owned(),
        many => format!("{many} attempts"),
    }
}

/// Returns, for each policy, the operations that use it.
pub(super) fn used(set: &PolicySet) -> BTreeMap<String, Vec<String>> {
    let mut used: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let default = set.root().default.clone().unwrap_or_else(|| PolicySet::DEFAULT_POLICY.to_owned());
    used.entry(default).or_default().push("everything else".to_owned());
    let mut add = |scope: &PolicyScope, suffix: &str| {
        for (name, operation) in &scope.operations {
            used.entry(operation.policy.clone()).or_default().push(format!("{name}{suffix}"));
        }
        if let (Some(default), false) = (&scope.default, suffix.is_empty()) {
            used.entry(default.clone()).or_default().push(format!("everything else{suffix}"));
        }
    };
    add(set.root(), "");
    for (namespace, scope) in set.namespaces() {
        add(scope, &format!(" in {namespace}"));
    }
    used
}

/// The maximum number of waits in the picture.
const MAX_BARS: usize = 12;

/// A wait.
pub(super) struct DelayBar {
    pub(super) attempt: u32,
    pub(super) x: String,
    pub(super) width: String,
    pub(super) mean: String,
    pub(super) label: String,
}

/// The waits of a policy.
pub(super) struct DelayWindows {
    pub(super) bars: Vec<DelayBar>,
    pub(super) total: String,
    pub(super) left_out: bool,
}

/// Draws the waits of a policy on one scale.
pub(super) fn draw_windows(policy: &Policy) -> DelayWindows {
    let explained = policy.explain();
    let most =
        explained.waits.iter().take(MAX_BARS).map(|wait| wait.window.high_us()).max().unwrap_or(1).max(1);
    let percent = |us: u64| share(us, most);
    let bar = |wait: &holdoff_policy::Wait| {
        let (low, high) = (wait.window.low_us(), wait.window.high_us());
        let x = percent(low).min(99.2);
        let width = (percent(high) - x).max(0.8);
        let [from, to] = [wait.window.low(), wait.window.high()].map(formatting::time);
        DelayBar {
            attempt: wait.attempt.get(),
            x: format!("{x:.2}"),
            width: format!("{width:.2}"),
            mean: format!("{:.2}", percent(wait.mean_us).min(99.6)),
            label: if low == high { to } else { format!("{from} – {to}") },
        }
    };
    let micros = |us: u64| formatting::time(std::time::Duration::from_micros(us));
    let total = match &explained.total {
        Some(total) => format!(
            "{} to {} in total, {} on average",
            micros(total.low_us),
            micros(total.high_us),
            micros(total.mean_us)
        ),
        None => "unlimited attempts, up to the deadline if there is one".to_owned(),
    };
    let left_out = explained.more || explained.waits.len() > MAX_BARS;
    DelayWindows { bars: explained.waits.iter().take(MAX_BARS).map(bar).collect(), total, left_out }
}

#[expect(clippy::cast_precision_loss, reason = "a picture has fewer points than 2^52")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64 * 100.0
}
