//! Calls to the store, with a time limit and a circuit breaker.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdoff_policy::{Admission, Breaker, BreakerOptions};

use crate::store::{LeaseStore, Result};
use crate::{Error, clock};

/// A store, and the circuit breaker that all callers of the store share.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    store: Arc<dyn LeaseStore>,
    breaker: Arc<Mutex<Breaker>>,
}

/// A failed call.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) error: Error,
    /// Whether the store may have executed the call although it failed.
    pub(crate) was_asked: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("it failed too often, and is left alone for {0:?}")]
struct LeftAlone(Duration);

#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
struct NoAnswer(Duration);

impl Asking {
    pub(crate) fn new(store: Arc<dyn LeaseStore>, breaker: BreakerOptions) -> Self {
        Self { store, breaker: Arc::new(Mutex::new(Breaker::new(breaker))) }
    }

    /// Returns the same store behind another breaker.
    pub(crate) fn behind(&self, breaker: BreakerOptions) -> Self {
        Self::new(Arc::clone(&self.store), breaker)
    }

    pub(crate) fn store(&self) -> &dyn LeaseStore {
        &*self.store
    }

    /// Makes a call if the breaker admits it, and waits for the response for at most `limit`.
    pub(crate) async fn call<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T>>,
    ) -> std::result::Result<T, Trouble> {
        let ticket = match self.breaker().admit(clock::now()) {
            Admission::Admitted(ticket) => ticket,
            Admission::Refused { retry_in } => {
                return Err(Trouble { error: passing(LeftAlone(retry_in)), was_asked: false });
            }
        };
        let answer = self.insist(limit, call).await;
        let failed = answer.as_ref().is_err_and(|trouble| trouble.error.is_transient());
        self.breaker().record(ticket, !failed, clock::now(), clock::roll());
        answer
    }

    /// Makes a call regardless of the breaker.
    ///
    /// Holders use it to renew and release. A holder must not lose its lock, nor block other contenders, because
    /// acquisitions have failed too often. Holders are few, and their calls are far apart.
    pub(crate) async fn insist<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T>>,
    ) -> std::result::Result<T, Trouble> {
        let answer = tokio::time::timeout(limit, call).await;
        let answer = answer.unwrap_or_else(|_| Err(passing(NoAnswer(limit))));
        answer.map_err(|error| Trouble { error, was_asked: true })
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn passing(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Store { transient: true, source: Box::new(source) }
}
