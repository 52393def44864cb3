//! An outage, and whether it ends.
//!
//! Clients send requests to a service at random times, whether or not the last request was answered (open loop,
//! Poisson). The service consists of one to three layers that each retry on their own. The innermost layer calls a
//! dependency of finite capacity: a number of workers, a service time, and a bounded queue in front of the workers. A
//! caller waits for its timeout. The dependency does not know the timeout, and works on calls whose caller has gone.
//!
//! For a while the dependency fails every call at once. The interesting phase comes afterwards: if the retries make
//! more calls than the dependency can serve, the queue grows until every answer is too late. Each late answer is
//! retried, and the queue stays full. The outage has ended and yet goes on: it is *metastable*.
//!
//! Each layer asks the strategy, as often as `attempts` allows. A request that a layer gives up is one failed attempt
//! of the layer context it, so that k layers of n attempts make up to nᵏ calls for one request. A **budget** belongs to
//! a layer and is shared by all its requests. The **breaker** stands in front of the dependency: a call that it refuses
//! is not made, and the innermost layer does not retry it. Both are production code.
//!
//! The time of a run is the time from the end of the outage to the start of ten consecutive seconds in each of which at
//! least nine of ten arriving requests eventually succeed. If there are no such seconds, it is the time from the end of
//! the outage to the horizon. Seconds that end within a timeout of the horizon are not judged: their requests may not
//! have been answered yet.

mod service;

use holdoff_policy::{BreakerOptions, BudgetOptions};
use serde::{Deserialize, Serialize};

use super::RunResult;
use crate::kernel::Latency;
use crate::{Histogram, Micros, Series, Strategy};

const SECOND_US: u64 = 1_000_000;
/// The number of consecutive good seconds that count as a recovery.
const GOOD_SECONDS: u64 = 10;

/// The parameters of the outage.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// The number of clients that send requests.
    pub clients: u32,
    /// The number of requests that each client sends in a second, on average.
    pub rate_per_client: f64,
    /// The number of calls that the dependency serves concurrently; at least one.
    pub workers: u32,
    /// The service time of a call.
    pub service: Latency,
    /// The length of the queue; further calls are refused at once.
    pub queue_limit: u32,
    /// The time that a caller waits for its answer.
    pub timeout: Micros,
    /// The start of the outage.
    pub outage_start: Micros,
    /// The length of the outage.
    pub outage_length: Micros,
    /// The end of the run.
    pub horizon: Micros,
    /// The number of layers that retry, from 1 to 3.
    pub layers: u32,
    /// The limit of attempts of each layer, the first included; the strategy may stop earlier.
    pub attempts: u32,
    /// The budget of each layer, if any.
    pub budget: Option<BudgetRule>,
    /// The breaker in front of the dependency, if any.
    pub breaker: Option<BreakerRule>,
}

impl Default for Params {
    /// A hundred requests a second against a capacity of 150, with an outage of ten seconds.
    ///
    /// With the preset `standard` and four attempts the dependency never recovers; with a budget or a breaker it does.
    fn default() -> Self {
        Self {
            clients: 100,
            rate_per_client: 1.0,
            workers: 15,
            service: Latency::normal_ms(100, 20),
            queue_limit: 1000,
            timeout: Micros::from_secs(1),
            outage_start: Micros::from_secs(10),
            outage_length: Micros::from_secs(10),
            horizon: Micros::from_secs(120),
            layers: 1,
            attempts: 4,
            budget: None,
            breaker: None,
        }
    }
}

impl Params {
    pub(super) fn outage_end_us(&self) -> u64 {
        self.outage_start.0.saturating_add(self.outage_length.0)
    }

    /// Returns the earliest horizon at which a recovery can be seen: only whole seconds are judged, and the requests of
    /// the last one must be answered.
    pub(super) fn first_recovery_seen_us(&self) -> u64 {
        let first = self.outage_end_us().div_ceil(SECOND_US);
        (first + GOOD_SECONDS).saturating_mul(SECOND_US).saturating_add(self.timeout.0)
    }
}

/// The budget of a layer.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetRule {
    /// The number of retries that each success earns.
    pub ratio: f64,
    /// The number of retries that can be saved up.
    pub burst: u32,
}

impl Default for BudgetRule {
    fn default() -> Self {
        let BudgetOptions { ratio, burst } = BudgetOptions::default();
        Self { ratio, burst }
    }
}

/// The rule for opening the breaker. Its cool-down is the product's own, the preset `standard`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerRule {
    /// The share of recent calls that must have failed.
    pub failure_ratio: f64,
    /// The number of recent calls that the breaker requires.
    pub min_calls: u32,
    /// The window of recent calls.
    pub window: Micros,
    /// The number of consecutive successful probes that close the breaker.
    pub probes: u32,
}

impl Default for BreakerRule {
    fn default() -> Self {
        let BreakerOptions { failure_ratio, min_calls, window, probes, .. } = BreakerOptions::default();
        Self { failure_ratio, min_calls, window: window.into(), probes }
    }
}

/// The outcome of one run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// The time from the end of the outage to the recovery; to the horizon if there was none.
    pub recovery_us: u64,
    /// Whether the service recovered.
    pub has_recovered: bool,
    /// Requests that arrived.
    pub requests: u64,
    /// Requests that succeeded.
    pub succeeded: u64,
    /// Calls to the dependency.
    pub calls: u64,
    /// Calls made during the outage for each request that arrived during it.
    pub amplification: f64,
    /// The most calls that one request made.
    pub most_calls_per_request: u32,
    /// The share of requests that succeeded.
    pub goodput: f64,
    /// Retries that a budget refused.
    pub refused_by_budget: u64,
    /// Calls that the breaker refused.
    pub refused_by_breaker: u64,
    /// Calls answered after their caller had gone, or refused because the queue was full.
    pub futile: u64,
    /// Calls by the time they were made.
    pub calls_over_time: Series,
    /// Successes by the time they came.
    pub successes_over_time: Series,
    /// The delays between attempts, of all layers.
    pub delays: Histogram,
    /// Events that the kernel handled.
    pub events: u64,
}

impl Outcome {
    pub(super) fn run_result(self) -> RunResult {
        RunResult::new(self.recovery_us, self.calls, u64::from(!self.has_recovered))
            .figure("requests", self.requests)
            .number("amplification", self.amplification)
            .figure("most_calls_per_request", u64::from(self.most_calls_per_request))
            .number("goodput", self.goodput)
            .figure("recovered", u64::from(self.has_recovered))
            .figure("refused_by_budget", self.refused_by_budget)
            .figure("refused_by_breaker", self.refused_by_breaker)
            .figure("futile", self.futile)
            .plots(self.calls_over_time, self.delays)
    }
}

/// Runs the scenario once.
pub fn run(params: &Params, strategy: &Strategy, seed: u64) -> Outcome {
    service::Service::new(params, strategy, seed).run()
}
