//! One policy: edit its numbers, simulate the effect, then deploy.
//!
//! The edited numbers are part of the page's URL, so that they can be shared before they are active.

use std::fmt::Write;

use askama::Template;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use holdoff_policy::{Change, Finding, Policy, PolicySet, changes, lint_policy};
use holdoff_sim::scenario::Scenario;
use holdoff_sim::{Plan, Row, Strategy};

use super::chrome::{Chrome, Visitor, render};
use super::policies::{attempts, publisher, used};
use super::query::Query;
use super::windows::{self, Windows};
use crate::access::NothingDone;
use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::{api, lab};

/// The prefix of a number's name in the query.
const MARK: &str = "set.";
/// The number of runs of a simulation. It is small, so that the page answers quickly.
const RUNS: u32 = 10;
const MOST_CLIENTS: u32 = 500;
const SEED: u64 = 1;

#[derive(Template)]
#[template(path = "policy.html")]
struct PolicyPage {
    chrome: Chrome,
    name: String,
    is_own: bool,
    used: Vec<String>,
    attempts: String,
    in_force: Windows,
    /// The fields of the policy: name, value, and meaning.
    fields: Vec<Field>,
    scenarios: Vec<(&'static str, &'static str, bool)>,
    clients: u32,
    findings: Vec<Finding>,
    wrong: Option<String>,
    changed: Option<Changed>,
}

struct Field {
    key: String,
    value: String,
    about: &'static str,
}

/// The effect of the edited numbers.
struct Changed {
    windows: Windows,
    changes: Vec<Change>,
    findings: Vec<Finding>,
    rows: Vec<Outcome>,
    plot: String,
    about: &'static str,
    time: &'static str,
    /// The form fields that a deployment sends.
    sent: Vec<(String, String)>,
    is_new: bool,
}

/// The result of one policy in the simulation.
struct Outcome {
    policy: String,
    time: String,
    worst: String,
    calls: String,
    failed: String,
}

/// One policy, and what its numbers would do if they were others.
#[utoipa::path(get, path = "/policies/{name}", tag = "pages", security(("token" = ["read"])),
    params(("name" = String, Path, description = "Its name.")), responses((status = 200, description = "The page.")))]
pub(super) async fn policy(
    State(app): State<App>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let set = app.work.policies();
    let policy = set.policy(&name).ok_or_else(unknown)?;
    let query = &visitor.query;
    let lines = written(policy, query);
    let scenario = lab::scenario(query.get("scenario")).or_else(|| lab::scenario("storm"));
    let scenario = scenario.ok_or_else(unknown)?;
    let clients = query.get("clients").parse().unwrap_or(100).clamp(1, MOST_CLIENTS);
    let is_asked = query.pairs().iter().any(|(key, _)| key.starts_with(MARK));
    let (changed, wrong) = match (is_asked, parse(&name, &lines)) {
        (false, _) => (None, None),
        (true, Ok(other)) => {
            (Some(try_out(&app, &set, &name, other, scenario.clone(), clients, query).await?), None)
        }
        (true, Err(why)) => (None, Some(why)),
    };
    render(&PolicyPage {
        chrome: visitor.page("/policies", format!("Policy {name}")).still(),
        is_own: set.is_own(&name),
        used: used(&set).remove(&name).unwrap_or_default(),
        attempts: attempts(policy.attempts()),
        in_force: windows::draw(policy),
        fields: lines.into_iter().map(|(key, value)| Field { about: about(&key), key, value }).collect(),
        scenarios: lab::scenarios().map(|(word, about)| (word, about, word == scenario.name())).collect(),
        clients,
        findings: lint_policy(&name, policy),
        wrong,
        changed,
        name,
    })
}

/// Publishes the changed policy for every node.
#[utoipa::path(post, path = "/policies/{name}", tag = "pages", security(("token" = ["admin"])),
    params(("name" = String, Path, description = "Its name.")), responses((status = 303, description = "In force.")))]
pub(super) async fn publish(
    State(app): State<App>,
    visitor: Visitor,
    Path(name): Path<String>,
    form: String,
) -> Result<Response, Problem> {
    let form = Query::read(&form);
    // Reads versions that other nodes have deployed since the last poll.
    app.work.look_at_policies().await?;
    let set = app.work.policies();
    if form.get("version") != set.id().to_string() {
        let detail =
            "somebody else has published meanwhile; look at the numbers in force, and change them again";
        return Err(Problem::new(Kind::Changed, detail));
    }
    let policy = set.policy(&name).ok_or_else(unknown)?;
    let wrong = |why| Problem::new(Kind::InvalidPolicies, format!("{why}; nothing was changed"));
    let other = parse(&name, &written(policy, &form)).map_err(wrong)?;
    if other == **policy {
        return Ok((Extension(NothingDone), visitor.send("/policies?done=unchanged")).into_response());
    }
    let mut next = (*set).clone();
    next.define(name, other);
    let next = api::check_policies(&app, &next.to_toml())?;
    let deed = api::put_in_force(&app, next, &publisher(&visitor)).await?;
    Ok((Extension(deed), visitor.send("/policies?done=publish")).into_response())
}

fn unknown() -> Problem {
    Problem::new(Kind::NoSuchPolicy, "there is no policy of this name in force")
}

/// Returns the policy's lines as names and values, with the edited values in their place.
fn written(policy: &Policy, query: &Query) -> Vec<(String, String)> {
    let text = policy.to_toml();
    let pair = |line: &str| {
        let (key, value) = line.split_once(" = ")?;
        let value = match query.get(&format!("{MARK}{key}")) {
            "" => bare(value),
            other => other.to_owned(),
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
    set.policy("changed").map(|policy| (**policy).clone()).ok_or_else(|| format!("{name} has no numbers"))
}

/// Simulates both policies and describes the difference.
async fn try_out(
    app: &App,
    set: &PolicySet,
    name: &str,
    other: Policy,
    scenario: Scenario,
    clients: u32,
    query: &Query,
) -> Result<Changed, Problem> {
    let current = set.policy(name).map(|policy| (**policy).clone()).ok_or_else(unknown)?;
    let mut next = set.clone();
    next.define(name, other.clone());
    let strategies =
        vec![Strategy::policy("in force", current.clone()), Strategy::policy("changed", other.clone())];
    let scenario = scenario.with_clients(clients);
    scenario.check().map_err(|why| Problem::new(Kind::InvalidQuery, why.to_string()))?;
    let (about, time) = (scenario.about(), time_of(&scenario));
    let plan = Plan { scenario, strategies, clients: vec![clients], runs: RUNS, seed: SEED, threads: 1 };
    let rows = lab::simulate(app, plan).await?;
    let is_number = |(key, _): &&(String, String)| key.starts_with(MARK);
    let mut sent: Vec<(String, String)> = query.pairs().iter().filter(is_number).cloned().collect();
    sent.push(("version".to_owned(), set.id().to_string()));
    Ok(Changed {
        windows: windows::draw(&other),
        changes: changes(set, &next),
        findings: lint_policy(name, &other),
        plot: plot(&rows),
        rows: rows.iter().map(outcome).collect(),
        about,
        time,
        sent,
        is_new: other != current,
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

fn outcome(row: &Row) -> Outcome {
    let whole = |figure: f64| format!("{figure:.0}");
    let seconds = |ms: f64| if ms < 1000.0 { format!("{ms:.0} ms") } else { format!("{:.1} s", ms / 1000.0) };
    Outcome {
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
fn plot(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.calls_over_time.bucket_us()).max().unwrap_or(1_000).max(1_000);
    let longest =
        rows.iter().map(|row| row.calls_over_time.bucket_us() * row.calls_over_time.counts().len() as u64);
    let step = (longest.max().unwrap_or(0) / POINTS).max(width);
    let buckets = |row: &Row| {
        let own = row.calls_over_time.bucket_us().max(1);
        let mut counts = vec![0_u64; usize::try_from(POINTS).unwrap_or(0) + 2];
        for (place, count) in row.calls_over_time.counts().iter().enumerate() {
            let at = usize::try_from(place as u64 * own / step).unwrap_or(usize::MAX);
            if let Some(sum) = counts.get_mut(at) {
                *sum += count / u64::from(row.runs.max(1));
            }
        }
        counts
    };
    let series = rows.iter().map(|row| serde_json::json!({ "name": row.policy, "values": buckets(row) }));
    let times: Vec<f64> = (0..POINTS + 2).map(|place| millis(place * step)).collect();
    serde_json::json!({ "times": times, "elapsed": true, "series": series.collect::<Vec<_>>() }).to_string()
}

#[expect(clippy::cast_precision_loss, reason = "a simulation is shorter than 2^52 microseconds")]
fn millis(us: u64) -> f64 {
    us as f64 / 1_000_000.0
}

fn about(key: &str) -> &'static str {
    match key {
        "growth" => "how waits grow: exponential, linear, fibonacci, constant or list",
        "base" => "the first ceiling",
        "factor" => "each ceiling is so many times the one before",
        "max_exponent" => "the ceiling grows so often at most",
        "step" => "each ceiling is so much above the one before",
        "delay" => "always the same",
        "delays" => "one after the other",
        "cap" => "no wait is longer",
        "jitter" => "where in its window a wait falls: full, equal, decorrelated, none …",
        "attempts" => "tries in all, the first included; or unlimited",
        "deadline" => "all tries together",
        "retry_after" => "what the other side asks for, and how far it is heeded",
        "crowd" => "room for everybody who contends",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_back_from_its_own_lines() {
        for (name, _) in holdoff_policy::PRESETS {
            let policy = Policy::preset(name).unwrap();
            let lines = written(&policy, &Query::default());
            assert_eq!(parse(name, &lines).unwrap(), policy, "{lines:?}");
        }
    }

    #[test]
    fn what_is_written_takes_the_place_of_what_was() {
        let policy = Policy::preset("standard").unwrap();
        let lines = written(&policy, &Query::read("set.attempts=3&set.base=1s"));
        assert_eq!(parse("standard", &lines).unwrap().attempts(), 3);
        let lines = written(&policy, &Query::read("set.base=soon"));
        assert!(parse("standard", &lines).unwrap_err().contains("soon"));
        let lines = written(&policy, &Query::read("set.base=1s%22%0A%5Bpolicies.x%5D"));
        assert!(parse("standard", &lines).is_err());
    }
}
