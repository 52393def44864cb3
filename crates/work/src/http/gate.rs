//! The gate of one destination: its concurrency limit, retry budget, rate limit and circuit breaker.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdoff_policy::{Admission, Breaker, BreakerState, Budget, Ticket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::rate::Bucket;
use crate::{Destination, Fault, clock};

/// The wait of a step at a limit that does not tell when there will be capacity.
const NO_ROOM: Duration = Duration::from_secs(1);

/// The gate of one destination, shared by all requests to it.
#[derive(Debug)]
pub(super) struct Gate {
    name: String,
    slots: Arc<Semaphore>,
    budget: Budget,
    pace: Mutex<Pace>,
}

/// The rate limit and the breaker. One lock covers both, so that a refusal by one uses nothing of the other.
#[derive(Debug)]
struct Pace {
    rate: Option<Bucket>,
    breaker: Breaker,
}

/// The permit of one request. A permit that is dropped without a report tells nothing about the destination.
#[derive(Debug)]
pub(super) struct Pass {
    gate: Arc<Gate>,
    ticket: Ticket,
    _slot: OwnedSemaphorePermit,
}

/// The information of a request about the destination's health.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Health {
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
    pub(super) fn new(name: &str, limits: &Destination) -> Self {
        let slots = usize::try_from(limits.concurrency).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let rate = limits.rate.map(|rate| Bucket::new(rate, clock::now()));
        Self {
            name: name.to_owned(),
            slots: Arc::new(Semaphore::new(slots)),
            budget: Budget::new(limits.budget),
            pace: Mutex::new(Pace { rate, breaker: Breaker::new(limits.breaker.clone()) }),
        }
    }

    /// Admits a request, or returns the time after which to come back. It never waits.
    pub(super) fn enter(self: &Arc<Self>, attempt: u32) -> Result<Pass, Fault> {
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            return Err(self.busy(NO_ROOM, "has as many requests as it may have at once"));
        };
        let is_retry = attempt > 1;
        if is_retry && !self.budget.withdraw() {
            return Err(self.busy(NO_ROOM, "has no retries left in its budget"));
        }
        match self.admit(clock::now()) {
            Ok(ticket) => Ok(Pass { gate: Arc::clone(self), ticket, _slot: slot }),
            Err(busy) => {
                if is_retry {
                    self.budget.put_back();
                }
                Err(busy)
            }
        }
    }

    /// Checks the rate limit, then the breaker. The breaker is last, because an admitted request may be its probe.
    fn admit(&self, now: Duration) -> Result<Ticket, Fault> {
        let mut pace = self.pace();
        let wait = pace.rate.as_mut().map_or(Duration::ZERO, |rate| rate.wait(now));
        if !wait.is_zero() {
            return Err(self.busy(wait, "has as many requests a second as it may have"));
        }
        match pace.breaker.admit(now) {
            Admission::Admitted(ticket) => {
                if let Some(rate) = &mut pace.rate {
                    rate.take();
                }
                Ok(ticket)
            }
            Admission::Refused { retry_in } => Err(self.busy(retry_in, "fails too often and is left alone")),
        }
    }

    /// Returns whether the breaker is not closed.
    pub(super) fn is_broken(&self) -> bool {
        self.pace().breaker.state() != BreakerState::Closed
    }

    fn busy(&self, wait: Duration, why: &str) -> Fault {
        Fault::busy(spread(wait, clock::roll()), format!("{} {why}", self.name))
    }

    /// Locks the state. A panic of another thread leaves only counts behind and breaks no invariant, so poisoning is
    /// ignored.
    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pass {
    /// Reports the result of the request.
    pub(super) fn report(self, health: Health) {
        let healthy = match health {
            Health::Served => {
                self.gate.budget.refund();
                true
            }
            Health::Alive => true,
            Health::Failing => false,
            Health::Unknown => return,
        };
        let now = clock::now();
        self.gate.pace().breaker.record(self.ticket, healthy, now, clock::roll());
    }
}

/// Returns a time in `[wait, 2 × wait]`, so that requests that were refused together do not return together.
pub(super) fn spread(wait: Duration, roll: u32) -> Duration {
    let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
    let share = u64::try_from((u128::from(micros) * u128::from(roll)) >> 32).unwrap_or(u64::MAX);
    wait.saturating_add(Duration::from_micros(share))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FaultKind;
    use holdoff_policy::{BreakerOptions, BudgetOptions, Growth, Jitter, Policy};

    fn gate(change: impl FnOnce(&mut Destination)) -> Arc<Gate> {
        let mut limits = Destination::default();
        change(&mut limits);
        Arc::new(Gate::new("h", &limits))
    }

    fn wait(fault: &Fault) -> Duration {
        let FaultKind::Busy { wait } = fault.kind else { panic!("{fault:?}") };
        wait
    }

    #[test]
    fn waits_are_spread_over_once_to_twice() {
        let wait = Duration::from_secs(1);
        assert_eq!(spread(wait, 0), wait);
        assert_eq!(spread(wait, 1 << 31), wait * 3 / 2);
        assert!(spread(wait, u32::MAX) <= wait * 2);
        assert_eq!(spread(Duration::MAX, u32::MAX), Duration::MAX);
    }

    #[test]
    fn a_slot_is_free_again_when_its_pass_is_gone() {
        let gate = gate(|limits| limits.concurrency = 1);
        let pass = gate.enter(1).unwrap();
        let busy = gate.enter(1).unwrap_err();
        assert!(wait(&busy) >= NO_ROOM && wait(&busy) <= NO_ROOM * 2);
        drop(pass);
        gate.enter(1).unwrap();
    }

    #[test]
    fn retries_are_paid_for_and_successes_earn_them() {
        let gate = gate(|limits| limits.budget = BudgetOptions { ratio: 0.5, burst: 1 });
        gate.enter(2).unwrap().report(Health::Failing);
        assert!(gate.enter(2).is_err());
        for _ in 0..2 {
            gate.enter(1).unwrap().report(Health::Served);
        }
        gate.enter(2).unwrap();
    }

    #[test]
    fn a_retry_that_is_turned_away_costs_nothing() {
        let gate = gate(|limits| {
            limits.budget = BudgetOptions { ratio: 0.0, burst: 1 };
            limits.rate = Some(0.001);
        });
        gate.enter(1).unwrap();
        assert!(gate.enter(2).is_err(), "the rate");
        assert_eq!(gate.budget.left(), 1);
    }

    #[test]
    fn a_failing_destination_is_left_alone_without_cost() {
        let gate = gate(|limits| {
            let minute =
                Policy::builder(Growth::constant(Duration::from_secs(60))).cap(Duration::from_secs(60));
            let cool_down = minute.jitter(Jitter::None).build().unwrap();
            limits.breaker = BreakerOptions { min_calls: 2, cool_down, ..BreakerOptions::default() };
            limits.rate = Some(3.0);
        });
        gate.enter(1).unwrap().report(Health::Failing);
        assert!(!gate.is_broken());
        gate.enter(1).unwrap().report(Health::Failing);
        assert!(gate.is_broken());
        let refused: Vec<_> = (0..5).map(|_| gate.enter(2).unwrap_err().message).collect();
        assert!(refused.iter().all(|why| why == "h fails too often and is left alone"), "{refused:?}");
        assert_eq!(gate.budget.left(), 100);
    }
}
