//! An outage, and whether it ends.
//!
//! Clients send requests to a service, each at random and whether or not the last one was answered (open
//! loop, Poisson). The service stands on one to three layers that each retry on their own; the innermost
//! calls a dependency of finite capacity: so many workers, so long a service time, and a bounded line in
//! front of them. A caller waits for its timeout; the dependency does not know, and works on calls whose
//! caller has gone.
//!
//! For a while the dependency fails every call at once. What is interesting comes after: if the calls that
//! the retries make outnumber what it can serve, the line grows until every answer is too late, each late
//! answer is retried, and the line stays full. The outage has ended and yet goes on: it is *metastable*.
//!
//! Each layer asks the strategy, as often as `attempts` allows; what a layer gives up is one failed try of
//! the layer around it, so that k layers of n attempts make up to nᵏ calls of one request. A **budget**
//! belongs to a layer and is shared by all its requests. The **breaker** stands before the dependency: what
//! it refuses is not called and not retried by the innermost layer. Both are the real ones.
//!
//! The run's time is the time from the outage's end until ten seconds begin in each of which at least nine
//! of ten arriving requests succeed in the end; if there are none, it is all the time there was. Seconds
//! that end within a timeout of the horizon are not judged: their requests may not have been answered yet.

mod dependency;
mod layers;
mod service;

use holdoff_policy::{BreakerOptions, BudgetOptions};
use serde::{Deserialize, Serialize};

use super::Measured;
use crate::kernel::Latency;
use crate::{Histogram, Micros, Series, Strategy};

const SECOND_US: u64 = 1_000_000;
/// So many good seconds in a row are a recovery.
const GOOD_SECONDS: u64 = 10;

/// The parameters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// How many clients send requests.
    pub clients: u32,
    /// How many requests each sends in a second, on average.
    pub rate_per_client: f64,
    /// How many calls the dependency serves at the same time; at least one.
    pub workers: u32,
    /// How long it works on one.
    pub service: Latency,
    /// How many calls wait at most; the next is refused at once.
    pub line_limit: u32,
    /// How long a caller waits for its answer.
    pub timeout: Micros,
    /// When the dependency begins to fail.
    pub outage_start: Micros,
    /// For how long it fails.
    pub outage_length: Micros,
    /// When the run ends.
    pub horizon: Micros,
    /// How many layers retry, from 1 to 3.
    pub layers: u32,
    /// How many tries each layer makes at most, the first included; the strategy may stop earlier.
    pub attempts: u32,
    /// The budget each layer has, if any.
    pub budget: Option<BudgetRule>,
    /// The breaker before the dependency, if any.
    pub breaker: Option<BreakerRule>,
}

impl Default for Params {
    /// A hundred requests a second against a capacity of 150; it fails for ten seconds.
    ///
    /// With the preset `standard` and four attempts the dependency never recovers; with a budget or a
    /// breaker it does.
    fn default() -> Self {
        Self {
            clients: 100,
            rate_per_client: 1.0,
            workers: 15,
            service: Latency::normal_ms(100, 20),
            line_limit: 1000,
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

    /// The earliest horizon at which a recovery can be seen: good seconds are whole ones, and the requests
    /// of the last must be answered.
    pub(super) fn first_recovery_seen_us(&self) -> u64 {
        let first = self.outage_end_us().div_ceil(SECOND_US);
        (first + GOOD_SECONDS).saturating_mul(SECOND_US).saturating_add(self.timeout.0)
    }
}

/// How generous a layer's budget is.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetRule {
    /// How many retries each success earns.
    pub ratio: f64,
    /// How many can be saved up.
    pub burst: u32,
}

impl Default for BudgetRule {
    fn default() -> Self {
        let BudgetOptions { ratio, burst } = BudgetOptions::default();
        Self { ratio, burst }
    }
}

/// When the breaker opens. Its cool-down is the product's own, the preset `standard`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerRule {
    /// The share of recent calls that must have failed.
    pub failure_ratio: f64,
    /// The number of recent calls it takes.
    pub min_calls: u32,
    /// How far back "recent" reaches.
    pub window: Micros,
    /// How many probes in a row must succeed before it closes.
    pub probes: u32,
}

impl Default for BreakerRule {
    fn default() -> Self {
        let BreakerOptions { failure_ratio, min_calls, window, probes, .. } = BreakerOptions::default();
        Self { failure_ratio, min_calls, window: window.into(), probes }
    }
}

/// What one run showed.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// How long after the outage's end things were well again; to the horizon if never.
    pub recovery_us: u64,
    /// Whether they were.
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
    /// Calls answered after their caller had gone, or not served for lack of room.
    pub futile: u64,
    /// Calls by the time they were made.
    pub calls_over_time: Series,
    /// Successes by the time they came.
    pub successes_over_time: Series,
    /// The delays between tries, of all layers.
    pub delays: Histogram,
    /// Events the kernel handled.
    pub events: u64,
}

impl Outcome {
    pub(super) fn measured(self) -> Measured {
        Measured::new(self.recovery_us, self.calls, u64::from(!self.has_recovered))
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

/// Runs it once.
pub fn run(params: &Params, strategy: &Strategy, seed: u64) -> Outcome {
    service::Service::new(params, strategy, seed).run()
}
