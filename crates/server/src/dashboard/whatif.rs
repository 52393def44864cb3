//! One policy: edit its numbers, simulate the effect, then deploy.
//!
//! The edited numbers are part of the page's URL, so that they can be shared before they are active.

use std::fmt::Write;

use askama::Template;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use holdoff_policy::{Finding, Policy, PolicyChange, PolicySet, changes, lint_policy};
use holdoff_sim::scenario::Scenario;
use holdoff_sim::{Plan, ResultRow, Strategy};

use super::chrome::{Chrome, Visitor, render};
use super::policies::{DelayWindows, attempts, deployed_by, draw_windows, used};
use super::query::PageQuery;
use crate::access::NoChange;
use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::{api, lab};

/// The prefix of a number's name in the query.
const FIELD_PREFIX: &str = "set.";
/// The number of runs of a simulation. It is small, so that the page answers quickly.
const RUNS: u32 = 10;
const MAX_CLIENTS: u32 = 500;
const SEED: u64 = 1;

#[derive(Template)]
#[template(path = "policy.html")]
struct PolicyPage {
    chrome: Chrome,
    name: String,
    is_own: bool,
    used: Vec<String>,
    attempts: String,
    active: DelayWindows,
    /// The fields of the policy: name, value, and meaning.
    fields: Vec<Field>,
    scenarios: Vec<(&'static str, &'static str, bool)>,
    clients: u32,
    findings: Vec<Finding>,
    error: Option<String>,
    what_if: Option<WhatIf>,
}

struct Field {
    key: String,
    value: String,
    about: &'static str,
}

/// The effect of the edited numbers.
struct WhatIf {
    windows: DelayWindows,
    changes: Vec<PolicyChange>,
    findings: Vec<Finding>,
    rows: Vec<SimulatedPolicy>,
    plot: String,
    about: &'static str,
    time: &'static str,
    /// The form fields that a deployment sends.
    form_fields: Vec<(String, String)>,
    is_new: bool,
}

/// The result of one policy in the simulation.
struct SimulatedPolicy {
    policy: String,
    time: String,
    worst: String,
    calls: String,
    failed: String,
}

/// Shows one policy, and simulates edited values.
#[utoipa::path(get, path = "/policies/{name}", tag = "pages", security(("token" = ["read"])),
    params(("name" = String, Path, description = "The name.")), responses((status = 200, description = "The page.")))]
pub(super) async fn policy(
    State(app): State<App>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let set = app.work.policies();
    let policy = set.policy(&name).ok_or_else(no_such_policy)?;
    let query = &visitor.query;
    let lines = policy_lines(policy, query);
    let scenario = lab::scenario(query.get("scenario")).or_else(|| lab::scenario("storm"));
    let scenario = scenario.ok_or_else(no_such_policy)?;
    let clients = query.get("clients").parse().unwrap_or(100).clamp(1, MAX_CLIENTS);
    let is_edited = query.pairs().iter().any(|(key, _)| key.starts_with(FIELD_PREFIX));
    let (what_if, error) = match (is_edited, parse(&name, &lines)) {
        (false, _) => (None, None),
        (true, Ok(edited)) => {
            (Some(simulate(&app, &set, &name, edited, scenario.clone(), clients, query).await?), None)
        }
        (true, Err(why)) => (None, Some(why)),
    };
    render(&PolicyPage {
        chrome: visitor.page("/policies", format!("Policy {name}")).still(),
        is_own: set.is_own(&name),
        used: used(&set).remove(&name).unwrap_or_default(),
        attempts: attempts(policy.attempts()),
        active: draw_windows(policy),
        fields: lines.into_iter().map(|(key, value)| Field { about: about(&key), key, value }).collect(),
        scenarios: lab::scenarios().map(|(word, about)| (word, about, word == scenario.name())).collect(),
        clients,
        findings: lint_policy(&name, policy),
        error,
        what_if,
        name,
    })
}

/// Deploys the edited policy to every node.
#[utoipa::path(post, path = "/policies/{name}", tag = "pages", security(("token" = ["admin"])),
    params(("name" = String, Path, description = "The name.")), responses((status = 303, description = "The policy is active.")))]
pub(super) async fn deploy(
    State(app): State<App>,
    visitor: Visitor,
    Path(name): Path<String>,
    form: String,
) -> Result<Response, Problem> {
    let form = PageQuery::read(&form);
    // Reads versions that other nodes have deployed since the last poll.
    app.work.refresh_policies().await?;
    let set = app.work.policies();
    if form.get("version") != set.id().to_string() {
        let detail = "another version was deployed meanwhile; review the active values and edit them again";
        return Err(Problem::new(Kind::PreconditionFailed, detail));
    }
    let policy = set.policy(&name).ok_or_else(no_such_policy)?;
    let error = |why| Problem::new(Kind::InvalidPolicies, format!("{why}; nothing was changed"));
    let edited = parse(&name, &policy_lines(policy, &form)).map_err(error)?;
    if edited == **policy {
        return Ok((Extension(NoChange), visitor.redirect("/policies?done=unchanged")).into_response());
    }
    let mut next = (*set).clone();
    next.define(name, edited);
    let next = api::check_policies(&app, &next.to_toml())?;
    let event = api::deploy_policies(&app, next, &deployed_by(&visitor)).await?;
    Ok((Extension(event), visitor.redirect("/policies?done=deploy")).into_response())
}

fn no_such_policy() -> Problem {
    Problem::new(Kind::NoSuchPolicy, "no active policy has this name")
}

/// Returns the policy's lines as names and values, with the edited values in their place.
fn policy_lines(policy: &Policy, query: &PageQuery) -> Vec<(String, String)> {
    let text = policy.to_toml();
    let pair = |line: &str| {
        let (key, value) = line.split_once(" = ")?;
        let value = match query.get(&format!("{FIELD_PREFIX}{key}")) {
            "" => bare(value),
            edited => edited.to_owned(),
        };
        Some((key.to_owned(), value))
    };
    text.lines().filter_map(pair).collect()
}

/// Returns a TOML word or duration without its quotes, so that users need not know the file's syntax.
fn bare(value: &str) -> String {
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or(value).to_owned()
}

/// Parses the policy that these lines make. The error names the problem.
fn parse(name: &str, lines: &[(String, String)]) -> Result<Policy, String> {
    let mut text = "[policies.changed]\n".to_owned();
    for (key, value) in lines {
        if value.contains(['\n', '\r']) {
            return Err(format!("{key}: expected one line"));
        }
        let is_plain = value.parse::<f64>().is_ok() || value.starts_with(['{', '[', '"']);
        let value = if is_plain { value.clone() } else { format!("\"{}\"", value.replace(['"', '\\'], "")) };
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{key} = {value}");
    }
    let set = PolicySet::from_toml(&text).map_err(|problems| {
        let each = problems.iter().map(|problem| match &problem.expected {
            Some(expected) => format!("{}: expected {expected}", problem.message),
            None => problem.message.clone(),
        });
        each.collect::<Vec<_>>().join("; ").replace("policies.changed", name)
    })?;
    set.policy("changed").map(|policy| (**policy).clone()).ok_or_else(|| format!("{name} has no values"))
}

/// Simulates both policies and describes the difference.
async fn simulate(
    app: &App,
    set: &PolicySet,
    name: &str,
    edited: Policy,
    scenario: Scenario,
    clients: u32,
    query: &PageQuery,
) -> Result<WhatIf, Problem> {
    let current = set.policy(name).map(|policy| (**policy).clone()).ok_or_else(no_such_policy)?;
    let mut next = set.clone();
    next.define(name, edited.clone());
    let strategies =
        vec![Strategy::policy("active", current.clone()), Strategy::policy("edited", edited.clone())];
    let scenario = scenario.with_clients(clients);
    scenario.check().map_err(|why| Problem::new(Kind::InvalidQuery, why.to_string()))?;
    let (about, time) = (scenario.about(), time_of(&scenario));
    let plan = Plan { scenario, strategies, clients: vec![clients], runs: RUNS, seed: SEED, threads: 1 };
    let rows = lab::simulate(app, plan).await?;
    let is_number = |(key, _): &&(String, String)| key.starts_with(FIELD_PREFIX);
    let mut form_fields: Vec<(String, String)> = query.pairs().iter().filter(is_number).cloned().collect();
    form_fields.push(("version".to_owned(), set.id().to_string()));
    Ok(WhatIf {
        windows: draw_windows(&edited),
        changes: changes(set, &next),
        findings: lint_policy(name, &edited),
        plot: plot(&rows),
        rows: rows.iter().map(outcome).collect(),
        about,
        time,
        form_fields,
        is_new: edited != current,
    })
}

/// Returns the meaning of the scenario's time.
fn time_of(scenario: &Scenario) -> &'static str {
    match scenario {
        Scenario::Outage(_) => "recovered after",
        Scenario::Storm(_) => "all had the lock after",
        _ => "all were done after",
    }
}

fn outcome(row: &ResultRow) -> SimulatedPolicy {
    let whole = |figure: f64| format!("{figure:.0}");
    let seconds = |ms: f64| if ms < 1000.0 { format!("{ms:.0} ms") } else { format!("{:.1} s", ms / 1000.0) };
    SimulatedPolicy {
        policy: row.policy.clone(),
        time: seconds(row.time_ms.p50),
        worst: seconds(row.time_ms.p99),
        calls: whole(row.calls.mean),
        failed: format!("{:.1}", row.failed.mean),
    }
}

/// The number of points of both series.
const POINTS: u64 = 120;

/// Returns the calls over time of both policies, as JSON for the plot's script.
fn plot(rows: &[ResultRow]) -> String {
    let width = rows.iter().map(|row| row.calls_over_time.bucket_us()).max().unwrap_or(1_000).max(1_000);
    let longest =
        rows.iter().map(|row| row.calls_over_time.bucket_us() * row.calls_over_time.counts().len() as u64);
    let step = (longest.max().unwrap_or(0) / POINTS).max(width);
    let buckets = |row: &ResultRow| {
        let own = row.calls_over_time.bucket_us().max(1);
        let mut counts = vec![0_u64; usize::try_from(POINTS).unwrap_or(0) + 2];
        for (index, count) in row.calls_over_time.counts().iter().enumerate() {
            let at = usize::try_from(index as u64 * own / step).unwrap_or(usize::MAX);
            if let Some(sum) = counts.get_mut(at) {
                *sum += count / u64::from(row.runs.max(1));
            }
        }
        counts
    };
    let series = rows.iter().map(|row| serde_json::json!({ "name": row.policy, "values": buckets(row) }));
    let times: Vec<f64> = (0..POINTS + 2).map(|index| millis(index * step)).collect();
    serde_json::json!({ "times": times, "elapsed": true, "series": series.collect::<Vec<_>>() }).to_string()
}

#[expect(clippy::cast_precision_loss, reason = "a simulation is shorter than 2^52 microseconds")]
fn millis(us: u64) -> f64 {
    us as f64 / 1_000_000.0
}

fn about(key: &str) -> &'static str {
    match key {
        "growth" => "growth of the delays: exponential, linear, fibonacci, constant or list",
        "base" => "ceiling of the first delay",
        "factor" => "ratio of successive ceilings",
        "max_exponent" => "maximum number of growth steps",
        "step" => "difference of successive ceilings",
        "delay" => "the constant delay",
        "delays" => "the list of delays",
        "cap" => "maximum delay",
        "jitter" => "distribution of a delay within its window: full, equal, decorrelated, none …",
        "attempts" => "maximum number of attempts, including the first; or unlimited",
        "deadline" => "deadline of all attempts together",
        "retry_after" => "how the Retry-After of the other side is honoured",
        "contention" => "the window by the number of contenders: a slot for each, and a limit",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_survives_a_round_trip_through_its_lines() {
        for (name, _) in holdoff_policy::PRESETS {
            let policy = Policy::preset(name).unwrap();
            let lines = policy_lines(&policy, &PageQuery::default());
            assert_eq!(parse(name, &lines).unwrap(), policy, "{lines:?}");
        }
    }

    #[test]
    fn edited_values_replace_the_original_ones() {
        let policy = Policy::preset("standard").unwrap();
        let lines = policy_lines(&policy, &PageQuery::read("set.attempts=3&set.base=1s"));
        assert_eq!(parse("standard", &lines).unwrap().attempts(), 3);
        let lines = policy_lines(&policy, &PageQuery::read("set.base=soon"));
        assert!(parse("standard", &lines).unwrap_err().contains("soon"));
        let lines = policy_lines(&policy, &PageQuery::read("set.base=1s%22%0A%5Bpolicies.x%5D"));
        assert!(parse("standard", &lines).is_err());
    }
}
