//! The blocking executor: the same retry loop without an async runtime.
//!
//! ```
//! use holdoff_policy::Policy;
//! use holdoff_retry::blocking;
//!
//! let policy = Policy::preset("proposal").unwrap();
//! let text = blocking::retry(&policy, || Ok::<_, std::io::Error>("read"))?;
//! assert_eq!(text, "read");
//! # Ok::<(), holdoff_retry::RetryError<std::io::Error>>(())
//! ```

use std::any::type_name;
use std::error::Error;
use std::time::Duration;

use holdoff_policy::Policy;
use parking_lot::Mutex;

use crate::classify::Classifier;
use crate::outcome::Details;
use crate::retry::Hook;
use crate::shared::RefreshRounds;
use crate::state::{NextAction, RetryState};
use crate::{Classify, Report, Retry, RetryError, Retrying, StopReason};

/// Makes attempts until one succeeds or the policy stops, and sleeps on this thread in between.
pub fn retry<T, E: Classify>(
    policy: &Policy,
    call: impl FnMut() -> Result<T, E>,
) -> Result<T, RetryError<E>> {
    Retry::new(policy).run_blocking(call)
}

impl<'a, C, H> Retry<'a, C, H> {
    /// Makes attempts until one succeeds or there is no further attempt, and sleeps on this thread in
    /// between.
    ///
    /// The executor cannot cut off an attempt: give the call its own timeout.
    pub fn run_blocking<T, E>(self, call: impl FnMut() -> Result<T, E>) -> Result<T, RetryError<E>>
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
    ) -> Result<Report<T>, RetryError<E>>
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
        let mut state = RetryState::new(options);
        let mut last = None;
        loop {
            let leave = if is_cancelled() { Err(cancelled(&state)) } else { state.begin_attempt() };
            if let Err(stopped) = leave {
                return Err(failed(stopped, last, &state));
            }
            state.stopwatch().start();
            let credentials = refresher.map(Refresher::generation);
            let error = match call() {
                Ok(value) => {
                    state.succeeded();
                    return Ok(Report { value, attempts: state.made(), elapsed: state.elapsed() });
                }
                Err(error) => error,
            };
            let failure = classifier.failure(&error, state.classes());
            let mut next = state.failed(&failure, type_name::<E>());
            if let (NextAction::Refresh, Some((refresher, seen))) = (next, refresher.zip(credentials)) {
                if refresher.refresh(seen) {
                    state.refreshed(&failure);
                } else {
                    next = state.refresh_failed(&failure, type_name::<E>());
                }
            }
            let delay = match next {
                NextAction::Stop(stopped) => return Err(failed(stopped, Some(error), &state)),
                NextAction::Wait(delay) => delay,
                NextAction::Refresh => Duration::ZERO,
            };
            let (class, retry_after) = (failure.class(), failure.retry_after());
            let retrying = Retrying { attempt: state.made(), delay, class, retry_after };
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

fn cancelled(state: &RetryState<'_>) -> StopReason {
    state.stop(StopReason::Cancelled);
    StopReason::Cancelled
}

fn failed<E>(stopped: StopReason, error: Option<E>, state: &RetryState<'_>) -> RetryError<E> {
    let (attempts, elapsed) = (state.made(), state.elapsed());
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
    rounds: RefreshRounds,
    gate: Mutex<()>,
}

impl Refresher {
    /// Creates a refresher that calls this function.
    pub fn new(
        refresh: impl Fn() -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        Self { refresh: Box::new(refresh), rounds: RefreshRounds::default(), gate: Mutex::new(()) }
    }

    fn generation(&self) -> u64 {
        self.rounds.generation()
    }

    /// Refreshes the credential of generation `seen`, unless another thread has refreshed it. If another
    /// thread is refreshing it, waits for that result. Returns whether the credential was refreshed.
    fn refresh(&self, seen: u64) -> bool {
        let round = self.rounds.current();
        let _gate = self.gate.lock();
        if let Some(refreshed) = self.rounds.result_since(round, seen) {
            return refreshed;
        }
        let refreshed = (self.refresh)().is_ok();
        self.rounds.finish(refreshed);
        refreshed
    }
}

impl std::fmt::Debug for Refresher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refresher").field("generation", &self.generation()).finish_non_exhaustive()
    }
}
