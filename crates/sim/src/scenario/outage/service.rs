//! The requests' way through layers and dependency.

use holdoff_policy::{Admission, Breaker, BreakerOptions, Ticket};
use std::time::Duration;

use super::dependency::{Call, Dependency, Reception};
use super::layers::{Layers, Standing, Verdict};
use super::{Outcome, Params};
use crate::kernel::{Chance, EventQueue};
use crate::strategy::Strategy;

const SECOND_US: u64 = 1_000_000;
/// So many good seconds in a row are a recovery.
const GOOD_SECONDS: usize = 10;

#[derive(Clone, Copy)]
enum Event {
    Arrive,
    /// A request's wait is over.
    Again(u32),
    /// A worker has finished this call.
    Finished(Call),
    /// The dependency refused this call at once.
    Refused(Call),
    TimedOut(Call),
}

struct Request {
    chance: Chance,
    standing: Standing,
    arrived_us: u64,
    calls: u32,
    /// The call that is waited for; a late answer has another number.
    current: u32,
    ticket: Option<Ticket>,
}

/// How the requests that arrived within one second fared.
#[derive(Clone, Copy, Default)]
struct Second {
    arrived: u64,
    succeeded: u64,
}

pub(super) struct Service<'a> {
    params: &'a Params,
    seed: u64,
    events: EventQueue<Event>,
    requests: Vec<Request>,
    seconds: Vec<Second>,
    layers: Layers<'a>,
    dependency: Dependency,
    breaker: Option<Breaker>,
    arrivals: Chance,
    services: Chance,
    breaker_chance: Chance,
    /// Requests that arrived and calls that were made during the outage.
    during_outage: (u64, u64),
    outcome: Outcome,
}

impl<'a> Service<'a> {
    pub(super) fn new(params: &'a Params, strategy: &'a Strategy, seed: u64) -> Self {
        let breaker = params.breaker.map(|rule| {
            Breaker::new(BreakerOptions {
                failure_ratio: rule.failure_ratio,
                min_calls: rule.min_calls,
                window: rule.window.duration(),
                probes: rule.probes,
                ..BreakerOptions::default()
            })
        });
        Self {
            params,
            seed,
            events: EventQueue::new(),
            requests: Vec::new(),
            seconds: Vec::new(),
            layers: Layers::new(params, strategy),
            dependency: Dependency::new(params),
            breaker,
            arrivals: Chance::of(seed, 0),
            services: Chance::of(seed, 1),
            breaker_chance: Chance::of(seed, 2),
            during_outage: (0, 0),
            outcome: Outcome::default(),
        }
    }

    pub(super) fn run(mut self) -> Outcome {
        self.expect_arrival();
        while let Some((now_us, event)) = self.events.pop_until(self.params.horizon.0) {
            self.outcome.events += 1;
            self.handle(now_us, event);
        }
        self.finish()
    }

    fn handle(&mut self, now_us: u64, event: Event) {
        match event {
            Event::Arrive => {
                self.arrive(now_us);
                self.expect_arrival();
            }
            Event::Again(request) => self.call(request, now_us),
            Event::Finished(call) => {
                if let Some(next) = self.dependency.finish() {
                    self.work_on(next);
                }
                self.answer(call, true, now_us);
            }
            Event::Refused(call) => {
                self.outcome.futile += u64::from(!self.dependency.is_broken(now_us));
                self.answer(call, false, now_us);
            }
            Event::TimedOut(call) if self.is_waited_for(call) => self.answer(call, false, now_us),
            Event::TimedOut(_) => {}
        }
    }

    fn expect_arrival(&mut self) {
        let rate = f64::from(self.params.clients) * self.params.rate_per_client;
        if rate > 0.0 {
            let gap = crate::kernel::Latency::Exponential { mean: mean_gap(rate) };
            self.events.push_after(gap.draw_us(&mut self.arrivals), Event::Arrive);
        }
    }

    fn arrive(&mut self, now_us: u64) {
        let Ok(number) = u32::try_from(self.requests.len()) else { return };
        self.requests.push(Request {
            chance: Chance::of(self.seed, u64::from(number) + 3),
            standing: Layers::begin(now_us),
            arrived_us: now_us,
            calls: 0,
            current: 0,
            ticket: None,
        });
        self.outcome.requests += 1;
        self.during_outage.0 += u64::from(self.dependency.is_broken(now_us));
        if let Some(second) = self.second(now_us) {
            second.arrived += 1;
        }
        self.call(number, now_us);
    }

    /// Makes a request's next call, if the breaker lets it.
    fn call(&mut self, number: u32, now_us: u64) {
        let admission = self.breaker.as_mut().map(|breaker| breaker.admit(Duration::from_micros(now_us)));
        let Some(request) = self.requests.get_mut(number as usize) else { return };
        request.ticket = match admission {
            Some(Admission::Refused { .. }) => {
                self.outcome.refused_by_breaker += 1;
                return self.fail(number, true, now_us);
            }
            Some(Admission::Admitted(ticket)) => Some(ticket),
            None => None,
        };
        request.calls += 1;
        request.current = request.calls;
        let call = Call { request: number, number: request.calls };
        self.outcome.most_calls_per_request = self.outcome.most_calls_per_request.max(request.calls);
        self.outcome.calls += 1;
        self.outcome.calls_over_time.count(now_us);
        self.during_outage.1 += u64::from(self.dependency.is_broken(now_us));
        match self.dependency.receive(call, now_us) {
            Reception::Begins => self.work_on(call),
            Reception::Waits => {}
            Reception::Fails => {
                self.events.push_after(0, Event::Refused(call));
                return;
            }
        }
        self.events.push_after(self.params.timeout.0, Event::TimedOut(call));
    }

    fn work_on(&mut self, call: Call) {
        let service_us = self.params.service.draw_us(&mut self.services);
        self.events.push_after(service_us, Event::Finished(call));
    }

    fn is_waited_for(&self, call: Call) -> bool {
        self.requests.get(call.request as usize).is_some_and(|request| request.current == call.number)
    }

    fn answer(&mut self, call: Call, is_success: bool, now_us: u64) {
        if !self.is_waited_for(call) {
            self.outcome.futile += 1;
            return;
        }
        let Some(request) = self.requests.get_mut(call.request as usize) else { return };
        request.current = 0;
        let arrived_us = request.arrived_us;
        if let (Some(breaker), Some(ticket)) = (&mut self.breaker, request.ticket.take()) {
            breaker.record(ticket, is_success, Duration::from_micros(now_us), self.breaker_chance.roll());
        }
        if !is_success {
            return self.fail(call.request, false, now_us);
        }
        self.layers.succeed();
        self.outcome.succeeded += 1;
        self.outcome.successes_over_time.count(now_us);
        if let Some(second) = self.second(arrived_us) {
            second.succeeded += 1;
        }
    }

    fn fail(&mut self, number: u32, is_refused_by_breaker: bool, now_us: u64) {
        let Some(request) = self.requests.get_mut(number as usize) else { return };
        let (standing, chance) = (&mut request.standing, &mut request.chance);
        let (verdict, refused) = self.layers.fail(standing, is_refused_by_breaker, now_us, chance);
        self.outcome.refused_by_budget += refused;
        if let Verdict::Again(wait_us) = verdict {
            self.outcome.delays.count(wait_us);
            self.events.push_after(wait_us, Event::Again(number));
        }
    }

    fn second(&mut self, at_us: u64) -> Option<&mut Second> {
        let number = usize::try_from(at_us / SECOND_US).ok()?;
        if self.seconds.len() <= number {
            self.seconds.resize(number + 1, Second::default());
        }
        self.seconds.get_mut(number)
    }

    fn finish(mut self) -> Outcome {
        let end_us = self.params.outage_start.0.saturating_add(self.params.outage_length.0);
        let first = usize::try_from(end_us.div_ceil(SECOND_US)).unwrap_or(usize::MAX);
        let after = self.seconds.get(first..).unwrap_or_default();
        let good = after.windows(GOOD_SECONDS).position(|seconds| seconds.iter().all(Second::is_good));
        self.outcome.has_recovered = good.is_some();
        self.outcome.recovery_us = match good {
            Some(seconds) => ((first + seconds) as u64 * SECOND_US).saturating_sub(end_us),
            None => self.params.horizon.0.saturating_sub(end_us),
        };
        self.outcome.amplification = share(self.during_outage.1, self.during_outage.0);
        self.outcome.goodput = share(self.outcome.succeeded, self.outcome.requests);
        self.outcome
    }
}

impl Second {
    fn is_good(&self) -> bool {
        self.succeeded * 10 >= self.arrived * 9
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; the cast saturates")]
fn mean_gap(rate_per_sec: f64) -> crate::Micros {
    // At least one, or time would stand still.
    crate::Micros(((1_000_000.0 / rate_per_sec + 0.5) as u64).max(1))
}

#[expect(clippy::cast_precision_loss, reason = "counts of a simulation stay far below 2^52")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
