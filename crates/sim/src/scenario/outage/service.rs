//! The path of the requests through layers and dependency.

use holdoff_policy::{Admission, Breaker, BreakerOptions, Ticket};
use std::time::Duration;

use super::dependency::{Call, Dependency, Reception};
use super::layers::{Layers, Standing, Verdict};
use super::{GOOD_SECONDS, Outcome, Params, SECOND_US};
use crate::kernel::{Chance, EventQueue};
use crate::strategy::Strategy;

#[derive(Clone, Copy)]
enum Event {
    Arrive,
    /// The delay of a request has ended.
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
    /// The number of the awaited call; a late answer has another number.
    current: u32,
    ticket: Option<Ticket>,
}

/// The results of the requests that arrived within one second.
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
    /// The arrival time of the last request, with the fraction that the event clock cannot represent.
    arrived_us: f64,
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
            arrived_us: 0.0,
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
            // At least a nanosecond, or the time would not advance.
            let mean_gap_us = (1_000_000.0 / rate).max(0.001);
            self.arrived_us += self.arrivals.exponential(mean_gap_us);
            self.events.push(whole(self.arrived_us), Event::Arrive);
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

    /// Makes the next call of a request, if the breaker allows it.
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
        let end_us = self.params.outage_end_us();
        let good_from = self.good_from(end_us.div_ceil(SECOND_US));
        self.outcome.has_recovered = good_from.is_some();
        self.outcome.recovery_us = match good_from {
            Some(second) => (second * SECOND_US).saturating_sub(end_us),
            None => self.params.horizon.0.saturating_sub(end_us),
        };
        self.outcome.amplification = share(self.during_outage.1, self.during_outage.0);
        self.outcome.goodput = share(self.outcome.succeeded, self.outcome.requests);
        self.outcome
    }

    /// Returns the start of the first [`GOOD_SECONDS`] consecutive good seconds, not before `first`.
    ///
    /// The last seconds are not judged: the run ended before all of their calls had to be answered.
    fn good_from(&self, first: u64) -> Option<u64> {
        let judged = self.params.horizon.0.saturating_sub(self.params.timeout.0) / SECOND_US;
        let mut in_a_row = 0;
        for number in first..judged {
            in_a_row = if self.is_good(number) { in_a_row + 1 } else { 0 };
            if in_a_row == GOOD_SECONDS {
                return Some(number + 1 - GOOD_SECONDS);
            }
        }
        None
    }

    /// Returns whether a second was good. A second without requests counts as good.
    fn is_good(&self, number: u64) -> bool {
        let second = usize::try_from(number).ok().and_then(|number| self.seconds.get(number));
        second.is_none_or(Second::is_good)
    }
}

impl Second {
    fn is_good(&self) -> bool {
        self.succeeded * 10 >= self.arrived * 9
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; the cast saturates")]
fn whole(us: f64) -> u64 {
    (us + 0.5) as u64
}

#[expect(clippy::cast_precision_loss, reason = "counts of a simulation stay far below 2^52")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
