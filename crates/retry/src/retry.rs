//! The retry builder, common to all executors.

#[cfg(feature = "tokio")]
use std::future::Future;
#[cfg(feature = "tokio")]
use std::pin::pin;
use std::time::Duration;

use holdoff_policy::{Budget, Class, ClassMap, Policy, PolicySet};

use crate::SharedBreaker;
use crate::classify::ByTrait;
use crate::metrics;
#[cfg(feature = "tokio")]
use crate::state::Stopwatch;

/// Makes attempts until one succeeds or the policy stops.
///
/// The error type determines the failure class by its [`Classify`](crate::Classify). Cancel-safe: dropping
/// the future drops the attempt in flight.
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
#[cfg(feature = "tokio")]
pub async fn retry<T, E, F, Fut>(policy: &Policy, mut call: F) -> Result<T, crate::RetryError<E>>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: crate::Classify,
{
    if policy.deadline().is_some() {
        return Box::pin(Retry::new(policy).run(call)).await;
    }
    // The first attempt runs here. The rest is set up, in a box, only if it fails.
    let mut stopwatch = Stopwatch::default();
    match stopwatch.time(pin!(call())).await {
        Ok(value) => Ok(value),
        Err(error) => Box::pin(Retry::new(policy).resume(call, error, stopwatch)).await,
    }
}

/// A retried call with the options that a service needs.
///
/// ```
/// use holdoff_policy::{Budget, Failure, Policy};
/// use holdoff_retry::Retry;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # async fn charge() -> Result<u32, &'static str> { Ok(7) }
/// static BUDGET: std::sync::LazyLock<Budget> = std::sync::LazyLock::new(Budget::default);
///
/// let policy = Policy::standard();
/// let receipt = Retry::new(&policy)
///     .operation("card.charge")
///     .budget(&BUDGET)
///     .deadline(Duration::from_secs(20))
///     .attempt_timeout(Duration::from_secs(5))
///     .classify(|error: &&str| if *error == "busy" { Failure::transient() } else { Failure::permanent() })
///     .on_retry(|retrying, error: Option<&&str>| println!("{error:?}, again in {:?}", retrying.delay))
///     .run(|| charge())
///     .await;
/// assert_eq!(receipt, Ok(7));
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a retry does nothing until it is run"]
pub struct Retry<'a, C = ByTrait, H = NoHook> {
    pub(crate) options: Options<'a>,
    #[cfg(feature = "tokio")]
    pub(crate) cancel: Option<&'a tokio_util::sync::CancellationToken>,
    #[cfg(feature = "tokio")]
    pub(crate) refresher: Option<&'a crate::Refresher>,
    pub(crate) blocking_refresher: Option<&'a crate::blocking::Refresher>,
    pub(crate) classifier: C,
    pub(crate) hook: H,
}

/// The options that determine the behaviour of one operation.
#[derive(Clone)]
pub(crate) struct Options<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) operation: Option<&'a str>,
    pub(crate) operation_id: Option<&'a str>,
    pub(crate) budget: Option<&'a Budget>,
    pub(crate) breaker: Option<&'a SharedBreaker>,
    pub(crate) deadline: Option<Duration>,
    #[cfg(feature = "tokio")]
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) can_refresh: bool,
    pub(crate) seed: Option<u64>,
    /// The tables for the classification of errors.
    pub(crate) classes: &'a ClassMap,
}

/// The tables for callers without a policy file.
static BUILT_IN: ClassMap = ClassMap::new();

impl Options<'_> {
    pub(crate) fn earliest_deadline(&self) -> Option<Duration> {
        [self.deadline, self.policy.deadline()].into_iter().flatten().min()
    }

    /// Returns whether an attempt needs a timer or the breaker's admission.
    #[cfg(feature = "tokio")]
    pub(crate) fn has_guards(&self) -> bool {
        let is_timed = self.attempt_timeout.is_some() || self.earliest_deadline().is_some();
        is_timed || self.breaker.is_some()
    }

    /// Records an operation that succeeded at this attempt.
    pub(crate) fn count_success(&self, attempt: u32) {
        if let Some(budget) = self.budget {
            budget.refund();
        }
        if let Some(operation) = self.operation {
            metrics::succeeded(operation, attempt);
        } else if attempt > 1 {
            metrics::succeeded(metrics::UNNAMED, attempt);
        }
    }
}

impl<'a> Retry<'a> {
    /// Creates a retry by this policy.
    pub fn new(policy: &'a Policy) -> Self {
        let options = Options {
            policy,
            operation: None,
            operation_id: None,
            budget: None,
            breaker: None,
            deadline: None,
            #[cfg(feature = "tokio")]
            attempt_timeout: None,
            can_refresh: false,
            seed: None,
            classes: &BUILT_IN,
        };
        Self {
            options,
            #[cfg(feature = "tokio")]
            cancel: None,
            #[cfg(feature = "tokio")]
            refresher: None,
            blocking_refresher: None,
            classifier: ByTrait,
            hook: NoHook,
        }
    }

    /// Creates a retry by the set's policy for this operation, with the set's class tables.
    ///
    /// ```
    /// use holdoff_policy::PolicySet;
    /// use holdoff_retry::Retry;
    ///
    /// let set = PolicySet::from_toml("[operations]\n\"user.*\" = \"aggressive\"")?;
    /// let retry = Retry::for_operation(&set, PolicySet::DEFAULT_NAMESPACE, "user.login");
    /// # drop(retry);
    /// # Ok::<(), holdoff_policy::Problems>(())
    /// ```
    pub fn for_operation(set: &'a PolicySet, namespace: &str, operation: &'a str) -> Self {
        let mut retry = Self::new(set.policy_for(namespace, operation).1).operation(operation);
        retry.options.classes = set.classes();
        retry
    }
}

impl<'a, C, H> Retry<'a, C, H> {
    /// Sets the operation's name for metrics and logs. Use a small set of names: no ids, no user input.
    pub fn operation(mut self, name: &'a str) -> Self {
        self.options.operation = Some(name);
        self
    }

    /// Sets an id that distinguishes this call from others of the same operation, for logs only.
    pub fn operation_id(mut self, id: &'a str) -> Self {
        self.options.operation_id = Some(id);
        self
    }

    /// Sets the retry budget that all callers of the same dependency share.
    pub fn budget(mut self, budget: &'a Budget) -> Self {
        self.options.budget = Some(budget);
        self
    }

    /// Sets the breaker that all callers of the same dependency share.
    pub fn breaker(mut self, breaker: &'a SharedBreaker) -> Self {
        self.options.breaker = Some(breaker);
        self
    }

    /// Limits the duration of the whole operation; the policy's own deadline applies too.
    ///
    /// At the deadline, the async executor drops an attempt in flight, and the blocking executor lets it
    /// finish.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.options.deadline = Some(deadline);
        self
    }

    /// Sets the seed of the random number generator, so that a test has the same delays in every run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = Some(seed);
        self
    }

    /// Classifies errors with a closure instead of [`Classify`](crate::Classify).
    pub fn classify<E, G: Fn(&E) -> holdoff_policy::Failure>(self, classifier: G) -> Retry<'a, G, H> {
        self.with_parts(|_, hook| (classifier, hook))
    }

    /// Calls the closure once for each retry, before its wait, with the planned retry and the error that
    /// caused it.
    pub fn on_retry<E, G: FnMut(&Retrying, Option<&E>)>(self, hook: G) -> Retry<'a, C, G> {
        self.with_parts(|classifier, _| (classifier, hook))
    }

    fn with_parts<D, I>(self, change: impl FnOnce(C, H) -> (D, I)) -> Retry<'a, D, I> {
        let (classifier, hook) = change(self.classifier, self.hook);
        Retry {
            options: self.options,
            #[cfg(feature = "tokio")]
            cancel: self.cancel,
            #[cfg(feature = "tokio")]
            refresher: self.refresher,
            blocking_refresher: self.blocking_refresher,
            classifier,
            hook,
        }
    }
}

#[cfg(feature = "tokio")]
impl<'a, C, H> Retry<'a, C, H> {
    /// Limits the duration of each attempt. An attempt that exceeds it counts as a timeout, and its outcome
    /// is unknown. For the async executor only: a blocking call cannot be cut off.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.options.attempt_timeout = Some(timeout);
        self
    }

    /// Stops when the cancellation token is cancelled, also during an attempt or a wait. The blocking
    /// executor checks the token between attempts.
    pub fn cancel(mut self, token: &'a tokio_util::sync::CancellationToken) -> Self {
        self.cancel = Some(token);
        self
    }

    /// Refreshes the credentials when the server first refuses them, then retries at once. For the async
    /// executor; the blocking executor has [`refresh_blocking`](Self::refresh_blocking).
    pub fn refresh(mut self, refresher: &'a crate::Refresher) -> Self {
        self.refresher = Some(refresher);
        self
    }
}

/// A planned retry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Retrying {
    /// The attempt that failed, from 1.
    pub attempt: u32,
    /// The delay before the next attempt.
    pub delay: Duration,
    /// The failure class.
    pub class: Class,
    /// The wait that the server asked for.
    pub retry_after: Option<Duration>,
}

/// Receives a call once for each retry, before its wait.
pub trait Hook<E> {
    /// Reports that another attempt will follow.
    fn retrying(&mut self, retrying: &Retrying, error: Option<&E>);
}

/// A hook that does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHook;

impl<E> Hook<E> for NoHook {
    fn retrying(&mut self, _: &Retrying, _: Option<&E>) {}
}

impl<E, F: FnMut(&Retrying, Option<&E>)> Hook<E> for F {
    fn retrying(&mut self, retrying: &Retrying, error: Option<&E>) {
        self(retrying, error);
    }
}
