//! The set-up of retries, common to all executors.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{Budget, ClassMap, Policy, PolicySet};

use crate::call::{Attempts, Direct, Guarded, Judged, RetryCall, Retryable};
use crate::metrics::Operation;
use crate::{Refresher, SharedBreaker, Sleeper, TokioSleeper};

/// The set-up of the retries of one operation: it lives in a struct, and its clones share it.
///
/// The executors, the tower layer and the reqwest middleware use the same set-up. Create it once, at the start: metrics are
/// counted through handles that its first call resolves.
///
/// ```
/// use holdoff_policy::{Budget, Policy};
/// use holdoff_retry::{Retry, RetryError};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// struct Cards {
///     charge: Retry,
/// }
///
/// impl Cards {
///     fn new(budget: Arc<Budget>) -> Self {
///         let charge = Retry::new(Policy::standard())
///             .operation("card.charge")
///             .budget(budget)
///             .deadline(Duration::from_secs(20))
///             .attempt_timeout(Duration::from_secs(5));
///         Self { charge }
///     }
///
///     async fn charge(&self, cents: u32) -> Result<u32, RetryError<std::io::Error>> {
///         self.charge.run(|| send(cents)).await
///     }
/// }
/// # async fn send(cents: u32) -> Result<u32, std::io::Error> { Ok(cents) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # assert_eq!(Cards::new(Arc::default()).charge(7).await.unwrap(), 7);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Retry<S = TokioSleeper> {
    setup: Arc<Setup>,
    sleeper: S,
}

/// The options of a [`Retry`].
#[derive(Clone, Debug)]
pub struct Setup {
    pub(crate) policy: Policy,
    pub(crate) classes: Option<Arc<ClassMap>>,
    pub(crate) operation: Option<Arc<Operation>>,
    pub(crate) budget: Option<Arc<Budget>>,
    pub(crate) breaker: Option<Arc<SharedBreaker>>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) refresher: Option<Arc<Refresher>>,
    pub(crate) blocking_refresher: Option<Arc<crate::blocking::Refresher>>,
    pub(crate) seed: Option<u64>,
}

impl Retry {
    /// Creates a set-up with this policy: a [`Policy`], or a reference to one.
    pub fn new(policy: impl Borrow<Policy>) -> Self {
        let setup = Setup {
            policy: policy.borrow().clone(),
            classes: None,
            operation: None,
            budget: None,
            breaker: None,
            deadline: None,
            attempt_timeout: None,
            refresher: None,
            blocking_refresher: None,
            seed: None,
        };
        Self { setup: Arc::new(setup), sleeper: TokioSleeper }
    }

    /// Creates a set-up with the set's policy for this operation, with its name, and with the set's class tables.
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
    pub fn for_operation(set: &PolicySet, namespace: &str, operation: &str) -> Self {
        let policy: &Policy = set.policy_for(namespace, operation).1;
        let classes = Some(Arc::new(set.classes().clone()));
        Self::new(policy).operation(operation.to_owned()).with(|setup| setup.classes = classes)
    }
}

impl From<Policy> for Retry {
    fn from(policy: Policy) -> Self {
        Self::new(policy)
    }
}

impl<S> Retry<S> {
    /// Sets the operation's name for metrics and logs. Use a small set of names: no ids, no user input.
    #[must_use]
    pub fn operation(self, name: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        let operation = Operation::new(name.into());
        self.with(|setup| setup.operation = Some(Arc::new(operation)))
    }

    /// Sets the retry budget that all callers of the same dependency share.
    #[must_use]
    pub fn budget(self, budget: Arc<Budget>) -> Self {
        self.with(|setup| setup.budget = Some(budget))
    }

    /// Sets the breaker that all callers of the same dependency share.
    #[must_use]
    pub fn breaker(self, breaker: Arc<SharedBreaker>) -> Self {
        self.with(|setup| setup.breaker = Some(breaker))
    }

    /// Limits the duration of each whole operation; the policy's own deadline applies too.
    ///
    /// At the deadline, the async executor drops an attempt in flight, and the blocking executor lets it finish.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.with(|setup| setup.deadline = Some(deadline))
    }

    /// Limits the duration of each attempt. An attempt that exceeds it counts as a timeout, and its outcome is unknown. For the
    /// async executor only: a blocking call cannot be cut off.
    #[must_use]
    pub fn attempt_timeout(self, timeout: Duration) -> Self {
        self.with(|setup| setup.attempt_timeout = Some(timeout))
    }

    /// Refreshes the credentials when the server first refuses them, then retries at once. For the async executor; the blocking
    /// executor has [`refresh_blocking`](Self::refresh_blocking).
    #[must_use]
    pub fn refresh(self, refresher: Arc<Refresher>) -> Self {
        self.with(|setup| setup.refresher = Some(refresher))
    }

    /// Refreshes the credentials when the server first refuses them, then retries at once.
    #[must_use]
    pub fn refresh_blocking(self, refresher: Arc<crate::blocking::Refresher>) -> Self {
        self.with(|setup| setup.blocking_refresher = Some(refresher))
    }

    /// Sets the seed of the random number generator of each call, so that a test has the same delays in every run.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.with(|setup| setup.seed = Some(seed))
    }

    /// Sets the timer and the clock, for a runtime other than tokio.
    pub fn sleeper<Z: Sleeper>(self, sleeper: Z) -> Retry<Z> {
        Retry { setup: self.setup, sleeper }
    }

    fn with(mut self, change: impl FnOnce(&mut Setup)) -> Self {
        change(Arc::make_mut(&mut self.setup));
        self
    }
}

impl<S: Sleeper> Retry<S> {
    /// Makes attempts until one succeeds or there is no further attempt: `retry.run(call)` is `call.retry(&retry)`.
    ///
    /// Cancel-safe: dropping the future drops the attempt in flight and returns an unused retry to the budget.
    pub fn run<A: Attempts>(&self, call: A) -> RetryCall<'_, &Self, A> {
        call.retry(self)
    }
}

/// Rules for retries: a [`Policy`] or a [`Retry`], owned or by reference.
pub trait RetryRules {
    /// Determines the result of a call.
    type Mode;
    /// Determines the result of a call with a [`judge`](RetryCall::judge).
    type Judged;

    /// Returns the policy.
    fn policy(&self) -> &Policy;

    /// Returns the options, if there are any.
    fn setup(&self) -> Option<&Setup>;
}

/// [`RetryRules`] with a timer.
///
/// `(&policy, sleeper)` adds a [`Sleeper`] to a policy, for a runtime other than tokio.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot retry an async call",
    label = "not rules with a timer",
    note = "use a `&Policy` or a `&Retry`; without the feature `tokio`, add a timer: `(&policy, smol::Timer::after)` or \
            `Retry::new(policy).sleeper(smol::Timer::after)`"
)]
pub trait RetryBy: RetryRules {
    /// The timer and the clock.
    type Sleeper: Sleeper;

    /// Returns the timer and the clock.
    fn sleeper(&self) -> &Self::Sleeper;
}

impl RetryRules for Policy {
    type Mode = Direct;
    type Judged = Direct;

    fn policy(&self) -> &Policy {
        self
    }

    fn setup(&self) -> Option<&Setup> {
        None
    }
}

#[cfg(feature = "tokio")]
impl RetryBy for Policy {
    type Sleeper = TokioSleeper;

    fn sleeper(&self) -> &TokioSleeper {
        &TokioSleeper
    }
}

impl<S> RetryRules for Retry<S> {
    type Mode = Guarded;
    type Judged = Judged;

    fn policy(&self) -> &Policy {
        &self.setup.policy
    }

    fn setup(&self) -> Option<&Setup> {
        Some(&self.setup)
    }
}

impl<S: Sleeper> RetryBy for Retry<S> {
    type Sleeper = S;

    fn sleeper(&self) -> &S {
        &self.sleeper
    }
}

macro_rules! through {
    ($($pointer:ty),+) => {$(
        impl<R: RetryRules> RetryRules for $pointer {
            type Mode = R::Mode;
            type Judged = R::Judged;

            fn policy(&self) -> &Policy {
                (**self).policy()
            }

            fn setup(&self) -> Option<&Setup> {
                (**self).setup()
            }
        }

        impl<R: RetryBy> RetryBy for $pointer {
            type Sleeper = R::Sleeper;

            fn sleeper(&self) -> &R::Sleeper {
                (**self).sleeper()
            }
        }
    )+};
}

through!(&R, Arc<R>);

impl<R: RetryRules, S> RetryRules for (R, S) {
    type Mode = R::Mode;
    type Judged = R::Judged;

    fn policy(&self) -> &Policy {
        self.0.policy()
    }

    fn setup(&self) -> Option<&Setup> {
        self.0.setup()
    }
}

impl<R: RetryRules, S: Sleeper> RetryBy for (R, S) {
    type Sleeper = S;

    fn sleeper(&self) -> &S {
        &self.1
    }
}
