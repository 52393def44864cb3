//! The gates of all destinations. A gate has the concurrency limit, the retry budget, the rate limit and the circuit
//! breaker of one destination.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{
    Admission, Breaker, BreakerState, Budget, Ticket, TokenBucket, TokenRate, as_micros_u64,
};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::Url;

use crate::{DestinationLimits, Fault, HttpSettings, clock};

/// The maximum number of destinations that are remembered.
const MAX_GATES: usize = 10_000;
/// A destination that was not called for this long does not count as broken.
const RECENT: Duration = Duration::from_secs(600);

/// The gates of all destinations that were called recently.
pub(super) struct Destinations {
    limits: BTreeMap<String, DestinationLimits>,
    other: DestinationLimits,
    gates: Mutex<HashMap<String, KnownGate>>,
    room: usize,
}

struct KnownGate {
    gate: Arc<Gate>,
    used_at: Duration,
}

impl Destinations {
    pub(super) fn new(settings: &HttpSettings) -> Self {
        let limits = settings.destinations.iter();
        Self {
            limits: limits.map(|(name, limits)| (name.to_ascii_lowercase(), limits.clone())).collect(),
            other: settings.destination.clone(),
            gates: Mutex::default(),
            room: MAX_GATES,
        }
    }

    /// Returns the gate of `destination`, which is the destination of `url`. Creates the gate if there is none. `http://h`
    /// and `https://h` are two servers, so each has its own gate.
    pub(super) fn gate(&self, destination: &str, url: &Url) -> Result<Arc<Gate>, Fault> {
        let now = clock::now();
        let name = format!("{}://{destination}", url.scheme());
        let mut gates = self.gates.lock();
        if let Some(known) = gates.get_mut(&name) {
            known.used_at = now;
            return Ok(Arc::clone(&known.gate));
        }
        if gates.len() >= self.room && !forget_idle(&mut gates) {
            return Err(Fault::busy(
                spread(BUSY_WAIT, clock::roll()),
                "requests to too many destinations are in progress",
            ));
        }
        let gate = Arc::new(Gate::new(&name, self.limits_of(url)));
        gates.insert(name, KnownGate { gate: Arc::clone(&gate), used_at: now });
        Ok(gate)
    }

    /// Returns the names of the recently called destinations whose breakers are not closed.
    pub(super) fn broken(&self) -> Vec<String> {
        let since = clock::now().saturating_sub(RECENT);
        let gates = self.gates.lock();
        let is_broken = |known: &KnownGate| known.used_at >= since && known.gate.is_broken();
        let mut names: Vec<String> =
            gates.iter().filter(|(_, known)| is_broken(known)).map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the limits of the host and port, else of the host, else of all other destinations.
    fn limits_of(&self, url: &Url) -> &DestinationLimits {
        let host = url.host_str().unwrap_or_default().trim_end_matches('.');
        let with_port =
            url.port_or_known_default().and_then(|port| self.limits.get(&format!("{host}:{port}")));
        with_port.or_else(|| self.limits.get(host)).unwrap_or(&self.other)
    }
}

/// Removes the tenth that was idle for longest, so that this happens rarely. Returns `false` if none is idle.
fn forget_idle(gates: &mut HashMap<String, KnownGate>) -> bool {
    let is_idle = |known: &KnownGate| Arc::strong_count(&known.gate) == 1;
    let mut times: Vec<Duration> =
        gates.values().filter(|known| is_idle(known)).map(|known| known.used_at).collect();
    times.sort_unstable();
    let Some(oldest) = times.get(gates.len() / 10).or(times.last()).copied() else { return false };
    gates.retain(|_, known| !is_idle(known) || known.used_at > oldest);
    true
}

/// The wait of a step at a limit that does not tell when there will be capacity.
const BUSY_WAIT: Duration = Duration::from_secs(1);

/// The gate of one destination, shared by all requests to it.
#[derive(Debug)]
pub(super) struct Gate {
    name: String,
    slots: Arc<Semaphore>,
    budget: Budget,
    throttle: Mutex<Throttle>,
}

/// The rate limit, the breaker, and the retries that an exhausted budget still allows. One lock covers all, so that a
/// refusal by one uses nothing of the others.
#[derive(Debug)]
struct Throttle {
    rate: Option<(TokenRate, TokenBucket)>,
    /// A durable step has no other caller who could earn the budget's next retry. Without a floor, steps that have
    /// used up the budget would wait for ever, because each of their calls is a retry.
    floor: (TokenRate, TokenBucket),
    breaker: Breaker,
}

/// The permit of one request. A permit that is dropped without a report tells nothing about the destination.
#[derive(Debug)]
pub(super) struct GatePermit {
    gate: Arc<Gate>,
    ticket: Ticket,
    _slot: OwnedSemaphorePermit,
}

/// The information of a request about the destination's health.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DestinationHealth {
    /// The destination returned an expected response.
    Served,
    /// The destination responded, but not as expected.
    Alive,
    /// The destination did not respond, or reported a failure of its own.
    Failing,
    /// No information.
    Unknown,
}

impl Gate {
    pub(super) fn new(name: &str, limits: &DestinationLimits) -> Self {
        let slots = usize::try_from(limits.concurrency).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let rate = limits.rate.map(|rate| (TokenRate::per_second(rate), TokenBucket::default()));
        Self {
            name: name.to_owned(),
            slots: Arc::new(Semaphore::new(slots)),
            budget: Budget::new(limits.budget),
            throttle: Mutex::new(Throttle {
                rate,
                floor: (TokenRate::per_second(limits.retry_floor), TokenBucket::default()),
                breaker: Breaker::new(limits.breaker.clone()),
            }),
        }
    }

    /// Admits a request, or returns the time after which to come back. It never waits.
    pub(super) fn try_enter(self: &Arc<Self>, attempt: u32) -> Result<GatePermit, Fault> {
        self.try_enter_at(attempt, clock::now())
    }

    fn try_enter_at(self: &Arc<Self>, attempt: u32, now: Duration) -> Result<GatePermit, Fault> {
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            return Err(self.busy(BUSY_WAIT, "is at its limit of concurrent requests"));
        };
        let ticket = self.admit(attempt > 1, now)?;
        Ok(GatePermit { gate: Arc::clone(self), ticket, _slot: slot })
    }

    /// Checks the rate limit, the retry budget, then the breaker. The breaker is last, because an admitted request may
    /// be its probe.
    fn admit(&self, is_retry: bool, now: Duration) -> Result<Ticket, Fault> {
        let mut throttle = self.throttle.lock();
        let Throttle { rate, floor: (floor, floor_bucket), breaker } = &mut *throttle;
        let wait = rate.as_ref().map_or(Duration::ZERO, |(rate, bucket)| bucket.wait(rate, now));
        if !wait.is_zero() {
            return Err(self.busy(wait, "is at its rate limit"));
        }
        // Only this function withdraws, under the lock.
        let is_over_budget = is_retry && self.budget.left() == 0;
        let wait = if is_over_budget { floor_bucket.wait(floor, now) } else { Duration::ZERO };
        if !wait.is_zero() {
            return Err(self.busy(wait, "has an exhausted retry budget"));
        }
        match breaker.admit(now) {
            Admission::Admitted(ticket) => {
                // The lock is held, so the tokens are still available.
                if let Some((rate, bucket)) = rate {
                    let _ = bucket.take(rate, now);
                }
                if is_over_budget {
                    let _ = floor_bucket.take(floor, now);
                } else if is_retry {
                    self.budget.withdraw();
                }
                Ok(ticket)
            }
            Admission::Refused { retry_in } => Err(self.busy(retry_in, "has an open circuit breaker")),
        }
    }

    /// Returns whether the breaker is not closed.
    pub(super) fn is_broken(&self) -> bool {
        self.throttle.lock().breaker.state() != BreakerState::Closed
    }

    fn busy(&self, wait: Duration, why: &str) -> Fault {
        Fault::busy(spread(wait, clock::roll()), format!("{} {why}", self.name))
    }
}

impl GatePermit {
    /// Reports the result of the request.
    pub(super) fn report(self, health: DestinationHealth) {
        self.report_at(health, clock::now());
    }

    fn report_at(self, health: DestinationHealth, now: Duration) {
        let healthy = match health {
            DestinationHealth::Served => {
                self.gate.budget.refund();
                true
            }
            DestinationHealth::Alive => true,
            DestinationHealth::Failing => false,
            DestinationHealth::Unknown => return,
        };
        self.gate.throttle.lock().breaker.record(self.ticket, healthy, now, clock::roll());
    }
}

/// Returns a time in `[wait, 2 × wait]`, so that requests that were refused together do not return together.
fn spread(wait: Duration, roll: u32) -> Duration {
    let micros = as_micros_u64(wait);
    let share = u64::try_from((u128::from(micros) * u128::from(roll)) >> 32).unwrap_or(u64::MAX);
    wait.saturating_add(Duration::from_micros(share))
}

#[cfg(test)]
mod tests {
    use holdoff_policy::{BreakerOptions, BudgetOptions, Growth, Jitter, Policy};

    use super::*;
    use crate::fault::FaultKind;

    fn destinations(room: usize) -> Destinations {
        Destinations { room, ..Destinations::new(&HttpSettings::default()) }
    }

    fn gate(all: &Destinations, host: &str) -> Result<Arc<Gate>, Fault> {
        all.gate(host, &Url::parse(&format!("http://{host}/")).unwrap())
    }

    #[test]
    fn limits_by_port_precede_limits_by_host() {
        let limits = |concurrency| DestinationLimits { concurrency, ..DestinationLimits::default() };
        let mut settings = HttpSettings { destination: limits(1), ..HttpSettings::default() };
        settings.destinations.insert("A.example".into(), limits(2));
        settings.destinations.insert("a.example:8080".into(), limits(3));
        settings.destinations.insert("b.example:443".into(), limits(4));
        let all = Destinations::new(&settings);
        let found = |url: &str| all.limits_of(&Url::parse(url).unwrap()).concurrency;
        assert_eq!(found("http://a.example/"), 2);
        assert_eq!(found("http://a.example.:8080/"), 3);
        assert_eq!(found("https://b.example/"), 4);
        assert_eq!(found("http://b.example/"), 1);
    }

    #[test]
    fn a_gate_belongs_to_a_scheme_a_host_and_a_port() {
        let all = destinations(10);
        let gate = |url: &str| {
            let url = Url::parse(url).unwrap();
            all.gate(&super::super::request::destination(&url), &url).unwrap()
        };
        let plain = gate("http://h/a");
        assert!(Arc::ptr_eq(&plain, &gate("http://h:80/b")));
        for other in ["https://h/", "http://h:443/", "https://h:80/"] {
            assert!(!Arc::ptr_eq(&plain, &gate(other)), "{other} has the breaker of http://h");
        }
    }

    #[test]
    fn idle_gates_are_evicted_and_busy_ones_are_kept() {
        let all = destinations(3);
        let held = gate(&all, "a").unwrap();
        for host in ["b", "c", "d", "e", "f"] {
            gate(&all, host).unwrap();
            assert!(all.gates.lock().len() <= 3);
        }
        assert!(Arc::ptr_eq(&held, &gate(&all, "a").unwrap()));
    }

    #[test]
    fn a_new_destination_waits_if_all_gates_are_busy() {
        let all = destinations(2);
        let held = [gate(&all, "a").unwrap(), gate(&all, "b").unwrap()];
        assert!(gate(&all, "c").is_err());
        drop(held);
        gate(&all, "c").unwrap();
    }

    fn gate_with(change: impl FnOnce(&mut DestinationLimits)) -> Arc<Gate> {
        let mut limits = DestinationLimits::default();
        change(&mut limits);
        Arc::new(Gate::new("h", &limits))
    }

    fn wait(fault: &Fault) -> Duration {
        let FaultKind::Busy { wait } = fault.kind else { panic!("{fault:?}") };
        wait
    }

    #[test]
    fn waits_are_spread_between_one_and_two_times() {
        let wait = Duration::from_secs(1);
        assert_eq!(spread(wait, 0), wait);
        assert_eq!(spread(wait, 1 << 31), wait * 3 / 2);
        assert!(spread(wait, u32::MAX) <= wait * 2);
        assert_eq!(spread(Duration::MAX, u32::MAX), Duration::MAX);
    }

    #[test]
    fn dropping_a_permit_frees_its_slot() {
        let gate = gate_with(|limits| limits.concurrency = 1);
        let pass = gate.try_enter(1).unwrap();
        let busy = gate.try_enter(1).unwrap_err();
        assert!(wait(&busy) >= BUSY_WAIT && wait(&busy) <= BUSY_WAIT * 2);
        drop(pass);
        gate.try_enter(1).unwrap();
    }

    #[test]
    fn retries_use_the_budget_and_successes_refill_it() {
        let gate = gate_with(|limits| {
            limits.budget = BudgetOptions { ratio: 0.5, burst: 1 };
            limits.retry_floor = 0.001;
        });
        for _ in 0..2 {
            gate.try_enter(2).unwrap().report(DestinationHealth::Failing);
        }
        assert!(gate.try_enter(2).is_err(), "the budget and its floor");
        for _ in 0..2 {
            gate.try_enter(1).unwrap().report(DestinationHealth::Served);
        }
        gate.try_enter(2).unwrap();
    }

    /// Ten steps, each of which has failed before, call a destination that answers after a thousand failed calls.
    #[test]
    fn steps_that_used_up_the_budget_succeed_soon_after_the_destination_recovers() {
        let gate = gate_with(|_| {});
        let mut due: Vec<Duration> = vec![Duration::ZERO; 10];
        let (mut failed, mut now, mut recovered) = (0, Duration::ZERO, Duration::ZERO);
        while !due.is_empty() {
            now += Duration::from_millis(100);
            due.retain_mut(|due| {
                if *due > now {
                    return true;
                }
                match gate.try_enter_at(2, now) {
                    Ok(permit) if failed == 1000 => {
                        permit.report_at(DestinationHealth::Served, now);
                        return false;
                    }
                    Ok(permit) => {
                        permit.report_at(DestinationHealth::Failing, now);
                        (failed, recovered) = (failed + 1, now);
                        *due = now + Duration::from_secs(1);
                    }
                    Err(busy) => *due = now + wait(&busy).max(Duration::from_secs(1)),
                }
                true
            });
            let since = now.saturating_sub(recovered);
            assert!(since < Duration::from_secs(20), "{} steps wait after {failed} failures", due.len());
        }
        assert_eq!(failed, 1000);
    }

    #[test]
    fn a_refused_retry_uses_no_budget() {
        let gate = gate_with(|limits| {
            limits.budget = BudgetOptions { ratio: 0.0, burst: 1 };
            limits.rate = Some(0.001);
        });
        gate.try_enter(1).unwrap();
        assert!(gate.try_enter(2).is_err(), "the rate limit");
        assert_eq!(gate.budget.left(), 1);
    }

    #[test]
    fn an_open_breaker_uses_no_budget() {
        let gate = gate_with(|limits| {
            let minute =
                Policy::builder(Growth::constant(Duration::from_secs(60))).cap(Duration::from_secs(60));
            let cool_down = minute.jitter(Jitter::None).build().unwrap();
            limits.breaker = BreakerOptions { min_calls: 2, cool_down, ..BreakerOptions::default() };
            limits.rate = Some(3.0);
        });
        gate.try_enter(1).unwrap().report(DestinationHealth::Failing);
        assert!(!gate.is_broken());
        gate.try_enter(1).unwrap().report(DestinationHealth::Failing);
        assert!(gate.is_broken());
        let refused: Vec<_> = (0..5).map(|_| gate.try_enter(2).unwrap_err().message).collect();
        assert!(refused.iter().all(|why| why == "h has an open circuit breaker"), "{refused:?}");
        assert_eq!(gate.budget.left(), 100);
    }
}
