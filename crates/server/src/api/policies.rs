//! `/v1/policies`: the active policy set, the explanation of a policy, and the linter. [`deploy`] has the versions, and
//! [`decide`] the decisions.

mod decide;
mod deploy;

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use holdoff_policy::{Explanation, Finding, Policy, PolicyScope, PolicySet, as_micros_u64, lint, nearest};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::input::JsonBody;
use crate::app::App;
use crate::problem::{Kind, Problem};

pub(crate) use deploy::{check_policies, deploy_policies};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(policies, deploy::deploy))
        .routes(routes!(deploy::versions))
        .routes(routes!(policy))
        .routes(routes!(decide::decide))
        .routes(routes!(lint_file))
}

/// The active policies.
#[derive(Serialize, ToSchema)]
#[schema(as = PolicySet)]
struct PolicySetView {
    /// The version id: a digest of the whole set.
    version: String,
    /// The set as the text of a policy file.
    file: String,
    /// The policies by name, presets included.
    policies: BTreeMap<String, PolicyView>,
    /// The policy of each operation, unless a namespace overrides it.
    operations: BTreeMap<String, String>,
    /// The policy of all other operations.
    default: String,
    /// The policy of each operation, by namespace.
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

/// A policy.
#[derive(Serialize, ToSchema)]
#[schema(as = Policy)]
struct PolicyView {
    /// The policy id: a digest of the compiled form.
    id: String,
    /// Whether the file defines the policy; otherwise it is a preset.
    own: bool,
    /// The maximum number of attempts, including the first; `null` if unlimited.
    attempts: Option<u32>,
    /// The maximum delay, in microseconds.
    cap_us: u64,
    /// The compiled form, from which any language computes the same delays.
    #[schema(value_type = Object)]
    compiled: Box<RawValue>,
}

impl PolicyView {
    fn new(set: &PolicySet, name: &str, policy: &Policy) -> Result<Self, Problem> {
        let compiled = RawValue::from_string(policy.canonical());
        Ok(Self {
            id: policy.id().to_string(),
            own: set.is_own(name),
            attempts: Some(policy.attempts()).filter(|attempts| *attempts != Policy::UNLIMITED),
            cap_us: as_micros_u64(policy.cap()),
            compiled: compiled.map_err(|why| Problem::new(Kind::Internal, why.to_string()))?,
        })
    }
}

/// Returns the active policies, and the policy of each operation.
#[utoipa::path(get, path = "/v1/policies", tag = "policies", security(("token" = ["read"])),
    responses((status = 200, description = "The active policy set.", body = PolicySetView)))]
async fn policies(State(app): State<App>) -> Result<Json<PolicySetView>, Problem> {
    let set = app.work.policies();
    let operations = |scope: &PolicyScope| {
        let named = scope.operations.iter().map(|(name, operation)| (name.clone(), operation.policy.clone()));
        named.collect::<BTreeMap<_, _>>()
    };
    let mut policies = BTreeMap::new();
    for (name, policy) in set.policies() {
        policies.insert(name.clone(), PolicyView::new(&set, name, policy)?);
    }
    Ok(Json(PolicySetView {
        version: set.id().to_string(),
        file: set.to_toml(),
        policies,
        operations: operations(set.root()),
        default: set.root().default.clone().unwrap_or_else(|| PolicySet::DEFAULT_POLICY.to_owned()),
        namespaces: set.namespaces().iter().map(|(name, scope)| (name.clone(), operations(scope))).collect(),
    }))
}

/// A policy and its delays.
#[derive(Serialize, ToSchema)]
#[schema(as = ExplainedPolicy)]
struct PolicyExplanation {
    name: String,
    policy: PolicyView,
    /// The delays, beginning with the one after the first attempt.
    waits: Vec<WaitView>,
    /// Whether more delays follow, equal to the last one.
    more: bool,
    /// The number of delays that fit into the deadline.
    possible: u32,
    /// The sum of all delays, if their number is finite.
    total: Option<TotalView>,
}

/// The delay after a failed attempt, in microseconds: a random value from low to high.
#[derive(Serialize, ToSchema)]
#[schema(as = PolicyWait)]
struct WaitView {
    /// The number of the failed attempt, from 1.
    #[schema(minimum = 1)]
    attempt: u32,
    low_us: u64,
    high_us: u64,
    mean_us: u64,
    /// The sum of the delays up to this one.
    total_low_us: u64,
    total_high_us: u64,
}

/// The sum of all delays, in microseconds.
#[derive(Serialize, ToSchema)]
#[schema(as = PolicyTotal)]
#[expect(clippy::struct_field_names, reason = "the unit stands last in names")]
struct TotalView {
    low_us: u64,
    high_us: u64,
    mean_us: u64,
}

/// Returns one policy with its delays.
#[utoipa::path(get, path = "/v1/policies/{name}", tag = "policies", security(("token" = ["read"])),
    params(("name" = String, Path, description = "The name of a policy or of a preset.")),
    responses((status = 200, description = "The policy.", body = PolicyExplanation)))]
async fn policy(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<PolicyExplanation>, Problem> {
    let set = app.work.policies();
    let Some(policy) = set.policy(&name) else { return Err(no_such_policy(&app, &name)) };
    let Explanation { waits, more, total, possible } = policy.explain();
    Ok(Json(PolicyExplanation {
        policy: PolicyView::new(&set, &name, policy)?,
        name,
        waits: waits
            .iter()
            .map(|wait| WaitView {
                attempt: wait.attempt.get(),
                low_us: wait.window.low_us(),
                high_us: wait.window.high_us(),
                mean_us: wait.mean_us,
                total_low_us: wait.total_low_us,
                total_high_us: wait.total_high_us,
            })
            .collect(),
        more,
        possible,
        total: total.map(|total| TotalView {
            low_us: total.low_us,
            high_us: total.high_us,
            mean_us: total.mean_us,
        }),
    }))
}

fn no_such_policy(app: &App, name: &str) -> Problem {
    let set = app.work.policies();
    let names = set.policies().keys().map(String::as_str);
    let hint = nearest(name, names).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    Problem::new(Kind::NoSuchPolicy, format!("no policy has this name{hint}"))
}

/// The text of a policy file, as in `holdoff.toml`.
#[derive(Deserialize, ToSchema)]
#[schema(as = PolicyFile)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    file: String,
}

/// The findings of the linter.
#[derive(Serialize, ToSchema)]
#[schema(as = LintReport)]
struct LintReport {
    /// Whether the file is usable: it has no problem, and no finding of severity `error`.
    ok: bool,
    /// The problems that prevent the file from being read.
    problems: Vec<FileProblem>,
    /// The findings, the most severe first.
    findings: Vec<LintFinding>,
}

/// A problem and its position in the file.
#[derive(Serialize, ToSchema)]
#[schema(as = FileProblem)]
struct FileProblem {
    /// The line, from 1.
    line: usize,
    /// The column in characters, from 1.
    column: usize,
    message: String,
    /// The expected value.
    expected: Option<String>,
    /// The nearest valid word.
    suggestion: Option<String>,
}

/// A finding in a policy file.
#[derive(Serialize, ToSchema)]
#[schema(as = LintFinding)]
struct LintFinding {
    /// The stable code of this kind of finding.
    code: &'static str,
    /// `error`, `warning` or `note`.
    severity: &'static str,
    /// The policy or operation that the finding is about.
    subject: String,
    message: String,
    /// The recommended change.
    remedy: String,
}

/// Checks a policy file. The daemon stores nothing.
///
/// Sections that are not about policies are ignored.
#[utoipa::path(post, path = "/v1/policies/lint", tag = "policies", security(("token" = ["read"])),
    request_body = PolicyFile, responses((status = 200, description = "The result.", body = LintReport)))]
async fn lint_file(JsonBody(form): JsonBody<PolicyFile>) -> Result<Json<LintReport>, Problem> {
    let set = match PolicySet::from_toml(&form.file) {
        Ok(set) => set,
        Err(found) => {
            let problems = found.iter().map(|problem| FileProblem {
                line: problem.line,
                column: problem.column,
                message: problem.message.clone(),
                expected: problem.expected.clone(),
                suggestion: problem.suggestion.clone(),
            });
            return Ok(Json(LintReport { ok: false, problems: problems.collect(), findings: Vec::new() }));
        }
    };
    let findings = lint(&set);
    let ok = findings.iter().all(|finding| finding.severity != holdoff_policy::Severity::Error);
    let findings = findings.into_iter().map(|Finding { code, severity, subject, message, remedy }| {
        LintFinding { code, severity: severity.name(), subject, message, remedy }
    });
    Ok(Json(LintReport { ok, problems: Vec::new(), findings: findings.collect() }))
}
