//! The async executor.

use std::any::type_name;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use holdoff_policy::{Class, ClassMap, Failure};
use tokio_util::sync::CancellationToken;

use crate::classify::Classifier;
use crate::retry::{Hook, NoHook};
use crate::state::Stopwatch;
use crate::state::{NextAction, RetryState};
use crate::{JudgedReport, Refresher, Report, Retry, RetryError, Retrying, StopReason};

impl<C, H> Retry<'_, C, H> {
    /// Makes attempts until one succeeds or there is no further attempt.
    ///
    /// Cancel-safe: dropping the future drops the attempt in flight and returns an unused retry to the
    /// budget.
    pub async fn run<T, E, F, Fut>(self, mut call: F) -> Result<T, RetryError<E>>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        C: Classifier<E>,
        H: Hook<E>,
    {
        let has_guards = self.options.has_guards() || self.cancel.is_some() || self.refresher.is_some();
        if has_guards {
            return self.run_reporting(call).await.map(|report| report.value);
        }
        // The first attempt runs here. The rest is set up only if it fails.
        let mut stopwatch = Stopwatch::default();
        match stopwatch.time(pin!(call())).await {
            Ok(value) => {
                self.options.count_success(1);
                Ok(value)
            }
            // Boxed, so that the future of a call that succeeds at once stays small; a wait costs more than
            // an allocation.
            Err(error) => Box::pin(self.resume(call, error, stopwatch)).await,
        }
    }

    /// Like [`run`](Self::run), but a success includes the number of attempts.
    pub async fn run_reporting<T, E, F, Fut>(self, call: F) -> Result<Report<T>, RetryError<E>>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        C: Classifier<E>,
        H: Hook<E>,
    {
        let (state, env, mut judge) = self.parts::<E>(None);
        drive(state, env, call, &mut judge, None).await.into_result()
    }

    /// Continues after a failed first attempt.
    pub(crate) async fn resume<T, E, F, Fut>(
        self,
        call: F,
        error: E,
        stopwatch: Stopwatch,
    ) -> Result<T, RetryError<E>>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        C: Classifier<E>,
        H: Hook<E>,
    {
        let (state, env, mut judge) = self.parts::<E>(Some(stopwatch));
        let ended = drive(state, env, call, &mut judge, Some(Err(error))).await;
        ended.into_result().map(|report| report.value)
    }
}

impl<'a, C, H> Retry<'a, C, H> {
    /// Returns the parts of the loop; the stopwatch is present if a first attempt was made.
    fn parts<E>(self, resumed: Option<Stopwatch>) -> (RetryState<'a>, Env<'a>, ByError<'a, C, H>) {
        let Self { mut options, cancel, refresher, classifier, hook, .. } = self;
        options.can_refresh = refresher.is_some();
        let judge = ByError { classifier, classes: options.classes, hook };
        let state = match resumed {
            Some(stopwatch) => RetryState::resumed(options, stopwatch),
            None => RetryState::new(options),
        };
        (state, Env { cancel, refresher, error_type: type_name::<E>() }, judge)
    }
}

impl<C> Retry<'_, C, NoHook> {
    /// Makes attempts until the judge finds no failure in the outcome or there is no further attempt. It
    /// returns the last outcome in both cases.
    ///
    /// For calls whose failures can look like successes, such as an HTTP response with status 503.
    /// Cancel-safe like [`run`](Self::run).
    pub async fn run_judged<O, F, Fut, J>(self, call: F, judge: J) -> JudgedReport<O>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = O>,
        J: FnMut(&O) -> Option<Failure>,
    {
        self.run_judged_as(type_name::<O>(), call, judge).await
    }

    /// Like `run_judged`, with the error type that the logs show.
    pub(crate) async fn run_judged_as<O, F, Fut, J>(
        self,
        error_type: &'static str,
        call: F,
        judge: J,
    ) -> JudgedReport<O>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = O>,
        J: FnMut(&O) -> Option<Failure>,
    {
        let Self { mut options, cancel, refresher, .. } = self;
        options.can_refresh = refresher.is_some();
        let env = Env { cancel, refresher, error_type };
        drive(RetryState::new(options), env, call, &mut ByClosure(judge), None).await
    }
}

/// Judges outcomes, and receives each planned retry.
trait Judge<O> {
    fn failure(&mut self, outcome: &O) -> Option<Failure>;
    fn retrying(&mut self, retrying: &Retrying, outcome: Option<&O>);
}

/// Treats errors as failures, of the class that the classifier returns.
struct ByError<'a, C, H> {
    classifier: C,
    classes: &'a ClassMap,
    hook: H,
}

impl<T, E, C: Classifier<E>, H: Hook<E>> Judge<Result<T, E>> for ByError<'_, C, H> {
    fn failure(&mut self, outcome: &Result<T, E>) -> Option<Failure> {
        outcome.as_ref().err().map(|error| self.classifier.failure(error, self.classes))
    }

    fn retrying(&mut self, retrying: &Retrying, outcome: Option<&Result<T, E>>) {
        self.hook.retrying(retrying, outcome.and_then(|outcome| outcome.as_ref().err()));
    }
}

struct ByClosure<J>(J);

impl<O, J: FnMut(&O) -> Option<Failure>> Judge<O> for ByClosure<J> {
    fn failure(&mut self, outcome: &O) -> Option<Failure> {
        (self.0)(outcome)
    }

    fn retrying(&mut self, _: &Retrying, _: Option<&O>) {}
}

/// The cancellation, the refresher and the error type of the loop.
struct Env<'a> {
    cancel: Option<&'a CancellationToken>,
    refresher: Option<&'a Refresher>,
    error_type: &'static str,
}

/// The result of one attempt.
enum AttemptResult<O> {
    Done(O),
    TimedOut,
    Cancelled,
}

/// The loop: attempt, judge, wait. `given` is the outcome of an attempt that the caller has made already.
async fn drive<O, F, Fut>(
    mut state: RetryState<'_>,
    env: Env<'_>,
    mut call: F,
    judge: &mut impl Judge<O>,
    mut given: Option<O>,
) -> JudgedReport<O>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = O>,
{
    let mut last = LastOutcome { outcome: None, timed_out: false };
    loop {
        let credentials = env.refresher.map(Refresher::generation);
        let attempted = match given.take() {
            Some(outcome) => AttemptResult::Done(outcome),
            None if env.is_cancelled() => return last.cancelled(&state),
            None => match state.begin_attempt() {
                Ok(()) => attempt(&mut state, call(), env.cancel).await,
                Err(stopped) => return last.ended(Some(stopped), &state),
            },
        };
        let failure = match attempted {
            AttemptResult::Cancelled => return last.cancelled(&state),
            AttemptResult::TimedOut => {
                last.timed_out = true;
                Failure::new(Class::Timeout)
            }
            AttemptResult::Done(outcome) => {
                let failure = judge.failure(&outcome);
                last = LastOutcome { outcome: Some(outcome), timed_out: false };
                let Some(failure) = failure else {
                    state.succeeded();
                    return last.ended(None, &state);
                };
                failure
            }
        };
        let mut next = state.failed(&failure, env.error_type);
        if next == NextAction::Refresh {
            match until_cancelled(env.cancel, env.refresh(&state, credentials)).await {
                Some(true) => state.refreshed(&failure),
                Some(false) => next = state.refresh_failed(&failure, env.error_type),
                None => return last.cancelled(&state),
            }
        }
        if let NextAction::Stop(stopped) = next {
            return last.ended(Some(stopped), &state);
        }
        let retrying = retrying(&state, &failure, next);
        judge.retrying(&retrying, last.fresh());
        if until_cancelled(env.cancel, wait_unless_refreshed(next)).await.is_none() {
            return last.cancelled(&state);
        }
    }
}

/// Waits before the next attempt; after a refresh there is no wait.
async fn wait_unless_refreshed(next: NextAction) {
    if let NextAction::Wait(delay) = next {
        wait(delay).await;
    }
}

impl Env<'_> {
    fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(CancellationToken::is_cancelled)
    }

    /// Refreshes the credentials within the time left; returns `false` on failure.
    async fn refresh(&self, state: &RetryState<'_>, credentials: Option<u64>) -> bool {
        let Some((refresher, seen)) = self.refresher.zip(credentials) else { return false };
        match state.attempt_limit() {
            Some(limit) => matches!(tokio::time::timeout(limit, refresher.refresh(seen)).await, Ok(Ok(()))),
            None => refresher.refresh(seen).await.is_ok(),
        }
    }
}

/// The last outcome of the attempts.
struct LastOutcome<O> {
    outcome: Option<O>,
    timed_out: bool,
}

impl<O> LastOutcome<O> {
    /// Returns the outcome of the last attempt; `None` if it was cut off.
    fn fresh(&self) -> Option<&O> {
        self.outcome.as_ref().filter(|_| !self.timed_out)
    }

    fn ended(self, stopped: Option<StopReason>, state: &RetryState<'_>) -> JudgedReport<O> {
        let Self { outcome, timed_out } = self;
        JudgedReport { outcome, timed_out, stopped, attempts: state.made(), elapsed: state.elapsed() }
    }

    fn cancelled(self, state: &RetryState<'_>) -> JudgedReport<O> {
        state.stop(StopReason::Cancelled);
        self.ended(Some(StopReason::Cancelled), state)
    }
}

fn retrying(state: &RetryState<'_>, failure: &Failure, next: NextAction) -> Retrying {
    let delay = if let NextAction::Wait(delay) = next { delay } else { Duration::ZERO };
    Retrying { attempt: state.made(), delay, class: failure.class(), retry_after: failure.retry_after() }
}

/// Makes one attempt within its limits.
async fn attempt<O>(
    state: &mut RetryState<'_>,
    call: impl Future<Output = O>,
    cancel: Option<&CancellationToken>,
) -> AttemptResult<O> {
    let (limit, call) = (state.attempt_limit(), pin!(call));
    let timed = state.stopwatch().time(call);
    let in_time = async {
        match limit {
            Some(limit) => tokio::time::timeout(limit, timed).await.ok(),
            None => Some(timed.await),
        }
    };
    match until_cancelled(cancel, in_time).await {
        Some(Some(outcome)) => AttemptResult::Done(outcome),
        Some(None) => AttemptResult::TimedOut,
        None => AttemptResult::Cancelled,
    }
}

async fn until_cancelled<T>(
    cancel: Option<&CancellationToken>,
    future: impl Future<Output = T>,
) -> Option<T> {
    match cancel {
        Some(token) => token.run_until_cancelled(future).await,
        None => Some(future.await),
    }
}

/// Waits. A zero delay needs no timer; the task only yields once.
async fn wait(delay: Duration) {
    if !delay.is_zero() {
        return tokio::time::sleep(delay).await;
    }
    let mut turned = false;
    poll_fn(|context| {
        if turned {
            return Poll::Ready(());
        }
        turned = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
