//! One retried call, before it runs.

use std::any::type_name;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use holdoff_policy::{Class, ClassMap, Classify, Failure, GiveUpReason};

use crate::executor::{Core, Phase};
use crate::outcome::Details;
use crate::retry::{RetryBy, RetryRules};
use crate::{JudgedReport, Report, RetryError, Sleeper, StopReason};

/// Makes attempts until one succeeds or the policy stops: `retry(&policy, call)` is `call.retry(&policy)`.
///
/// Cancel-safe: dropping the future drops the attempt in flight.
///
/// ```
/// use holdoff_policy::Policy;
/// use holdoff_retry::retry;
/// use std::io::{Error, ErrorKind};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let policy = Policy::preset("proposal").unwrap();
/// let mut calls = 0;
/// let answer = retry(&policy, || {
///     calls += 1;
///     let answer = if calls < 3 { Err(Error::from(ErrorKind::ConnectionReset)) } else { Ok(calls) };
///     async move { answer }
/// });
/// assert_eq!(answer.await.unwrap(), 3);
/// # }
/// ```
pub fn retry<'a, P: RetryBy, A: Attempts>(by: P, call: A) -> RetryCall<'a, P, A> {
    call.retry(by)
}

/// A call that can be made again: a function or closure that returns a future.
pub trait Attempts {
    /// The result of an attempt.
    type Outcome;
    /// An attempt.
    type Attempt: Future<Output = Self::Outcome>;
    /// Whether an attempt blocks its thread.
    #[doc(hidden)]
    const BLOCKS: bool = false;

    /// Begins an attempt.
    fn attempt(&mut self) -> Self::Attempt;

    /// Returns whether another attempt is possible and safe after the last one, which failed or was cut off.
    #[doc(hidden)]
    fn can_repeat(&self, _was_cut_off: bool) -> bool {
        true
    }
}

impl<F: FnMut() -> Fut, Fut: Future> Attempts for F {
    type Outcome = Fut::Output;
    type Attempt = Fut;

    #[inline]
    fn attempt(&mut self) -> Fut {
        self()
    }
}

/// Adds [`retry`](Self::retry) to functions and closures that return a future.
pub trait Retryable: Attempts + Sized {
    /// Retries this call by a policy or by a [`Retry`](crate::Retry). Await the result.
    ///
    /// With a policy alone, the result is the last result of the call, so that `?` converts its error as usual. The policy's
    /// deadline then limits the waits and the attempts that begin, but cuts off no attempt. With a [`Retry`](crate::Retry), the
    /// error is a [`RetryError`], because a breaker, a timeout or a cancellation may stop the call without an error of its own.
    ///
    /// Cancel-safe: dropping the future drops the attempt in flight and returns an unused retry to the budget.
    ///
    /// ```
    /// use holdoff_policy::Policy;
    /// use holdoff_retry::Retryable;
    ///
    /// async fn fetch() -> Result<String, std::io::Error> {
    ///     Ok("fetched".to_owned())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), std::io::Error> {
    /// let page = fetch.retry(&Policy::standard()).await?;
    /// # assert_eq!(page, "fetched");
    /// # Ok(()) }
    /// ```
    fn retry<'a, P: RetryBy>(self, by: P) -> RetryCall<'a, P, Self> {
        RetryCall::new(by, self, ByClass)
    }
}

impl<A: Attempts> Retryable for A {}

pin_project_lite::pin_project! {
    /// A retried call: a future, whose methods set it up.
    #[must_use = "a retry does nothing until it is awaited"]
    pub struct RetryCall<'a, P, A, J = ByClass, H = NoHook, M = <P as RetryRules>::Mode>
    where
        P: RetryBy,
        A: Attempts,
    {
        pub(crate) core: Core<'a, P, A, J, H>,
        #[pin]
        pub(crate) phase: Phase<A::Attempt, <P::Sleeper as Sleeper>::Sleep>,
        mode: PhantomData<fn() -> M>,
    }
}

impl<P: RetryBy, A: Attempts, J, M> RetryCall<'_, P, A, J, NoHook, M> {
    #[inline]
    pub(crate) fn new(by: P, call: A, judge: J) -> Self {
        Self { core: Core::new(by, call, judge, NoHook), phase: Phase::Begin, mode: PhantomData }
    }
}

type Outcome<A> = <A as Attempts>::Outcome;

/// The options of one call.
impl<'a, P: RetryBy, A: Attempts, J, H, M> RetryCall<'a, P, A, J, H, M> {
    fn with<K, I, N>(self, change: impl FnOnce(J, H) -> (K, I)) -> RetryCall<'a, P, A, K, I, N> {
        let Core { by, call, judge, hook, options, .. } = self.core;
        let (judge, hook) = change(judge, hook);
        let mut core = Core::new(by, call, judge, hook);
        core.options = options;
        RetryCall { core, phase: Phase::Begin, mode: PhantomData }
    }

    /// Inspects each outcome, success or error, and returns the failure, if there is one: for outcomes that look like successes,
    /// such as an HTTP response with status 503.
    ///
    /// The result is the last outcome: as it is with a policy alone, in a [`JudgedReport`] with a [`Retry`](crate::Retry).
    pub fn judge<F>(self, judge: F) -> RetryCall<'a, P, A, ByOutcome<F>, H, P::Judged>
    where
        F: FnMut(&Outcome<A>) -> Option<Failure>,
    {
        self.with(|_, hook| (ByOutcome(judge), hook))
    }

    /// Sets an id that distinguishes this call from others of the same operation, for logs only.
    pub fn operation_id(mut self, id: &'a str) -> Self {
        self.core.options().operation_id = Some(id);
        self
    }

    /// Sets the timer and the clock.
    pub fn sleeper<S: Sleeper>(self, sleeper: S) -> RetryCall<'a, (P, S), A, J, H, M> {
        let Core { by, call, judge, hook, options, .. } = self.core;
        let mut core = Core::new((by, sleeper), call, judge, hook);
        core.options = options;
        RetryCall { core, phase: Phase::Begin, mode: PhantomData }
    }
}

/// The options of a call that may stop without an outcome.
impl<'a, P: RetryBy<Mode = Guarded>, A: Attempts, J, H, M> RetryCall<'a, P, A, J, H, M> {
    /// Limits the duration of this operation; the deadlines of the set-up and of the policy apply too.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.core.options().deadline = Some(deadline);
        self
    }

    /// Stops when this future ends, also during an attempt or a wait: `.cancel(token.cancelled())`. The blocking executor checks
    /// it between attempts.
    pub fn cancel(mut self, cancelled: impl Future<Output = ()> + Send + 'a) -> Self {
        self.core.options().cancelled = Some(Box::pin(cancelled));
        self
    }
}

impl<'a, P, A, H, M, T, E, J> RetryCall<'a, P, A, J, H, M>
where
    P: RetryBy,
    A: Attempts<Outcome = Result<T, E>>,
{
    /// Retries the errors for which this closure returns true; the others are permanent.
    pub fn when<F: FnMut(&E) -> bool>(
        self,
        mut when: F,
    ) -> RetryCall<'a, P, A, ByError<impl FnMut(&E) -> Failure>, H, M> {
        self.classify(move |error| if when(error) { Failure::transient() } else { Failure::permanent() })
    }

    /// Classifies errors with a closure instead of [`Classify`]: it returns a [`Class`] or a [`Failure`].
    pub fn classify<F, R>(self, classify: F) -> RetryCall<'a, P, A, ByError<F>, H, M>
    where
        F: FnMut(&E) -> R,
        R: Into<Failure>,
    {
        self.with(|_, hook| (ByError(classify), hook))
    }

    /// Calls the closure once for each retry, before its wait.
    pub fn on_retry<F: FnMut(&Retrying<'_, E>)>(self, hook: F) -> RetryCall<'a, P, A, J, OnRetry<F>, M> {
        self.with(|judge, _| (judge, OnRetry(hook)))
    }
}

impl<'a, P, A, H, T, E, J> RetryCall<'a, P, A, J, H, P::Mode>
where
    P: RetryBy,
    A: Attempts<Outcome = Result<T, E>>,
{
    /// Returns the number of attempts and the elapsed time with a success, and the reason of the stop with an error.
    pub fn report(self) -> RetryCall<'a, P, A, J, H, Reported> {
        self.with(|judge, hook| (judge, hook))
    }
}

/// A planned retry.
#[derive(Debug)]
#[non_exhaustive]
pub struct Retrying<'a, E> {
    /// The operation's name, if it has one.
    pub operation: Option<&'a str>,
    /// The attempt that failed, from 1.
    pub attempt: u32,
    /// The delay before the next attempt.
    pub delay: Duration,
    /// The elapsed time.
    pub elapsed: Duration,
    /// The failure class.
    pub class: Class,
    /// The wait that the server asked for.
    pub retry_after: Option<Duration>,
    /// The error; `None` if the attempt was cut off, or if a judge found a failure in a success.
    pub error: Option<&'a E>,
}

/// Finds failures in outcomes.
pub trait Judge<O> {
    /// Returns the failure in this outcome, by the active tables.
    fn failure(&mut self, outcome: &O, classes: &ClassMap) -> Option<Failure>;

    /// Returns the error's type for logs.
    fn error_type() -> &'static str {
        type_name::<O>()
    }
}

/// Classifies errors by their own [`Classify`].
#[derive(Clone, Copy, Debug)]
pub struct ByClass;

/// Classifies errors by a closure; created by [`RetryCall::classify`] and [`RetryCall::when`].
#[derive(Clone, Copy, Debug)]
pub struct ByError<F>(F);

/// Classifies outcomes by a closure; created by [`RetryCall::judge`].
#[derive(Clone, Copy, Debug)]
pub struct ByOutcome<F>(pub(crate) F);

impl<T, E: Classify> Judge<Result<T, E>> for ByClass {
    #[inline]
    fn failure(&mut self, outcome: &Result<T, E>, classes: &ClassMap) -> Option<Failure> {
        outcome.as_ref().err().map(|error| error.classify(classes))
    }

    fn error_type() -> &'static str {
        type_name::<E>()
    }
}

impl<T, E, R: Into<Failure>, F: FnMut(&E) -> R> Judge<Result<T, E>> for ByError<F> {
    fn failure(&mut self, outcome: &Result<T, E>, _: &ClassMap) -> Option<Failure> {
        outcome.as_ref().err().map(|error| (self.0)(error).into())
    }

    fn error_type() -> &'static str {
        type_name::<E>()
    }
}

impl<O, F: FnMut(&O) -> Option<Failure>> Judge<O> for ByOutcome<F> {
    fn failure(&mut self, outcome: &O, _: &ClassMap) -> Option<Failure> {
        (self.0)(outcome)
    }
}

/// Receives a call once for each retry, before its wait.
pub trait Hook<O> {
    /// Reports that another attempt will follow.
    fn retrying(&mut self, retrying: Retrying<'_, O>);
}

/// A hook that does nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoHook;

/// Calls a closure before each retry; created by [`RetryCall::on_retry`].
#[derive(Clone, Copy, Debug)]
pub struct OnRetry<F>(F);

impl<O> Hook<O> for NoHook {
    fn retrying(&mut self, _: Retrying<'_, O>) {}
}

impl<T, E, F: FnMut(&Retrying<'_, E>)> Hook<Result<T, E>> for OnRetry<F> {
    fn retrying(&mut self, planned: Retrying<'_, Result<T, E>>) {
        let Retrying { operation, attempt, delay, elapsed, class, retry_after, error } = planned;
        let error = error.and_then(|outcome| outcome.as_ref().err());
        (self.0)(&Retrying { operation, attempt, delay, elapsed, class, retry_after, error });
    }
}

/// Determines what a call returns.
pub trait Mode<O> {
    /// The result of the call.
    type Output;
    /// Whether the executor may end a call without an outcome, and cut off an attempt.
    const CUTS: bool = true;

    /// Returns the result of a call whose attempt succeeded.
    fn succeeded(outcome: O, attempts: u32, elapsed: impl FnOnce() -> Duration) -> Self::Output;

    /// Returns the result of a call without a further attempt; `None` if the call must have an outcome first.
    fn stopped(report: JudgedReport<O>) -> Option<Self::Output>;
}

/// Returns the last outcome. A call by a policy alone never stops without one.
#[derive(Debug)]
pub enum Direct {}

/// Returns the success, or a [`RetryError`].
#[derive(Debug)]
pub enum Guarded {}

/// Returns the success in a [`Report`], or a [`RetryError`].
#[derive(Debug)]
pub enum Reported {}

/// Returns the last outcome in a [`JudgedReport`].
#[derive(Debug)]
pub enum Judged {}

impl<O> Mode<O> for Direct {
    type Output = O;
    const CUTS: bool = false;

    #[inline]
    fn succeeded(outcome: O, _: u32, _: impl FnOnce() -> Duration) -> O {
        outcome
    }

    fn stopped(report: JudgedReport<O>) -> Option<O> {
        report.outcome
    }
}

impl<T, E> Mode<Result<T, E>> for Guarded {
    type Output = Result<T, RetryError<E>>;

    #[inline]
    fn succeeded(outcome: Result<T, E>, attempts: u32, elapsed: impl FnOnce() -> Duration) -> Self::Output {
        outcome.map_err(|error| permanent(error, attempts, elapsed()))
    }

    fn stopped(report: JudgedReport<Result<T, E>>) -> Option<Self::Output> {
        Some(Err(report.into_error()))
    }
}

impl<T, E> Mode<Result<T, E>> for Reported {
    type Output = Result<Report<T>, RetryError<E>>;

    fn succeeded(outcome: Result<T, E>, attempts: u32, elapsed: impl FnOnce() -> Duration) -> Self::Output {
        let elapsed = elapsed();
        match outcome {
            Ok(value) => Ok(Report { value, attempts, elapsed }),
            Err(error) => Err(permanent(error, attempts, elapsed)),
        }
    }

    fn stopped(report: JudgedReport<Result<T, E>>) -> Option<Self::Output> {
        Some(Err(report.into_error()))
    }
}

/// Returns an error in which its judge found no failure, so that it is not repeated.
fn permanent<E>(error: E, attempts: u32, elapsed: Duration) -> RetryError<E> {
    let stopped = StopReason::Refused(GiveUpReason::Permanent);
    Details { stopped, error: Some(error), timed_out: false, attempts, elapsed }.into()
}

impl<O> Mode<O> for Judged {
    type Output = JudgedReport<O>;

    fn succeeded(outcome: O, attempts: u32, elapsed: impl FnOnce() -> Duration) -> JudgedReport<O> {
        JudgedReport { outcome: Some(outcome), timed_out: false, stopped: None, attempts, elapsed: elapsed() }
    }

    fn stopped(report: JudgedReport<O>) -> Option<JudgedReport<O>> {
        Some(report)
    }
}

/// The options of one call.
#[derive(Default)]
pub(crate) struct CallOptions<'a> {
    pub(crate) operation_id: Option<&'a str>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) cancelled: Option<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>,
}
