//! Calls to the store, with a time limit and a circuit breaker.

use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{Admission, Breaker, BreakerOptions};
use parking_lot::Mutex;

use crate::store::{LeaseStore, Result};
use crate::{Error, clock};

/// A store, and the circuit breaker that all callers of the store share.
#[derive(Clone, Debug)]
pub(crate) struct StoreClient {
    store: Arc<dyn LeaseStore>,
    breaker: Arc<Mutex<Breaker>>,
}

/// A failed call.
#[derive(Debug)]
pub(crate) struct CallError {
    pub(crate) error: Error,
    /// Whether the store may have executed the call although it failed.
    pub(crate) was_sent: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("its circuit breaker is open after too many failures; the next call is admitted in {0:?}")]
struct BreakerOpen(Duration);

#[derive(Debug, thiserror::Error)]
#[error("no response within {0:?}")]
struct CallTimedOut(Duration);

impl StoreClient {
    pub(crate) fn new(store: Arc<dyn LeaseStore>, breaker: BreakerOptions) -> Self {
        Self { store, breaker: Arc::new(Mutex::new(Breaker::new(breaker))) }
    }

    /// Returns the same store behind another breaker.
    pub(crate) fn with_breaker(&self, breaker: BreakerOptions) -> Self {
        Self::new(Arc::clone(&self.store), breaker)
    }

    pub(crate) fn store(&self) -> &dyn LeaseStore {
        &*self.store
    }

    /// Makes a call if the breaker admits it, and waits for the response for at most `timeout`.
    pub(crate) async fn call<T>(
        &self,
        timeout: Duration,
        call: impl Future<Output = Result<T>>,
    ) -> std::result::Result<T, CallError> {
        let ticket = match self.breaker.lock().admit(clock::now()) {
            Admission::Admitted(ticket) => ticket,
            Admission::Refused { retry_in } => {
                return Err(CallError { error: Error::store(true, BreakerOpen(retry_in)), was_sent: false });
            }
        };
        let response = self.call_bypassing_breaker(timeout, call).await;
        let failed = response.as_ref().is_err_and(|failed| failed.error.is_transient());
        self.breaker.lock().record(ticket, !failed, clock::now(), clock::roll());
        response
    }

    /// Makes a call regardless of the breaker.
    ///
    /// Holders use it to renew and release. A holder must not lose its lock, nor block other contenders, because
    /// acquisitions have failed too often. Holders are few, and their calls are far apart.
    pub(crate) async fn call_bypassing_breaker<T>(
        &self,
        timeout: Duration,
        call: impl Future<Output = Result<T>>,
    ) -> std::result::Result<T, CallError> {
        let response = tokio::time::timeout(timeout, call).await;
        let response = response.unwrap_or_else(|_| Err(Error::store(true, CallTimedOut(timeout))));
        response.map_err(|error| CallError { error, was_sent: true })
    }
}
