//! The state of one retried operation: its history and its next action.
//!
//! All executors share this loop, which never waits itself: an executor makes an attempt, reports the result
//! to the state, and performs the action that the state returns.

#[cfg(feature = "tokio")]
use std::future::{Future, poll_fn};
#[cfg(feature = "tokio")]
use std::pin::Pin;
use std::time::Duration;

use fastrand::Rng;
use holdoff_policy::{Attempt, Budget, Class, ClassMap, Decision, Failure, GiveUpReason, SoFar, Ticket};

use crate::StopReason;
use crate::metrics;
use crate::retry::Options;

// With tokio this is tokio's clock, so that tests that pause time pause all of this crate.
#[cfg(feature = "tokio")]
pub(crate) use tokio::time::Instant;

#[cfg(not(feature = "tokio"))]
pub(crate) use std::time::Instant;

/// The next action of an executor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NextAction {
    /// Wait for this time, then make another attempt.
    Wait(Duration),
    /// Refresh the credentials, then make another attempt.
    Refresh,
    /// Stop.
    Stop(StopReason),
}

/// One operation in progress.
pub(crate) struct RetryState<'a> {
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
impl Drop for RetryState<'_> {
    fn drop(&mut self) {
        if let Some(budget) = self.options.budget.filter(|_| self.owes_retry) {
            budget.put_back();
        }
    }
}

impl<'a> RetryState<'a> {
    pub(crate) fn new(options: Options<'a>) -> Self {
        let mut stopwatch = Stopwatch::default();
        if options.earliest_deadline().is_some() {
            stopwatch.start();
        }
        Self::at(options, stopwatch, 0)
    }

    /// Creates a state whose first attempt was already made, without the breaker's admission.
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
    pub(crate) fn begin_attempt(&mut self) -> Result<(), StopReason> {
        self.admit().inspect_err(|stopped| self.stop(*stopped))?;
        self.made = self.so_far.attempt.get();
        self.owes_retry = false;
        Ok(())
    }

    fn admit(&mut self) -> Result<(), StopReason> {
        if self.time_left() == Some(Duration::ZERO) {
            return Err(StopReason::Refused(GiveUpReason::Deadline));
        }
        if let Some(breaker) = self.options.breaker {
            self.ticket = Some(breaker.admit().map_err(|retry_in| StopReason::BreakerOpen { retry_in })?);
        }
        Ok(())
    }

    pub(crate) fn succeeded(&mut self) {
        self.record_health(true);
        self.options.count_success(self.made);
    }

    /// Decides the action after a failed attempt.
    #[cold]
    pub(crate) fn failed(&mut self, failure: &Failure, error_type: &'static str) -> NextAction {
        self.stopwatch.start();
        self.record_failure(failure);
        let decided = self.decide(failure);
        let next = self.paid(decided);
        self.so_far.refreshed |= next == NextAction::Refresh;
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
    pub(crate) fn refresh_failed(&mut self, failure: &Failure, error_type: &'static str) -> NextAction {
        let operation = self.options.operation.unwrap_or(metrics::UNNAMED);
        let operation_id = self.options.operation_id;
        tracing::warn!(operation, operation_id, "failed to refresh the credentials");
        metrics::refresh_failed(operation);
        self.so_far.attempt = Attempt::new(self.made);
        let next = self.decide(failure);
        self.report(failure, error_type, next);
        self.so_far.attempt = self.so_far.attempt.next();
        next
    }

    fn decide(&mut self, failure: &Failure) -> NextAction {
        self.so_far.elapsed = self.elapsed();
        let roll = self.roll();
        match self.options.policy.decide(&self.so_far, failure, roll) {
            Decision::Retry { after } => {
                self.so_far.last_delay = after;
                NextAction::Wait(after)
            }
            Decision::Refresh if self.options.can_refresh => NextAction::Refresh,
            Decision::Refresh => NextAction::Stop(StopReason::Unauthorized),
            Decision::HandOff => NextAction::Stop(StopReason::Conflict),
            Decision::GiveUp(refusal) => NextAction::Stop(StopReason::Refused(refusal)),
            // A later policy may return a decision that this executor does not know; it then stops.
            _ => NextAction::Stop(StopReason::Cancelled),
        }
    }

    /// Charges the budget for another attempt.
    fn paid(&mut self, next: NextAction) -> NextAction {
        if matches!(next, NextAction::Stop(_)) {
            return next;
        }
        if !self.options.budget.is_none_or(Budget::withdraw) {
            return NextAction::Stop(StopReason::Budget);
        }
        self.owes_retry = true;
        next
    }

    /// Records an end that is not caused by a failed attempt: refused by the breaker, or cancelled.
    pub(crate) fn stop(&self, stopped: StopReason) {
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

    fn report(&self, failure: &Failure, error_type: &'static str, next: NextAction) {
        let operation = self.options.operation.unwrap_or(metrics::UNNAMED);
        let operation_id = self.options.operation_id;
        let attempt = self.made;
        let class = failure.class().name();
        match next {
            NextAction::Stop(stopped) => {
                let reason = stopped.name();
                tracing::warn!(operation, operation_id, attempt, class, error_type, reason, "gave up");
                metrics::stopped(operation, stopped);
            }
            NextAction::Wait(delay) => {
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                tracing::debug!(
                    operation,
                    operation_id,
                    attempt,
                    class,
                    error_type,
                    delay_ms,
                    "scheduled a retry"
                );
                metrics::retried(operation, attempt, failure, delay);
            }
            NextAction::Refresh => {
                tracing::debug!(
                    operation,
                    operation_id,
                    attempt,
                    class,
                    error_type,
                    "started a refresh of the credentials"
                );
            }
        }
    }
}

/// Returns the monotonic time.
#[cfg_attr(
    not(feature = "tokio"),
    expect(clippy::disallowed_methods, reason = "the only access to the clock")
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Measures the time since an attempt first had to wait.
///
/// A reading of the clock costs more than the rest of a first attempt that succeeds at once. The stopwatch
/// therefore starts only when the call has to wait, has failed, or a deadline needs the time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stopwatch(Option<Instant>);

impl Stopwatch {
    /// Starts the stopwatch, unless it is running.
    pub(crate) fn start(&mut self) {
        if self.0.is_none() {
            self.0 = Some(now());
        }
    }

    /// Returns the elapsed time; zero before the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.map_or(Duration::ZERO, |started| now().saturating_duration_since(started))
    }

    /// Runs the future, and starts the stopwatch when the future first returns pending.
    #[cfg(feature = "tokio")]
    pub(crate) fn time<O>(
        &mut self,
        mut future: Pin<&mut impl Future<Output = O>>,
    ) -> impl Future<Output = O> {
        poll_fn(move |context| {
            let polled = future.as_mut().poll(context);
            if polled.is_pending() {
                self.start();
            }
            polled
        })
    }
}
