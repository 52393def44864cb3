//! `POST /v1/sim`: small simulations of policies.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdoff_sim::scenario::Scenario;
use holdoff_sim::{Plan, ResultRow, Strategy, Summary};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use utoipa::ToSchema;

use crate::api::JsonBody;
use crate::app::App;
use crate::problem::{Kind, Problem, ProblemBody, jittered_retry_after};

/// The number of simulations that run at once. Each uses one core.
const MAX_CONCURRENT: usize = 2;
const MAX_CLIENTS: u32 = 1000;
const MAX_RUNS: u32 = 100;
const MAX_POLICIES: usize = 10;
/// The maximum number of clients of all runs together: a second or two of work.
const MAX_TOTAL_CLIENTS: u64 = 20_000;

/// The limit on concurrent simulations.
#[derive(Debug)]
pub(crate) struct Lab(Arc<Semaphore>);

impl Default for Lab {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_CONCURRENT)))
    }
}

/// Returns the available scenarios and their descriptions. Two scenarios of the command are missing: the work of a duel
/// grows with the square of its clients, so that no limit of clients and runs bounds it, and an election compares no
/// policies.
pub(crate) fn scenarios() -> impl Iterator<Item = (&'static str, &'static str)> {
    Scenario::ALL.into_iter().filter(|(name, _)| !["duel", "election"].contains(name))
}

/// Returns the available scenario of this name.
pub(crate) fn scenario(name: &str) -> Option<Scenario> {
    scenarios().find(|(offered, _)| *offered == name).and_then(|(name, _)| Scenario::named(name))
}

/// A simulation. All other parameters, including the simulated time, have the scenario's defaults.
#[derive(Deserialize, ToSchema)]
#[schema(as = Simulation)]
#[serde(deny_unknown_fields)]
pub(crate) struct SimulationRequest {
    /// The scenario: `row`, `storm`, `limit` or `outage`.
    #[schema(pattern = "^(row|storm|limit|outage)$")]
    scenario: String,
    #[schema(minimum = 1, maximum = 1000, default = 100)]
    clients: Option<u32>,
    /// The names of policies and of the lab's own strategies. The default is the scenario's usual selection.
    #[schema(max_items = 10)]
    policies: Option<Vec<String>>,
    /// The number of runs of each policy, each with another seed. Clients × runs × policies is at most 20 000.
    #[schema(minimum = 1, maximum = 100, default = 10)]
    runs: Option<u32>,
    /// The seed of the random number generator. The same seed gives the same result.
    #[schema(default = 1)]
    seed: Option<u64>,
}

/// The result.
#[derive(Serialize, ToSchema)]
#[schema(as = SimulationResult)]
pub(crate) struct SimulationResponse {
    scenario: &'static str,
    about: &'static str,
    items: Vec<PolicyOutcome>,
}

/// The result of one policy.
#[derive(Serialize, ToSchema)]
#[schema(as = SimulationRow)]
struct PolicyOutcome {
    policy: String,
    clients: u32,
    runs: u32,
    /// The scenario's time, in milliseconds.
    time_ms: SummaryView,
    calls: SummaryView,
    /// The number of clients that failed; for an outage, the number of runs that did not recover.
    failed: SummaryView,
    /// The scenario's own figures.
    figures: BTreeMap<&'static str, SummaryView>,
}

/// A figure over all runs.
#[derive(Serialize, ToSchema)]
#[schema(as = Summary)]
struct SummaryView {
    mean: f64,
    /// One standard error of the mean.
    se: f64,
    p50: f64,
    p99: f64,
}

impl From<Summary> for SummaryView {
    fn from(Summary { mean, se, p50, p99, .. }: Summary) -> Self {
        Self { mean, se, p50, p99 }
    }
}

impl From<ResultRow> for PolicyOutcome {
    fn from(row: ResultRow) -> Self {
        Self {
            policy: row.policy,
            clients: row.clients,
            runs: row.runs,
            time_ms: row.time_ms.into(),
            calls: row.calls.into(),
            failed: row.failed.into(),
            figures: row.figures.into_iter().map(|(name, figure)| (name, figure.into())).collect(),
        }
    }
}

/// Simulates policies in virtual time.
#[utoipa::path(post, path = "/v1/sim", tag = "lab", security(("token" = ["read"])), request_body = SimulationRequest,
    responses(
        (status = 200, description = "The result.", body = SimulationResponse),
        (status = 429, description = "Too many simulations run already; retry after `Retry-After`.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(crate) async fn run(
    State(app): State<App>,
    JsonBody(request): JsonBody<SimulationRequest>,
) -> Result<Json<SimulationResponse>, Problem> {
    let plan = request.plan(&app).map_err(|why| Problem::new(Kind::InvalidBody, why))?;
    let (scenario, about) = (plan.scenario.name(), plan.scenario.about());
    let rows = simulate(&app, plan).await?;
    Ok(Json(SimulationResponse { scenario, about, items: rows.into_iter().map(Into::into).collect() }))
}

/// Runs a simulation, unless the maximum number already runs.
pub(crate) async fn simulate(app: &App, plan: Plan) -> Result<Vec<ResultRow>, Problem> {
    let Ok(permit) = Arc::clone(&app.lab.0).try_acquire_owned() else {
        let detail = format!("this daemon already runs {MAX_CONCURRENT} simulations");
        return Err(Problem::new(Kind::TooManyWaiters, detail).retry_after(jittered_retry_after()));
    };
    let simulated = tokio::task::spawn_blocking(move || {
        let rows = holdoff_sim::run(&plan, &|_, _| {});
        drop(permit);
        rows
    });
    simulated.await.map_err(|why| Problem::new(Kind::Internal, why.to_string()))
}

impl SimulationRequest {
    fn plan(self, app: &App) -> Result<Plan, String> {
        let scenario = scenario(&self.scenario).ok_or("scenario: expected row, storm, limit or outage")?;
        let within = |what: &str, number: u32, most: u32| match number {
            number if (1..=most).contains(&number) => Ok(number),
            _ => Err(format!("{what}: expected 1 to {most}")),
        };
        let clients = within("clients", self.clients.unwrap_or(100), MAX_CLIENTS)?;
        let runs = within("runs", self.runs.unwrap_or(10), MAX_RUNS)?;
        let usual = || scenario.usual_strategies().iter().map(|name| (*name).to_owned()).collect();
        let names: Vec<String> = self.policies.unwrap_or_else(usual);
        if names.is_empty() || names.len() > MAX_POLICIES {
            return Err(format!("policies: expected 1 to {MAX_POLICIES}"));
        }
        let strategies = names.iter().map(|name| strategy(app, name)).collect::<Result<Vec<_>, _>>()?;
        let total = u64::from(clients) * u64::from(runs) * strategies.len() as u64;
        if total > MAX_TOTAL_CLIENTS {
            return Err(format!("clients × runs × policies is {total}; the limit is {MAX_TOTAL_CLIENTS}"));
        }
        let scenario = scenario.with_clients(clients);
        scenario.check().map_err(|why| why.to_string())?;
        let seed = self.seed.unwrap_or(1);
        Ok(Plan { scenario, strategies, clients: vec![clients], runs, seed, threads: 1 })
    }
}

/// Returns an active policy or a built-in strategy of the simulator.
fn strategy(app: &App, name: &str) -> Result<Strategy, String> {
    if let Some(policy) = app.work.policies().policy(name) {
        return Ok(Strategy::policy(name, (**policy).clone()));
    }
    Strategy::named(name).ok_or_else(|| "policies: no policy or strategy has this name".to_owned())
}
