//! The state of one retried operation: its history and its next action.
//!
//! All executors share this loop, which never waits itself: an executor makes an attempt, reports the result
//! to the course, and performs the action that the course returns.

use std::time::Duration;

use fastrand::Rng;
use holdoff_policy::{Attempt, Budget, Class, ClassMap, Decision, Failure, Refusal, SoFar, Ticket};

use crate::Stopped;
use crate::clock::Stopwatch;
use crate::metrics;
use crate::retry::Options;

/// The next action of an executor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Wait for this time, then make another attempt.
    Wait(Duration),
    /// Refresh the credentials, then make another attempt.
    Refresh,
    /// Stop.
    Stop(Stopped),
}

/// One operation in progress.
pub(crate) struct Course<'a> {
    options: Options<'a>,
    so_far: SoFar,
    stopwatch: Stopwatch,
    rolls: Option<Rng>,
    ticket: Option<Ticket>,
    made: u32,
    /// The budget was charged for a retry that is not made yet.
    owes_retry: bool,
}

/// Returns a charged retry that was not made to the budget, however the operation ends.
impl Drop for Course<'_> {
    fn drop(&mut self) {
        if let Some(budget) = self.options.budget.filter(|_| self.owes_retry) {
            budget.put_back();
        }
    }
}

impl<'a> Course<'a> {
    pub(crate) fn new(options: Options<'a>) -> Self {
        let mut stopwatch = Stopwatch::default();
        if options.earliest_deadline().is_some() {
            stopwatch.start();
        }
        Self::at(options, stopwatch, 0)
    }

    /// Creates a course whose first attempt was already made, without the breaker's admission.
    #[cfg(feature = "tokio")]
    pub(crate) fn resumed(options: Options<'a>, stopwatch: Stopwatch) -> Self {
        Self::at(options, stopwatch, 1)
    }

    fn at(options: Options<'a>, stopwatch: Stopwatch, made: u32) -> Self {
        let so_far = SoFar { deadline: options.deadline, ..SoFar::default() };
        Self { options, so_far, stopwatch, rolls: None, ticket: None, made, owes_retry: false }
    }

    pub(crate) fn stopwatch(&mut self) -> &mut Stopwatch {
        &mut self.stopwatch
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.stopwatch.elapsed()
    }

    /// Returns the number of attempts.
    pub(crate) fn made(&self) -> u32 {
        self.made
    }

    pub(crate) fn classes(&self) -> &'a ClassMap {
        self.options.classes
    }

    /// Returns the time limit of the next attempt or refresh, if there is one.
    #[cfg(feature = "tokio")]
    pub(crate) fn attempt_limit(&self) -> Option<Duration> {
        [self.options.attempt_timeout, self.time_left()].into_iter().flatten().min()
    }

    fn time_left(&self) -> Option<Duration> {
        self.options.earliest_deadline().map(|deadline| deadline.saturating_sub(self.elapsed()))
    }

    /// Checks the deadline and the breaker before the next attempt.
    pub(crate) fn begin_attempt(&mut self) -> Result<(), Stopped> {
        self.admit().inspect_err(|stopped| self.stop(*stopped))?;
        self.made = self.so_far.attempt.get();
        self.owes_retry = false;
        Ok(())
    }

    fn admit(&mut self) -> Result<(), Stopped> {
        if self.time_left() == Some(Duration::ZERO) {
            return Err(Stopped::Refused(Refusal::Deadline));
        }
        if let Some(breaker) = self.options.breaker {
            self.ticket = Some(breaker.admit().map_err(|retry_in| Stopped::BreakerOpen { retry_in })?);
        }
        Ok(())
    }

    pub(crate) fn succeeded(&mut self) {
        self.record_health(true);
        self.options.count_success(self.made);
    }

    /// Decides the action after a failed attempt.
    #[cold]
    pub(crate) fn failed(&mut self, failure: &Failure, error_type: &'static str) -> Next {
        self.stopwatch.start();
        self.record_failure(failure);
        let decided = self.decide(failure);
        let next = self.paid(decided);
        self.so_far.refreshed |= next == Next::Refresh;
        self.report(failure, error_type, next);
        self.so_far.attempt = self.so_far.attempt.next();
        next
    }

    /// Records a refresh of the credentials: the next attempt follows at once.
    pub(crate) fn refreshed(&self, failure: &Failure) {
        let operation = self.options.operation.unwrap_or(metrics::UNNAMED);
        metrics::retried(operation, self.made, failure, Duration::ZERO);
    }

    /// Decides the action after a failed refresh: the wait of a second refusal.
    #[cold]
    pub(crate) fn refresh_failed(&mut self, failure: &Failure, error_type: &'static str) -> Next {
        let operation = self.options.operation.unwrap_or(metrics::UNNAMED);
        let operation_id = self.options.operation_id;
        tracing::warn!(operation, operation_id, "the credentials could not be refreshed");
        metrics::refresh_failed(operation);
        self.so_far.attempt = Attempt::new(self.made);
        let next = self.decide(failure);
        self.report(failure, error_type, next);
        self.so_far.attempt = self.so_far.attempt.next();
        next
    }

    fn decide(&mut self, failure: &Failure) -> Next {
        self.so_far.elapsed = self.elapsed();
        let roll = self.roll();
        match self.options.policy.decide(&self.so_far, failure, roll) {
            Decision::Retry { after } => {
                self.so_far.last_delay = after;
                Next::Wait(after)
            }
            Decision::Refresh if self.options.can_refresh => Next::Refresh,
            Decision::Refresh => Next::Stop(Stopped::Unauthorized),
            Decision::HandOff => Next::Stop(Stopped::Conflict),
            Decision::GiveUp(refusal) => Next::Stop(Stopped::Refused(refusal)),
            // A later policy may return a decision that this executor does not know; it then stops.
            _ => Next::Stop(Stopped::Cancelled),
        }
    }

    /// Charges the budget for another attempt.
    fn paid(&mut self, next: Next) -> Next {
        if matches!(next, Next::Stop(_)) {
            return next;
        }
        if !self.options.budget.is_none_or(Budget::withdraw) {
            return Next::Stop(Stopped::Budget);
        }
        self.owes_retry = true;
        next
    }

    /// Records an end that is not caused by a failed attempt: refused by the breaker, or cancelled.
    pub(crate) fn stop(&self, stopped: Stopped) {
        let operation = self.options.operation.unwrap_or(metrics::UNNAMED);
        let (attempt, reason) = (self.made, stopped.name());
        tracing::warn!(operation, operation_id = self.options.operation_id, attempt, reason, "gave up");
        metrics::stopped(operation, stopped);
    }

    fn record_failure(&mut self, failure: &Failure) {
        if failure.is_local() {
            // The server was not contacted, so the breaker records nothing.
            self.ticket = None;
            return;
        }
        self.record_health(!matches!(failure.class(), Class::Transient | Class::Timeout));
    }

    fn record_health(&mut self, healthy: bool) {
        if let (Some(breaker), Some(ticket)) = (self.options.breaker, self.ticket.take()) {
            let roll = if healthy { 0 } else { self.roll() };
            breaker.record(ticket, healthy, roll);
        }
    }

    /// Draws a roll. Each call has its own random number generator, created at the first roll.
    fn roll(&mut self) -> u32 {
        let seed = self.options.seed;
        self.rolls.get_or_insert_with(|| seed.map_or_else(Rng::new, Rng::with_seed)).u32(..)
    }

    fn report(&self, failure: &Failure, error_type: &'static str, next: Next) {
        let operation = self.options.operation.unwrap_or(metrics::UNNAMED);
        let operation_id = self.options.operation_id;
        let attempt = self.made;
        let class = failure.class().name();
        match next {
            Next::Stop(stopped) => {
                let reason = stopped.name();
                tracing::warn!(operation, operation_id, attempt, class, error_type, reason, "gave up");
                metrics::stopped(operation, stopped);
            }
            Next::Wait(delay) => {
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                tracing::debug!(
                    operation,
                    operation_id,
                    attempt,
                    class,
                    error_type,
                    delay_ms,
                    "trying again"
                );
                metrics::retried(operation, attempt, failure, delay);
            }
            Next::Refresh => {
                tracing::debug!(
                    operation,
                    operation_id,
                    attempt,
                    class,
                    error_type,
                    "refreshing credentials"
                );
                metrics::retried(operation, attempt, failure, Duration::ZERO);
            }
        }
    }
}
