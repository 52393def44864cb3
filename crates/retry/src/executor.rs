//! The executor: a state machine that every entry point runs.
//!
//! A first attempt that succeeds runs without the clock, a lock or an allocation. The rest is set up when it is needed: the
//! history of an operation after its first failure, timers when there is a limit.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fastrand::Rng;
use holdoff_policy::{Attempt, Budget, Class, ClassMap, Decision, Failure, GiveUpReason, SoFar, Ticket};

use crate::call::{Attempts, CallOptions, Hook, Judge, Mode, RetryCall, Retrying};
use crate::metrics::{self, Operation};
use crate::retry::{RetryBy, Setup};
use crate::{JudgedReport, Sleeper, StopReason};

/// The tables for callers without a policy file.
static BUILT_IN: ClassMap = ClassMap::new();

type SleepOf<P> = <<P as RetryBy>::Sleeper as Sleeper>::Sleep;

pin_project_lite::pin_project! {
    /// The current activity of a call.
    #[project = PhaseProjection]
    pub(crate) enum Phase<F, S> {
        /// The next attempt begins.
        Begin,
        /// An attempt runs.
        Attempt { #[pin] attempt: F },
        /// The credentials are refreshed.
        Refresh { refresh: Pin<Box<dyn Future<Output = bool> + Send>>, failure: Failure },
        /// The call waits. Boxed, so that the future of a call that succeeds at once stays small.
        Wait { sleep: Pin<Box<S>> },
        /// The delay is zero, so the task only yields once.
        Yield { yielded: bool },
    }
}

/// The next action after a failed attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NextAction {
    Wait(Duration),
    Refresh,
    Stop(StopReason),
}

/// A call and its state.
pub(crate) struct Core<'a, P: RetryBy, A: Attempts, J, H> {
    pub(crate) by: P,
    pub(crate) call: A,
    pub(crate) judge: J,
    pub(crate) hook: H,
    pub(crate) options: Option<Box<CallOptions<'a>>>,
    /// The number of attempts.
    made: u32,
    /// The generation of the credentials of the current attempt.
    credentials: u64,
    /// The moment at which the call first had to wait, or with a deadline at which it began. A reading of the clock costs more
    /// than the rest of a first attempt that succeeds at once.
    started: Option<Duration>,
    ticket: Option<Ticket>,
    /// The time limit of the current attempt or refresh.
    limit: Option<Pin<Box<SleepOf<P>>>>,
    history: Option<Box<History<A::Outcome>>>,
}

/// The history of an operation whose first attempt failed.
struct History<O> {
    so_far: SoFar,
    rolls: Option<Rng>,
    charge: Option<Charge>,
    /// The last outcome that an attempt returned.
    last: Option<O>,
    /// Whether the last attempt was cut off.
    timed_out: bool,
}

/// A retry that the budget was charged for. If it is not made, it returns to the budget, however the operation ends.
struct Charge(Option<Arc<Budget>>);

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(budget) = &self.0 {
            budget.put_back();
        }
    }
}

impl<P, A, J, H, M> Future for RetryCall<'_, P, A, J, H, M>
where
    P: RetryBy,
    A: Attempts,
    J: Judge<A::Outcome>,
    H: Hook<A::Outcome>,
    M: Mode<A::Outcome>,
{
    type Output = M::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<M::Output> {
        let this = self.project();
        let (core, mut phase) = (this.core, this.phase);
        loop {
            if core.is_cancelled(context) {
                core.record_stop(StopReason::Cancelled);
                if let Some(output) = core.end::<M>(StopReason::Cancelled) {
                    return Poll::Ready(output);
                }
            }
            let failure = match phase.as_mut().project() {
                PhaseProjection::Begin => {
                    match core.begin(M::CUTS) {
                        Err(stopped) if M::CUTS || core.history.is_some() => {
                            core.record_stop(stopped);
                            if let Some(output) = core.end::<M>(stopped) {
                                return Poll::Ready(output);
                            }
                        }
                        _ => {}
                    }
                    if A::BLOCKS {
                        core.start();
                    }
                    core.made = core.made.saturating_add(1);
                    let attempt = core.call.attempt();
                    phase.set(Phase::Attempt { attempt });
                    continue;
                }
                PhaseProjection::Attempt { attempt } => match attempt.poll(context) {
                    Poll::Ready(outcome) => match core.judge.failure(&outcome, classes(core.by.setup())) {
                        None => return Poll::Ready(core.succeeded::<M>(outcome)),
                        Some(failure) => {
                            core.history().keep(Some(outcome));
                            failure
                        }
                    },
                    Poll::Pending => {
                        core.start();
                        if !core.is_late(context) {
                            return Poll::Pending;
                        }
                        core.history().keep(None);
                        Failure::new(Class::Timeout)
                    }
                },
                PhaseProjection::Refresh { refresh, failure } => {
                    let failure = *failure;
                    let refreshed = match refresh.as_mut().poll(context) {
                        Poll::Ready(refreshed) => refreshed,
                        Poll::Pending if core.is_late(context) => false,
                        Poll::Pending => return Poll::Pending,
                    };
                    let next = core.refreshed(refreshed, &failure, J::error_type());
                    match core.proceed(next, &failure) {
                        Ok(next) => phase.set(next),
                        Err(stopped) => match core.end::<M>(stopped) {
                            Some(output) => return Poll::Ready(output),
                            None => phase.set(Phase::Begin),
                        },
                    }
                    continue;
                }
                PhaseProjection::Wait { sleep } => {
                    ready!(sleep.as_mut().poll(context));
                    phase.set(Phase::Begin);
                    continue;
                }
                PhaseProjection::Yield { yielded } => {
                    if !std::mem::replace(yielded, true) {
                        context.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    phase.set(Phase::Begin);
                    continue;
                }
            };
            let cut_off = core.history().timed_out;
            let failure = if core.call.can_repeat(cut_off) { failure } else { failure.not_repeatable() };
            let next = core.failed(&failure, J::error_type());
            match core.proceed(next, &failure) {
                Ok(next) => phase.set(next),
                Err(stopped) => match core.end::<M>(stopped) {
                    Some(output) => return Poll::Ready(output),
                    None => phase.set(Phase::Begin),
                },
            }
        }
    }
}

#[inline]
fn classes(setup: Option<&Setup>) -> &ClassMap {
    setup.and_then(|setup| setup.classes.as_deref()).unwrap_or(&BUILT_IN)
}

impl<O> History<O> {
    /// Records an attempt: its outcome, or that it was cut off. The outcome of an earlier attempt is then kept.
    fn keep(&mut self, outcome: Option<O>) {
        self.timed_out = outcome.is_none();
        self.last = outcome.or(self.last.take());
    }
}

impl<'a, P: RetryBy, A: Attempts, J, H> Core<'a, P, A, J, H> {
    #[inline]
    pub(crate) fn new(by: P, call: A, judge: J, hook: H) -> Self {
        Self {
            by,
            call,
            judge,
            hook,
            options: None,
            made: 0,
            credentials: 0,
            started: None,
            ticket: None,
            limit: None,
            history: None,
        }
    }

    pub(crate) fn options(&mut self) -> &mut CallOptions<'a> {
        self.options.get_or_insert_default()
    }

    #[inline]
    fn is_cancelled(&mut self, context: &mut Context<'_>) -> bool {
        let cancelled = self.options.as_mut().and_then(|options| options.cancelled.as_mut());
        cancelled.is_some_and(|cancelled| cancelled.as_mut().poll(context).is_ready())
    }

    /// Returns whether the attempt or refresh has used up its time.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        self.limit.as_mut().is_some_and(|limit| limit.as_mut().poll(context).is_ready())
    }

    /// Checks the deadline and the breaker before an attempt, and sets its time limit.
    #[inline]
    fn begin(&mut self, cuts: bool) -> Result<(), StopReason> {
        let has_deadline = self.by.policy().deadline().is_some() || self.options.is_some();
        let is_guarded = self.by.setup().is_some_and(Setup::is_guarded);
        if has_deadline || is_guarded || self.history.is_some() { self.begin_guarded(cuts) } else { Ok(()) }
    }

    fn begin_guarded(&mut self, cuts: bool) -> Result<(), StopReason> {
        if self.deadline().is_some() {
            self.start();
        }
        if self.time_left() == Some(Duration::ZERO) {
            return Err(StopReason::Refused(GiveUpReason::Deadline));
        }
        if let Some(breaker) = self.by.setup().and_then(|setup| setup.breaker.as_deref()) {
            let admitted = breaker.admit(self.by.sleeper().now());
            self.ticket = Some(admitted.map_err(|retry_in| StopReason::BreakerOpen { retry_in })?);
        }
        if let Some(setup) = self.by.setup() {
            self.credentials = setup.generation(A::BLOCKS);
        }
        if cuts && !A::BLOCKS {
            let timeout = self.by.setup().and_then(|setup| setup.attempt_timeout);
            self.limit_to([timeout, self.time_left()].into_iter().flatten().min());
        }
        if let Some(charge) = self.history.as_mut().and_then(|history| history.charge.as_mut()) {
            charge.0 = None;
        }
        Ok(())
    }

    fn limit_to(&mut self, limit: Option<Duration>) {
        self.limit = limit.map(|limit| Box::pin(self.by.sleeper().sleep(limit)));
    }

    /// Returns the earliest deadline.
    fn deadline(&self) -> Option<Duration> {
        [self.callers_deadline(), self.by.policy().deadline()].into_iter().flatten().min()
    }

    /// Returns the earliest deadline, except for the policy's.
    fn callers_deadline(&self) -> Option<Duration> {
        let setup = self.by.setup().and_then(|setup| setup.deadline);
        let own = self.options.as_ref().and_then(|options| options.deadline);
        [setup, own].into_iter().flatten().min()
    }

    fn time_left(&self) -> Option<Duration> {
        self.deadline().map(|deadline| deadline.saturating_sub(self.elapsed()))
    }

    /// Starts to measure the time, if that has not begun.
    fn start(&mut self) {
        if self.started.is_none() {
            self.started = Some(self.by.sleeper().now());
        }
    }

    fn elapsed(&self) -> Duration {
        self.started.map_or(Duration::ZERO, |started| self.by.sleeper().now().saturating_sub(started))
    }

    fn history(&mut self) -> &mut History<A::Outcome> {
        self.history.get_or_insert_with(|| {
            let so_far = SoFar::default();
            Box::new(History { so_far, rolls: None, charge: None, last: None, timed_out: false })
        })
    }

    #[inline]
    fn succeeded<M: Mode<A::Outcome>>(&mut self, outcome: A::Outcome) -> M::Output {
        let setup = self.by.setup();
        if let Some(budget) = setup.and_then(|setup| setup.budget.as_ref()) {
            budget.refund();
        }
        // A first attempt without a name is not counted.
        match setup.and_then(|setup| setup.operation.as_ref()) {
            Some(operation) => operation.succeeded(self.made),
            None if self.made > 1 => metrics::NAMELESS.succeeded(self.made),
            None => {}
        }
        if self.ticket.is_some() {
            self.record_health(true);
        }
        M::succeeded(outcome, self.made, || self.elapsed())
    }

    /// Decides the action after a failed attempt.
    #[cold]
    #[inline(never)]
    fn failed(&mut self, failure: &Failure, error_type: &'static str) -> NextAction {
        self.start();
        self.limit = None;
        self.record_failure(failure);
        let decided = self.decide(failure);
        let next = self.paid(decided);
        self.history().so_far.refreshed |= next == NextAction::Refresh;
        self.report(failure, error_type, next);
        next
    }

    /// Decides the action after a refresh of the credentials: another attempt at once; if it failed, the wait of a second
    /// refusal.
    fn refreshed(&mut self, refreshed: bool, failure: &Failure, error_type: &'static str) -> NextAction {
        self.limit = None;
        if refreshed {
            self.operation().retried(self.made, failure, Duration::ZERO);
            return NextAction::Wait(Duration::ZERO);
        }
        let (operation, operation_id) = (self.operation().name(), self.operation_id());
        tracing::warn!(operation, operation_id, "failed to refresh the credentials");
        self.operation().refresh_failed();
        let next = self.decide(failure);
        self.report(failure, error_type, next);
        next
    }

    fn decide(&mut self, failure: &Failure) -> NextAction {
        let roll = self.roll();
        let (attempt, elapsed, deadline) = (Attempt::new(self.made), self.elapsed(), self.callers_deadline());
        let so_far = &mut self.history().so_far;
        (so_far.attempt, so_far.elapsed, so_far.deadline) = (attempt, elapsed, deadline);
        let so_far = *so_far;
        match self.by.policy().decide(&so_far, failure, roll) {
            Decision::Retry { after } => {
                self.history().so_far.last_delay = after;
                NextAction::Wait(after)
            }
            Decision::Refresh if self.by.setup().is_some_and(|setup| setup.can_refresh(A::BLOCKS)) => {
                NextAction::Refresh
            }
            Decision::Refresh => NextAction::Stop(StopReason::Unauthorized),
            Decision::HandOff => NextAction::Stop(StopReason::Conflict),
            Decision::GiveUp(refusal) => NextAction::Stop(StopReason::Refused(refusal)),
            // A later policy may return a decision that this executor does not know; it then stops.
            _ => NextAction::Stop(StopReason::Cancelled),
        }
    }

    /// Charges the budget for another attempt.
    fn paid(&mut self, next: NextAction) -> NextAction {
        let budget = self.by.setup().and_then(|setup| setup.budget.clone());
        let (Some(budget), NextAction::Wait(_) | NextAction::Refresh) = (budget, next) else { return next };
        if !budget.withdraw() {
            return NextAction::Stop(StopReason::Budget);
        }
        self.history().charge = Some(Charge(Some(budget)));
        next
    }

    /// Returns the phase of the next action; the reason of a stop as the error.
    fn proceed(
        &mut self,
        next: NextAction,
        failure: &Failure,
    ) -> Result<Phase<A::Attempt, SleepOf<P>>, StopReason>
    where
        H: Hook<A::Outcome>,
    {
        let delay = match next {
            NextAction::Stop(stopped) => return Err(stopped),
            NextAction::Refresh => {
                self.limit_to(self.time_left());
                let refresh = self.by.setup().and_then(|setup| setup.refresh(A::BLOCKS, self.credentials));
                let refresh = refresh.unwrap_or_else(|| Box::pin(std::future::ready(false)));
                return Ok(Phase::Refresh { refresh, failure: *failure });
            }
            NextAction::Wait(delay) => delay,
        };
        tracing::Span::current().record("http.request.resend_count", self.made);
        let elapsed = self.elapsed();
        let history = self.history.as_ref().filter(|history| !history.timed_out);
        self.hook.retrying(Retrying {
            operation: self.by.setup().and_then(|setup| setup.operation.as_deref()).map(Operation::name),
            attempt: self.made,
            delay,
            elapsed,
            class: failure.class(),
            retry_after: failure.retry_after(),
            error: history.and_then(|history| history.last.as_ref()),
        });
        Ok(match delay {
            Duration::ZERO => Phase::Yield { yielded: false },
            delay => Phase::Wait { sleep: Box::pin(self.by.sleeper().sleep(delay)) },
        })
    }

    /// Returns the result of a call without a further attempt.
    fn end<M: Mode<A::Outcome>>(&mut self, stopped: StopReason) -> Option<M::Output> {
        let (attempts, elapsed) = (self.made, self.elapsed());
        let (outcome, timed_out) =
            self.history.take().map_or((None, false), |history| (history.last, history.timed_out));
        M::stopped(JudgedReport { outcome, timed_out, stopped: Some(stopped), attempts, elapsed })
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
        let Some(ticket) = self.ticket.take() else { return };
        let roll = if healthy { 0 } else { self.roll() };
        if let Some(breaker) = self.by.setup().and_then(|setup| setup.breaker.as_deref()) {
            breaker.record(ticket, healthy, self.by.sleeper().now(), roll);
        }
    }

    /// Draws a roll. Each call has its own random number generator, created at the first roll.
    fn roll(&mut self) -> u32 {
        let seed = self.by.setup().and_then(|setup| setup.seed);
        self.history().rolls.get_or_insert_with(|| seed.map_or_else(Rng::new, Rng::with_seed)).u32(..)
    }

    fn operation(&self) -> &Operation {
        let named = self.by.setup().and_then(|setup| setup.operation.as_deref());
        named.unwrap_or(&metrics::NAMELESS)
    }

    fn operation_id(&self) -> Option<&'a str> {
        self.options.as_ref().and_then(|options| options.operation_id)
    }

    /// Records an end that is not caused by a failed attempt: refused before an attempt, or cancelled.
    fn record_stop(&self, stopped: StopReason) {
        let (operation, operation_id) = (self.operation().name(), self.operation_id());
        let (attempt, reason) = (self.made, stopped.name());
        tracing::warn!(operation, operation_id, attempt, reason, "gave up");
        self.operation().stopped(stopped);
    }

    fn report(&self, failure: &Failure, error_type: &'static str, next: NextAction) {
        let (operation, operation_id) = (self.operation().name(), self.operation_id());
        let (attempt, class) = (self.made, failure.class().name());
        match next {
            NextAction::Stop(stopped) => {
                let reason = stopped.name();
                tracing::warn!(
                    operation,
                    operation_id,
                    attempt,
                    class,
                    "error.type" = error_type,
                    reason,
                    "gave up"
                );
                self.operation().stopped(stopped);
            }
            NextAction::Wait(delay) => {
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                tracing::debug!(
                    operation,
                    operation_id,
                    attempt,
                    class,
                    "error.type" = error_type,
                    delay_ms,
                    "scheduled a retry"
                );
                self.operation().retried(attempt, failure, delay);
            }
            NextAction::Refresh => {
                tracing::debug!(
                    operation,
                    operation_id,
                    attempt,
                    class,
                    "error.type" = error_type,
                    "started a refresh of the credentials"
                );
            }
        }
    }
}

impl Setup {
    /// Returns whether an attempt needs a timer, the breaker's admission or the generation of the credentials.
    #[inline]
    fn is_guarded(&self) -> bool {
        let is_timed = self.deadline.is_some() || self.attempt_timeout.is_some();
        is_timed || self.breaker.is_some() || self.refresher.is_some() || self.blocking_refresher.is_some()
    }

    fn can_refresh(&self, blocks: bool) -> bool {
        if blocks { self.blocking_refresher.is_some() } else { self.refresher.is_some() }
    }

    fn generation(&self, blocks: bool) -> u64 {
        if blocks {
            return self.blocking_refresher.as_ref().map_or(0, |refresher| refresher.generation());
        }
        self.refresher.as_ref().map_or(0, |refresher| refresher.generation())
    }

    /// Begins a refresh of the credentials of this generation.
    fn refresh(&self, blocks: bool, seen: u64) -> Option<Pin<Box<dyn Future<Output = bool> + Send>>> {
        if blocks {
            let refreshed = self.blocking_refresher.as_ref()?.refresh(seen);
            return Some(Box::pin(std::future::ready(refreshed)));
        }
        let refresher = Arc::clone(self.refresher.as_ref()?);
        Some(Box::pin(async move { refresher.refresh(seen).await.is_ok() }))
    }
}
