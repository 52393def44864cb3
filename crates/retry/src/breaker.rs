//! A circuit breaker with a clock, shared by all callers of the same dependency.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdoff_policy::{Admission, Breaker, BreakerOptions, BreakerState, Ticket};

use crate::clock::{self, Instant};

/// A [`Breaker`] with a clock, shared by all callers of the same dependency.
#[derive(Debug)]
pub struct SharedBreaker {
    breaker: Mutex<Breaker>,
    epoch: Instant,
}

impl SharedBreaker {
    /// Creates a closed breaker.
    pub fn new(options: BreakerOptions) -> Self {
        Self { breaker: Mutex::new(Breaker::new(options)), epoch: clock::now() }
    }

    /// Returns the state.
    pub fn state(&self) -> BreakerState {
        self.lock().state()
    }

    pub(crate) fn admit(&self) -> Result<Ticket, Duration> {
        let now = self.now();
        match self.lock().admit(now) {
            Admission::Admitted(ticket) => Ok(ticket),
            Admission::Refused { retry_in } => Err(retry_in),
        }
    }

    pub(crate) fn record(&self, ticket: Ticket, succeeded: bool, roll: u32) {
        let now = self.now();
        self.lock().record(ticket, succeeded, now, roll);
    }

    fn now(&self) -> Duration {
        clock::now().saturating_duration_since(self.epoch)
    }

    /// Ignores poisoning: a panic elsewhere leaves the counts valid.
    fn lock(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
