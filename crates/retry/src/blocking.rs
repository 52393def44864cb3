//! The blocking executor: the same retry loop without an async runtime.
//!
//! ```
//! use holdoff_policy::Policy;
//! use holdoff_retry::blocking;
//!
//! let policy = Policy::preset("proposal").unwrap();
//! let text = blocking::retry(&policy, || Ok::<_, std::io::Error>("read"))?;
//! assert_eq!(text, "read");
//! # Ok::<(), holdoff_retry::Failed<std::io::Error>>(())
//! ```

use std::any::type_name;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use holdoff_policy::Policy;

use crate::classify::Classifier;
use crate::course::{Course, Next};
use crate::failed::Details;
use crate::retry::Hook;
use crate::{Classify, Failed, Report, Retry, Retrying, Stopped};

/// Makes attempts until one succeeds or the policy stops, and sleeps on this thread in between.
pub fn retry<T, E: Classify>(policy: &Policy, call: impl FnMut() -> Result<T, E>) -> Result<T, Failed<E>> {
    Retry::new(policy).run_blocking(call)
}

impl<'a, C, H> Retry<'a, C, H> {
    /// Makes attempts until one succeeds or there is no further attempt, and sleeps on this thread in
    /// between.
    ///
    /// The executor cannot cut off an attempt: give the call its own timeout.
    pub fn run_blocking<T, E>(self, call: impl FnMut() -> Result<T, E>) -> Result<T, Failed<E>>
    where
        C: Classifier<E>,
        H: Hook<E>,
    {
        self.run_blocking_reporting(call).map(|report| report.value)
    }

    /// Like [`run_blocking`](Self::run_blocking), but a success includes the number of attempts.
    pub fn run_blocking_reporting<T, E>(
        self,
        mut call: impl FnMut() -> Result<T, E>,
    ) -> Result<Report<T>, Failed<E>>
    where
        C: Classifier<E>,
        H: Hook<E>,
    {
        #[cfg(feature = "tokio")]
        let cancel = self.cancel;
        let is_cancelled = || {
            #[cfg(feature = "tokio")]
            return cancel.is_some_and(tokio_util::sync::CancellationToken::is_cancelled);
            #[cfg(not(feature = "tokio"))]
            false
        };
        let Self { mut options, classifier, mut hook, blocking_refresher: refresher, .. } = self;
        options.can_refresh = refresher.is_some();
        let mut course = Course::new(options);
        let mut last = None;
        loop {
            let leave = if is_cancelled() { Err(cancelled(&course)) } else { course.begin_attempt() };
            if let Err(stopped) = leave {
                return Err(failed(stopped, last, &course));
            }
            course.stopwatch().start();
            let credentials = refresher.map(Refresher::generation);
            let error = match call() {
                Ok(value) => {
                    course.succeeded();
                    return Ok(Report { value, attempts: course.made(), elapsed: course.elapsed() });
                }
                Err(error) => error,
            };
            let failure = classifier.failure(&error, course.classes());
            let mut next = course.failed(&failure, type_name::<E>());
            if let (Next::Refresh, Some((refresher, seen))) = (next, refresher.zip(credentials)) {
                if refresher.refresh(seen) {
                    course.refreshed(&failure);
                } else {
                    next = course.refresh_failed(&failure, type_name::<E>());
                }
            }
            let delay = match next {
                Next::Stop(stopped) => return Err(failed(stopped, Some(error), &course)),
                Next::Wait(delay) => delay,
                Next::Refresh => Duration::ZERO,
            };
            let (class, retry_after) = (failure.class(), failure.retry_after());
            let retrying = Retrying { attempt: course.made(), delay, class, retry_after };
            hook.retrying(&retrying, Some(&error));
            sleep(delay);
            last = Some(error);
        }
    }

    /// Refreshes the credentials when the server first refuses them, then retries at once.
    pub fn refresh_blocking(mut self, refresher: &'a Refresher) -> Self {
        self.blocking_refresher = Some(refresher);
        self
    }
}

fn cancelled(course: &Course<'_>) -> Stopped {
    course.stop(Stopped::Cancelled);
    Stopped::Cancelled
}

fn failed<E>(stopped: Stopped, error: Option<E>, course: &Course<'_>) -> Failed<E> {
    let (attempts, elapsed) = (course.made(), course.elapsed());
    Details { stopped, error, timed_out: false, attempts, elapsed }.into()
}

#[expect(clippy::disallowed_methods, reason = "this is the blocking executor")]
fn sleep(delay: Duration) {
    if !delay.is_zero() {
        std::thread::sleep(delay);
    }
}

type RefreshFn = dyn Fn() -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync;

/// Refreshes one credential, once for all threads whose requests were refused.
pub struct Refresher {
    refresh: Box<RefreshFn>,
    generation: AtomicU64,
    rounds: AtomicU64,
    gate: Mutex<()>,
}

impl Refresher {
    /// Creates a refresher that calls this function.
    pub fn new(
        refresh: impl Fn() -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        let (generation, rounds) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { refresh: Box::new(refresh), generation, rounds, gate: Mutex::new(()) }
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Refreshes the credential of generation `seen`, unless another thread has refreshed it. If another
    /// thread is refreshing it, waits for that result. Returns whether the credential was refreshed.
    fn refresh(&self, seen: u64) -> bool {
        let rounds = self.rounds.load(Ordering::Acquire);
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        if self.generation() > seen {
            return true;
        }
        if self.rounds.load(Ordering::Acquire) > rounds {
            return false;
        }
        let refreshed = (self.refresh)().is_ok();
        self.generation.fetch_add(u64::from(refreshed), Ordering::AcqRel);
        self.rounds.fetch_add(1, Ordering::AcqRel);
        refreshed
    }
}

impl std::fmt::Debug for Refresher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refresher").field("generation", &self.generation()).finish_non_exhaustive()
    }
}
