//! Validation of scenario parameters.
//!
//! A model with invalid parameters gives a meaningless result, or never ends: a limit that admits no call, or a store
//! without hops that a client calls again and again in the same microsecond. A caller that takes parameters from users
//! calls [`Scenario::check`](super::Scenario::check) first.

use std::error::Error;
use std::fmt;

use holdoff_paxos::MAX_ACCEPTORS;

use crate::kernel::Latency;
use crate::{Micros, scenario};

/// The largest number of clients of a run.
pub const MAX_CLIENTS: u32 = 10_000_000;

/// The largest number of processes, and of workers of a lock's store.
pub(super) const MAX_PROCESSES: u32 = 1_000_000;

/// An invalid parameter. Nothing was run; the text states the rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidParams {
    parameter: &'static str,
    must: String,
}

impl InvalidParams {
    /// Returns the name of the parameter, as written in files.
    pub const fn parameter(&self) -> &'static str {
        self.parameter
    }
}

impl fmt::Display for InvalidParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must {}", self.parameter, self.must)
    }
}

impl Error for InvalidParams {}

pub(super) type CheckResult = Result<(), InvalidParams>;

/// Returns an error for the parameter if the condition does not hold.
pub(super) fn must(is_so: bool, parameter: &'static str, must: &str) -> CheckResult {
    if is_so { Ok(()) } else { Err(InvalidParams { parameter, must: must.to_owned() }) }
}

pub(super) fn clients(number: u32) -> CheckResult {
    must((1..=MAX_CLIENTS).contains(&number), "clients", &format!("be from 1 to {MAX_CLIENTS}"))
}

pub(super) fn not_zero(parameter: &'static str, time: Micros) -> CheckResult {
    must(time > Micros(0), parameter, "be longer than zero")
}

pub(super) fn at_least_one(parameter: &'static str, number: u32) -> CheckResult {
    must(number >= 1, parameter, "be at least 1")
}

pub(super) fn latency(parameter: &'static str, latency: &Latency) -> CheckResult {
    let is_in_order = !matches!(latency, Latency::Uniform { low, high } if low > high);
    must(is_in_order, parameter, "have a low that is no higher than its high")
}

/// Requires a hop that takes time. With a hop of zero, a client without backoff would call forever in the same
/// microsecond.
pub(super) fn hop_that_takes_time(parameter: &'static str, hop: &Latency) -> CheckResult {
    latency(parameter, hop)?;
    must(
        !hop.is_always_zero(),
        parameter,
        "take time: otherwise a refused client calls again in the same microsecond",
    )
}

impl super::Scenario {
    /// Checks the parameters. The error names the first invalid parameter and its rule.
    ///
    /// ```
    /// use holdoff_sim::scenario::{Scenario, outage};
    ///
    /// let idle = Scenario::Outage(outage::Params { workers: 0, ..outage::Params::default() });
    /// assert_eq!(idle.check().unwrap_err().to_string(), "workers must be at least 1");
    /// ```
    pub fn check(&self) -> CheckResult {
        match self {
            Self::Row(params) => params.check(),
            Self::Storm(params) => params.check(),
            Self::Limit(params) => params.check(),
            Self::Outage(params) => params.check(),
            Self::Duel(params) => params.check(),
            Self::Election(params) => params.check(),
        }
    }
}

impl scenario::row::Params {
    fn check(&self) -> CheckResult {
        clients(self.clients)?;
        latency("hop", &self.hop)?;
        let is_factor = self.contenders_error > 0.0 && self.contenders_error <= 1e6;
        must(is_factor, "contenders_error", "be above 0 and at most a million; 1 is a true count")
    }
}

impl scenario::storm::Params {
    fn check(&self) -> CheckResult {
        clients(self.clients)?;
        let size = format!("be from 1 to {MAX_PROCESSES}");
        must((1..=MAX_PROCESSES).contains(&self.processes), "processes", &size)?;
        must((1..=MAX_PROCESSES).contains(&self.store_workers), "store_workers", &size)?;
        hop_that_takes_time("hop", &self.hop)?;
        not_zero("acquire_timeout", self.acquire_timeout)
    }
}

impl scenario::limit::Params {
    fn check(&self) -> CheckResult {
        clients(self.clients)?;
        at_least_one("rate_per_sec", self.rate_per_sec)?;
        at_least_one("burst", self.burst)?;
        hop_that_takes_time("hop", &self.hop)?;
        not_zero("horizon", self.horizon)
    }
}

impl scenario::outage::Params {
    /// The largest number of requests of a run; each is kept in memory.
    const MAX_REQUESTS: f64 = 1e7;
    const MAX_HORIZON: Micros = Micros::from_secs(24 * 60 * 60);

    fn check(&self) -> CheckResult {
        clients(self.clients)?;
        must(self.rate_per_client > 0.0, "rate_per_client", "be above 0")?;
        let requests = f64::from(self.clients) * self.rate_per_client * self.horizon.as_f64() / 1e6;
        let few = format!("be at most ten million requests; it is {requests:.0}");
        must(requests <= Self::MAX_REQUESTS, "clients × rate_per_client × horizon", &few)?;
        at_least_one("workers", self.workers)?;
        latency("service", &self.service)?;
        not_zero("timeout", self.timeout)?;
        not_zero("horizon", self.horizon)?;
        must(self.horizon <= Self::MAX_HORIZON, "horizon", "be at most a day")?;
        let end_us = self.outage_end_us();
        must(end_us <= self.horizon.0, "outage_start + outage_length", "not go beyond the horizon")?;
        let seen = Micros(self.first_recovery_seen_us());
        let late = format!("be at least {seen}, or no recovery can be seen, or end with the outage");
        must(end_us == self.horizon.0 || self.horizon >= seen, "horizon", &late)?;
        must((1..=3).contains(&self.layers), "layers", "be from 1 to 3")?;
        must((1..=100).contains(&self.attempts), "attempts", "be from 1 to 100")?;
        self.budget.map_or(Ok(()), |rule| rule.check())?;
        self.breaker.map_or(Ok(()), |rule| rule.check())
    }
}

impl scenario::outage::BudgetRule {
    fn check(&self) -> CheckResult {
        must((0.0..=1000.0).contains(&self.ratio), "budget.ratio", "be from 0 to 1000")?;
        must(self.burst <= 1_000_000, "budget.burst", "be at most 1000000")
    }
}

impl scenario::outage::BreakerRule {
    fn check(&self) -> CheckResult {
        let is_share = self.failure_ratio > 0.0 && self.failure_ratio <= 1.0;
        must(is_share, "breaker.failure_ratio", "be a share: above 0 and at most 1")?;
        at_least_one("breaker.min_calls", self.min_calls)?;
        not_zero("breaker.window", self.window)?;
        at_least_one("breaker.probes", self.probes)
    }
}

impl scenario::duel::Params {
    /// The work of a run grows with the square of this number.
    const MAX_MEMBERS: u32 = 1000;
    const MAX_DEADLINE: Micros = Micros::from_secs(60 * 60);

    fn check(&self) -> CheckResult {
        let few = format!("be from 1 to {}: every member receives every vote", Self::MAX_MEMBERS);
        must((1..=Self::MAX_MEMBERS).contains(&self.clients), "clients", &few)?;
        let size = format!("be from 1 to {MAX_ACCEPTORS}");
        must((1..=MAX_ACCEPTORS).contains(&(self.acceptors as usize)), "acceptors", &size)?;
        hop_that_takes_time("hop", &self.hop)?;
        must((0.0..=0.5).contains(&self.loss), "loss", "be from 0 to 0.5")?;
        must((0.0..=1.0).contains(&self.kill), "kill", "be from 0 to 1")?;
        not_zero("answer_timeout", self.answer_timeout)?;
        not_zero("deadline", self.deadline)?;
        must(self.deadline <= Self::MAX_DEADLINE, "deadline", "be at most an hour")
    }
}

impl scenario::election::Params {
    /// The largest number of members of a ledger.
    const MAX_NODES: u32 = 128;
    const MAX_DURATION: Micros = Micros::from_secs(24 * 60 * 60);

    fn check(&self) -> CheckResult {
        let few = format!("be from 1 to {}", Self::MAX_NODES);
        must((1..=Self::MAX_NODES).contains(&self.nodes), "nodes", &few)?;
        hop_that_takes_time("hop", &self.hop)?;
        must((0.0..=0.5).contains(&self.loss), "loss", "be from 0 to 0.5")?;
        not_zero("fault_every", self.fault_every)?;
        not_zero("down_for", self.down_for)?;
        must(self.down_for < self.fault_every, "down_for", "be shorter than fault_every")?;
        not_zero("cut_for", self.cut_for)?;
        not_zero("duration", self.duration)?;
        must(self.duration <= Self::MAX_DURATION, "duration", "be at most a day")
    }
}
