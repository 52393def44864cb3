//! The async executor.

use std::any::type_name;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use holdoff_policy::{Class, Failure};
use tokio_util::sync::CancellationToken;

use crate::classify::Classifier;
use crate::course::{Course, Next};
use crate::retry::{Hook, NoHook, Options};
use crate::{Ended, Failed, Refresher, Report, Retry, Retrying, Stopped};

impl<C, H> Retry<'_, C, H> {
    /// Calls until it succeeds or there is no further try.
    pub async fn run<T, E, F, Fut>(self, call: F) -> Result<T, Failed<E>>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        C: Classifier<E>,
        H: Hook<E>,
    {
        self.run_reporting(call).await.map(|report| report.value)
    }

    /// Like [`run`](Self::run), and a success says how many attempts it took.
    pub async fn run_reporting<T, E, F, Fut>(self, call: F) -> Result<Report<T>, Failed<E>>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        C: Classifier<E>,
        H: Hook<E>,
    {
        let Self { options, cancel, refresher, classifier, mut hook, .. } = self;
        let judge = |outcome: &Result<T, E>| outcome.as_ref().err().map(|error| classifier.failure(error));
        let tell = |retrying: &Retrying, outcome: Option<&Result<T, E>>| {
            hook.retrying(retrying, outcome.and_then(|outcome| outcome.as_ref().err()));
        };
        let around = Around { cancel, refresher, error_type: type_name::<E>() };
        drive(options, around, call, judge, tell).await.into_result()
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
        drive(self.options, around, call, judge, |_, _| {}).await
    }
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

/// The loop: attempt, judge, wait.
async fn drive<O, F, Fut>(
    options: Options<'_>,
    around: Around<'_>,
    mut call: F,
    mut judge: impl FnMut(&O) -> Option<Failure>,
    mut tell: impl FnMut(&Retrying, Option<&O>),
) -> Ended<O>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = O>,
{
    let mut course = Course::new(options);
    let mut last = None;
    loop {
        if let Err(stopped) = course.begin_attempt() {
            return ended(last, Some(stopped), &course);
        }
        let credentials = around.refresher.map(Refresher::generation);
        let failure = match attempt(&mut course, call(), around.cancel).await {
            Attempt::Cancelled => return ended(last, Some(Stopped::Cancelled), &course),
            Attempt::TimedOut => {
                last = None;
                Failure::new(Class::Timeout)
            }
            Attempt::Done(outcome) => match judge(&outcome) {
                None => {
                    course.succeeded();
                    return ended(Some(outcome), None, &course);
                }
                Some(failure) => {
                    last = Some(outcome);
                    failure
                }
            },
        };
        let next = course.failed(&failure, around.error_type);
        if let Next::Stop(stopped) = next {
            return ended(last, Some(stopped), &course);
        }
        tell(&retrying(&course, &failure, next), last.as_ref());
        let pause = async {
            match (next, around.refresher.zip(credentials)) {
                (Next::Wait(delay), _) => wait(delay).await,
                // Whether it worked shows at the next attempt: if not, that one is refused and backs off.
                (_, Some((refresher, seen))) => drop(refresher.refresh(seen).await),
                _ => {}
            }
        };
        if until_cancelled(around.cancel, pause).await.is_none() {
            return ended(last, Some(Stopped::Cancelled), &course);
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
    let mut call = pin!(call);
    match (course.attempt_limit(), cancel) {
        (None, None) => Attempt::Done(timed(course, call.as_mut()).await),
        (limit, cancel) => limited(course, call.as_mut(), limit, cancel).await,
    }
}

/// Starts the clock when the call first has to wait for something.
async fn timed<O>(course: &mut Course<'_>, mut call: Pin<&mut impl Future<Output = O>>) -> O {
    poll_fn(|context| {
        let polled = call.as_mut().poll(context);
        if let Poll::Pending = polled {
            course.start_clock();
        }
        polled
    })
    .await
}

async fn limited<O>(
    course: &mut Course<'_>,
    call: Pin<&mut impl Future<Output = O>>,
    limit: Option<Duration>,
    cancel: Option<&CancellationToken>,
) -> Attempt<O> {
    course.start_clock();
    let in_time = async {
        match limit {
            Some(limit) => tokio::time::timeout(limit, call).await.ok(),
            None => Some(call.await),
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
