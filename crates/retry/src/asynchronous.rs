//! The async executor.

use std::any::type_name;
use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use holdoff_policy::{Class, Failure};
use tokio_util::sync::CancellationToken;

use crate::classify::Classifier;
use crate::clock::Stopwatch;
use crate::course::{Course, Next};
use crate::retry::{Hook, NoHook};
use crate::{Ended, Failed, Refresher, Report, Retry, Retrying, Stopped};

impl<C, H> Retry<'_, C, H> {
    /// Calls until it succeeds or there is no further try.
    pub async fn run<T, E, F, Fut>(self, mut call: F) -> Result<T, Failed<E>>
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
        // The first try is made right here: all the rest is set up only if it fails.
        let mut stopwatch = Stopwatch::default();
        match stopwatch.time(call()).await {
            Ok(value) => {
                self.options.count_success(1);
                Ok(value)
            }
            // In a box, so that whoever succeeds at once carries none of it; a wait is dearer than a box.
            Err(error) => Box::pin(self.resume(call, error, stopwatch)).await,
        }
    }

    /// Like [`run`](Self::run), and a success says how many attempts it took.
    pub async fn run_reporting<T, E, F, Fut>(self, call: F) -> Result<Report<T>, Failed<E>>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        C: Classifier<E>,
        H: Hook<E>,
    {
        let Self { options, cancel, refresher, classifier, hook, .. } = self;
        let around = Around { cancel, refresher, error_type: type_name::<E>() };
        let mut judge = ByError { classifier, hook };
        drive(Course::new(options), around, call, &mut judge, None).await.into_result()
    }

    /// Goes on after a first attempt that has failed.
    pub(crate) async fn resume<T, E, F, Fut>(
        self,
        call: F,
        error: E,
        stopwatch: Stopwatch,
    ) -> Result<T, Failed<E>>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        C: Classifier<E>,
        H: Hook<E>,
    {
        let Self { options, cancel, refresher, classifier, hook, .. } = self;
        let around = Around { cancel, refresher, error_type: type_name::<E>() };
        let course = Course::resumed(options, stopwatch);
        let mut judge = ByError { classifier, hook };
        let ended = drive(course, around, call, &mut judge, Some(Err(error))).await;
        ended.into_result().map(|report| report.value)
    }
}

impl<C> Retry<'_, C, NoHook> {
    /// Calls until the judge finds nothing wrong with what was returned, or there is no further try;
    /// either way, what was returned last is handed over.
    ///
    /// For calls whose failures can look like successes, such as an HTTP response with status 503.
    pub async fn run_judged<O, F, Fut, J>(self, call: F, judge: J) -> Ended<O>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = O>,
        J: FnMut(&O) -> Option<Failure>,
    {
        let around = Around { cancel: self.cancel, refresher: self.refresher, error_type: type_name::<O>() };
        drive(Course::new(self.options), around, call, &mut ByClosure(judge), None).await
    }
}

/// Judges outcomes, and is told what follows.
trait Judge<O> {
    fn failure(&mut self, outcome: &O) -> Option<Failure>;
    fn retrying(&mut self, retrying: &Retrying, outcome: Option<&O>);
}

/// Errors are failures, of the class the classifier gives them.
struct ByError<C, H> {
    classifier: C,
    hook: H,
}

impl<T, E, C: Classifier<E>, H: Hook<E>> Judge<Result<T, E>> for ByError<C, H> {
    fn failure(&mut self, outcome: &Result<T, E>) -> Option<Failure> {
        outcome.as_ref().err().map(|error| self.classifier.failure(error))
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

/// What surrounds the attempts.
struct Around<'a> {
    cancel: Option<&'a CancellationToken>,
    refresher: Option<&'a Refresher>,
    error_type: &'static str,
}

/// How one attempt came out.
enum Attempt<O> {
    Done(O),
    TimedOut,
    Cancelled,
}

/// The loop: attempt, judge, wait. `given` is the outcome of an attempt that was made already.
async fn drive<O, F, Fut>(
    mut course: Course<'_>,
    around: Around<'_>,
    mut call: F,
    judge: &mut impl Judge<O>,
    mut given: Option<O>,
) -> Ended<O>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = O>,
{
    let mut last = None;
    loop {
        let credentials = around.refresher.map(Refresher::generation);
        let attempted = match given.take() {
            Some(outcome) => Attempt::Done(outcome),
            None => match course.begin_attempt() {
                Ok(()) => attempt(&mut course, call(), around.cancel).await,
                Err(stopped) => return ended(last, Some(stopped), &course),
            },
        };
        let failure = match attempted {
            Attempt::Cancelled => return ended(last, Some(Stopped::Cancelled), &course),
            Attempt::TimedOut => {
                last = None;
                Failure::new(Class::Timeout)
            }
            Attempt::Done(outcome) => {
                let failure = judge.failure(&outcome);
                last = Some(outcome);
                let Some(failure) = failure else {
                    course.succeeded();
                    return ended(last, None, &course);
                };
                failure
            }
        };
        let next = course.failed(&failure, around.error_type);
        if let Next::Stop(stopped) = next {
            return ended(last, Some(stopped), &course);
        }
        judge.retrying(&retrying(&course, &failure, next), last.as_ref());
        let pause = around.pause(next, credentials);
        if until_cancelled(around.cancel, pause).await.is_none() {
            return ended(last, Some(Stopped::Cancelled), &course);
        }
    }
}

impl Around<'_> {
    /// What lies between two attempts: a wait, or new credentials.
    async fn pause(&self, next: Next, credentials: Option<u64>) {
        match (next, self.refresher.zip(credentials)) {
            (Next::Wait(delay), _) => wait(delay).await,
            // Whether it worked shows at the next attempt: if not, that one is refused and backs off.
            (_, Some((refresher, seen))) => drop(refresher.refresh(seen).await),
            _ => {}
        }
    }
}

fn ended<O>(outcome: Option<O>, stopped: Option<Stopped>, course: &Course<'_>) -> Ended<O> {
    Ended { outcome, stopped, attempts: course.made(), elapsed: course.elapsed() }
}

fn retrying(course: &Course<'_>, failure: &Failure, next: Next) -> Retrying {
    let delay = if let Next::Wait(delay) = next { delay } else { Duration::ZERO };
    Retrying { attempt: course.made(), delay, class: failure.class(), retry_after: failure.retry_after() }
}

/// One attempt, within its limits.
async fn attempt<O>(
    course: &mut Course<'_>,
    call: impl Future<Output = O>,
    cancel: Option<&CancellationToken>,
) -> Attempt<O> {
    let limit = course.attempt_limit();
    let timed = course.stopwatch().time(call);
    let in_time = async {
        match limit {
            Some(limit) => tokio::time::timeout(limit, timed).await.ok(),
            None => Some(timed.await),
        }
    };
    match until_cancelled(cancel, in_time).await {
        Some(Some(outcome)) => Attempt::Done(outcome),
        Some(None) => Attempt::TimedOut,
        None => Attempt::Cancelled,
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

/// Waits; a zero delay takes no timer, only a turn.
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
