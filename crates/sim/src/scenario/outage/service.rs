//! The path of the requests through the layers that retry and the dependency that they call.

use std::collections::VecDeque;
use std::time::Duration;

use holdoff_policy::{Admission, Breaker, BreakerOptions, Budget, BudgetOptions, Failure, Ticket};

use super::super::so_far;
use super::{GOOD_SECONDS, Outcome, Params, SECOND_US};
use crate::kernel::{EventQueue, SimRng};
use crate::strategy::{Strategy, StrategyDecision};

#[derive(Clone, Copy)]
enum Event {
    Arrive,
    /// The delay of a request has ended.
    Retry(u32),
    /// A worker has finished this call.
    Finished(Call),
    /// The dependency refused this call at once.
    Refused(Call),
    TimedOut(Call),
}

struct Request {
    rng: SimRng,
    states: LayerStates,
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
    arrivals: SimRng,
    /// The arrival time of the last request, with the fraction that the event clock cannot represent.
    arrived_us: f64,
    services: SimRng,
    breaker_chance: SimRng,
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
            arrivals: SimRng::of(seed, 0),
            arrived_us: 0.0,
            services: SimRng::of(seed, 1),
            breaker_chance: SimRng::of(seed, 2),
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
            Event::Retry(request) => self.call(request, now_us),
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
            rng: SimRng::of(self.seed, u64::from(number) + 3),
            states: Layers::begin(now_us),
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
        let (states, rng) = (&mut request.states, &mut request.rng);
        let (decision, refused) = self.layers.fail(states, is_refused_by_breaker, now_us, rng);
        self.outcome.refused_by_budget += refused;
        if let LayerDecision::Retry(wait_us) = decision {
            self.outcome.delays.count(wait_us);
            self.events.push_after(wait_us, Event::Retry(number));
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

/// The largest number of layers.
const MOST: usize = 3;

/// The state of one request in each layer, the outermost first.
#[derive(Clone, Default, Debug)]
struct LayerStates([LayerState; MOST]);

/// The attempts of one layer for one request, as a retrying caller counts them.
#[derive(Clone, Copy, Default, Debug)]
struct LayerState {
    attempts: u32,
    began_us: u64,
    last_delay_us: u64,
}

/// The rules of the layers, and the budget that all requests of a layer share.
struct Layers<'a> {
    strategy: &'a Strategy,
    attempts: u32,
    budgets: Vec<Option<Budget>>,
}

/// The decision of the layers about a failed call.
enum LayerDecision {
    /// A layer makes another attempt after this delay.
    Retry(u64),
    /// The outermost layer has given up: the request has failed.
    Failed,
}

impl<'a> Layers<'a> {
    fn new(params: &Params, strategy: &'a Strategy) -> Self {
        let budget = || {
            let options = params.budget.map(|rule| BudgetOptions { ratio: rule.ratio, burst: rule.burst });
            options.map(Budget::new)
        };
        let layers = (params.layers as usize).clamp(1, MOST);
        let budgets = (0..layers).map(|_| budget()).collect();
        Self { strategy, attempts: params.attempts.max(1), budgets }
    }

    /// Starts a new request in every layer.
    fn begin(now_us: u64) -> LayerStates {
        LayerStates([LayerState { attempts: 1, began_us: now_us, last_delay_us: 0 }; MOST])
    }

    /// Records a success in every layer.
    fn succeed(&self) {
        self.budgets.iter().flatten().for_each(Budget::refund);
    }

    /// Asks the layers from the inside out, starting with the innermost or the one context it.
    ///
    /// Returns the decision, and the number of retries that a budget refused on the way to it.
    fn fail(
        &self,
        states: &mut LayerStates,
        is_refused_by_breaker: bool,
        now_us: u64,
        rng: &mut SimRng,
    ) -> (LayerDecision, u64) {
        let mut refused_by_budget = 0;
        let layers = self.budgets.len();
        // A refusal of the breaker ends the attempts of the innermost layer at once.
        let asked = if is_refused_by_breaker { layers - 1 } else { layers };
        for (layer, budget) in self.budgets.iter().enumerate().take(asked).rev() {
            let Some(state) = states.0.get_mut(layer) else { continue };
            let Some(wait_us) = self.wait_us(state, now_us, rng.roll()) else { continue };
            if budget.as_ref().is_some_and(|budget| !budget.withdraw()) {
                refused_by_budget += 1;
                continue;
            }
            state.attempts += 1;
            state.last_delay_us = wait_us;
            let again_us = now_us.saturating_add(wait_us);
            for inner in states.0.iter_mut().skip(layer + 1) {
                *inner = LayerState { attempts: 1, began_us: again_us, last_delay_us: 0 };
            }
            return (LayerDecision::Retry(wait_us), refused_by_budget);
        }
        (LayerDecision::Failed, refused_by_budget)
    }

    fn wait_us(&self, state: &LayerState, now_us: u64, roll: u32) -> Option<u64> {
        if state.attempts >= self.attempts {
            return None;
        }
        let so_far = so_far(state.attempts, now_us.saturating_sub(state.began_us), state.last_delay_us);
        match self.strategy.next(&so_far, &Failure::transient(), roll) {
            StrategyDecision::Wait(wait_us) => Some(wait_us),
            StrategyDecision::GiveUp(_) => None,
        }
    }
}

/// One call of one request; the calls of a request are numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Call {
    request: u32,
    number: u32,
}

/// The immediate outcome of a call.
enum Reception {
    /// A worker begins at once.
    Begins,
    /// The call waits in the queue.
    Waits,
    /// The dependency is broken or the queue is full.
    Fails,
}

struct Dependency {
    idle: u32,
    queue: VecDeque<Call>,
    queue_limit: usize,
    broken_from_us: u64,
    broken_until_us: u64,
}

impl Dependency {
    fn new(params: &Params) -> Self {
        Self {
            idle: params.workers.max(1),
            queue: VecDeque::new(),
            queue_limit: params.queue_limit as usize,
            broken_from_us: params.outage_start.0,
            broken_until_us: params.outage_end_us(),
        }
    }

    fn is_broken(&self, now_us: u64) -> bool {
        (self.broken_from_us..self.broken_until_us).contains(&now_us)
    }

    fn receive(&mut self, call: Call, now_us: u64) -> Reception {
        if self.is_broken(now_us) {
            return Reception::Fails;
        }
        if self.idle > 0 {
            self.idle -= 1;
            return Reception::Begins;
        }
        if self.queue.len() >= self.queue_limit {
            return Reception::Fails;
        }
        self.queue.push_back(call);
        Reception::Waits
    }

    /// Frees a worker, and returns the next call that it begins.
    fn finish(&mut self) -> Option<Call> {
        let next = self.queue.pop_front();
        self.idle += u32::from(next.is_none());
        next
    }
}
