//! The blocking executor: the same retries without an async runtime.
//!
//! ```
//! use holdoff_policy::Policy;
//! use holdoff_retry::blocking::Retryable;
//!
//! fn read() -> Result<&'static str, std::io::Error> {
//!     Ok("read")
//! }
//!
//! let text = read.retry(&Policy::standard()).call()?;
//! assert_eq!(text, "read");
//! # Ok::<(), std::io::Error>(())
//! ```

use std::error::Error;
use std::future::{Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::RetryCall;
use crate::call::{Attempts, ByClass};
use crate::retry::{RetryBy, RetryRules};
use crate::shared::RefreshRounds;
use crate::sleeper::ThreadSleeper;

/// A blocking call that can be made again.
#[derive(Clone, Copy, Debug)]
pub struct OnThread<F>(F);

impl<F: FnMut() -> O, O> Attempts for OnThread<F> {
    type Outcome = O;
    type Attempt = Ready<O>;
    const BLOCKS: bool = true;

    fn attempt(&mut self) -> Ready<O> {
        ready((self.0)())
    }
}

/// Makes attempts until one succeeds or the policy stops: `retry(&policy, call).call()` is `call.retry(&policy).call()`.
pub fn retry<'a, R: RetryRules, F: FnMut() -> O, O>(
    by: R,
    call: F,
) -> RetryCall<'a, (R, ThreadSleeper), OnThread<F>> {
    call.retry(by)
}

/// Adds [`retry`](Self::retry) to functions and closures that block.
pub trait Retryable<O>: FnMut() -> O + Sized {
    /// Retries this call by a policy or by a [`Retry`](crate::Retry), and sleeps on this thread in between. It has the methods of
    /// an async call; [`call`](RetryCall::call) runs it.
    ///
    /// The executor cannot cut off an attempt: give the call its own timeout.
    fn retry<'a, R: RetryRules>(self, by: R) -> RetryCall<'a, (R, ThreadSleeper), OnThread<Self>> {
        RetryCall::new((by, ThreadSleeper), OnThread(self), ByClass)
    }
}

impl<F: FnMut() -> O, O> Retryable<O> for F {}

impl<P: RetryBy, F: FnMut() -> O, O, J, H, M> RetryCall<'_, P, OnThread<F>, J, H, M> {
    /// Runs a blocking call.
    pub fn call(self) -> <Self as Future>::Output
    where
        Self: Future,
    {
        let mut call = pin!(self);
        let mut context = Context::from_waker(Waker::noop());
        // The attempts and waits block, so only a zero delay is ever pending.
        loop {
            if let Poll::Ready(output) = call.as_mut().poll(&mut context) {
                return output;
            }
        }
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

    pub(crate) fn generation(&self) -> u64 {
        self.rounds.generation()
    }

    /// Refreshes the credential of generation `seen`, unless another thread has refreshed it. If another
    /// thread is refreshing it, waits for that result. Returns whether the credential was refreshed.
    pub(crate) fn refresh(&self, seen: u64) -> bool {
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
