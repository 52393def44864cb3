//! One acquisition, and its options.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::Policy;
use tokio_util::sync::CancellationToken;

use super::{CreateOnce, Locks};
use crate::acquisition::{
    AcquireParams, Acquisition, Progress, Registration, classify_outcome, request_timeout,
};
use crate::store::{AcquireRequest, Result};
use crate::wait::StoreReply;
use crate::{DetachedLease, Error, Guard, LockKey, Nonce, Owner, clock, metrics, settings, validity};

/// An acquisition that has not started: `.await` it.
///
/// Dropping the future cancels the acquisition. In every case it leaves no waiting state behind.
#[derive(Clone, Debug)]
#[must_use = "nothing is acquired until it is awaited"]
pub struct Acquire {
    pub(super) locks: Locks,
    key: Vec<u8>,
    namespace: Option<String>,
    policy: Option<Policy>,
    lease: Option<Duration>,
    deadline: Option<Duration>,
    wait: Option<Duration>,
    cancel: Option<CancellationToken>,
    name: Option<String>,
}

impl Acquire {
    pub(super) fn new(locks: Locks, key: Vec<u8>) -> Self {
        let (namespace, policy, lease, deadline) = (None, None, None, None);
        Self { locks, key, namespace, policy, lease, deadline, wait: None, cancel: None, name: None }
    }

    /// Sets the namespace of the key.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the policy: when to ask again, and when to give up.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Sets the lease: how long a vanished holder blocks other contenders.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Gives up after this time, unless the policy gives up earlier.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Waits for this time, with any number of attempts; only the policy's delays apply. Zero asks once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Gives up when this token is cancelled.
    pub fn cancel(mut self, cancel: CancellationToken) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// Sets the displayed name of the holder. No decision depends on it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Acquires the lock if it is free now; returns `None` if it is not.
    pub async fn try_acquire(self) -> Result<Option<Guard>> {
        let params = self.params()?;
        let shared = &self.locks.shared;
        let Some(position) = shared.try_join_as_head(&params.key) else {
            metrics::ended(&params.key, "contended", Duration::ZERO);
            return Ok(None);
        };
        let owner = Owner { nonce: Nonce::random(), name: params.name };
        let (key, lease) = (params.key.clone(), params.lease);
        let request = AcquireRequest { key, owner: owner.clone(), lease, waits_for: None };
        let mut registration = Registration::new(Arc::clone(shared), params.key, owner);
        metrics::requested(&registration.key);
        let sent = clock::now();
        let timeout = request_timeout(lease).min(params.deadline.unwrap_or(Duration::MAX));
        let (reply, _, error) = classify_outcome(registration.send(request, timeout).await);
        match (reply, error) {
            (StoreReply::Granted(token), _) if validity::valid_until(sent, lease) > clock::now() => {
                registration.may_be_recorded = false;
                registration.ended(metrics::outcome(None));
                let nonce = registration.owner.nonce;
                let held = shared.held_lock(&registration.key, nonce, token, sent, lease, Some(position));
                Ok(Some(Guard::new(held)))
            }
            (reply, None) => {
                registration.ended("contended");
                // A grant whose response took as long as the lease is not valid.
                registration.may_be_recorded = matches!(reply, StoreReply::Granted(_));
                registration.withdraw().await;
                Ok(None)
            }
            // The store may have granted the lock. This caller does not wait for the outcome.
            (_, Some(error)) => {
                registration.ended(metrics::outcome(Some(&error)));
                registration.withdraw().await;
                Err(error)
            }
        }
    }

    /// Acquires the lock for a client that maintains it itself, such as a remote client. The library does not renew it.
    pub async fn acquire_detached(self) -> Result<DetachedLease> {
        let mut acquisition = self.begin()?;
        loop {
            if let Progress::Granted(grant) = acquisition.step().await? {
                return Ok(acquisition.detach(grant));
            }
        }
    }

    /// Creates a value once: see [`Locks::once`].
    pub fn once<T, E, P, PF, C, CF>(self, probe: P, create: C) -> CreateOnce<P, C>
    where
        P: FnMut() -> PF,
        PF: Future<Output = std::result::Result<Option<T>, E>>,
        C: FnOnce(Option<crate::Token>) -> CF,
        CF: Future<Output = std::result::Result<T, E>>,
    {
        CreateOnce::new(self, probe, create)
    }

    /// Returns the checked parameters of the acquisition.
    pub(super) fn params(&self) -> Result<AcquireParams> {
        let settings = &self.locks.shared.settings;
        let lease = self.lease.unwrap_or(settings.lease);
        settings::check_lease(lease)?;
        let name = self.name.as_ref().unwrap_or(&settings.name).clone();
        settings::check_name(&name)?;
        let policy = match (&self.policy, self.wait) {
            (None, None) => Arc::clone(&self.locks.shared.policy),
            (Some(policy), None) => Arc::new(policy.clone()),
            (policy, Some(wait)) => {
                let policy = policy.as_ref().unwrap_or(&self.locks.shared.policy);
                Arc::new(settings::until(policy, wait)?)
            }
        };
        Ok(AcquireParams {
            key: LockKey::new(self.namespace.as_deref().unwrap_or(&settings.namespace), &self.key)?,
            policy,
            lease,
            deadline: self.deadline,
            cancel: self.cancel.clone(),
            name,
        })
    }

    pub(super) fn begin(&self) -> Result<Acquisition> {
        let params = self.params()?;
        if self.cancel.as_ref().is_some_and(CancellationToken::is_cancelled) {
            return Err(Error::Cancelled);
        }
        Acquisition::begin(&self.locks.shared, params)
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Guard>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Guard>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut acquisition = self.begin()?;
            loop {
                if let Progress::Granted(grant) = acquisition.step().await? {
                    return Ok(acquisition.into_guard(grant));
                }
            }
        })
    }
}
