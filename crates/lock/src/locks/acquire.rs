//! One acquisition, and its options.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::Policy;
use tokio_util::sync::CancellationToken;

use super::{Locks, MakeOnce};
use crate::pursuit::{Progress, Pursuit, Terms, Wish, answer_limit, understand};
use crate::store::{Bid, Result};
use crate::wait::Reply;
use crate::{Error, Guard, Handover, Key, Nonce, Owner, clock, metrics, settings, tenure};

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
    pub async fn at_once(self) -> Result<Option<Guard>> {
        let terms = self.terms()?;
        let shared = &self.locks.shared;
        let Some(place) = shared.first_place(&terms.key) else {
            metrics::ended(&terms.key, "contended", Duration::ZERO);
            return Ok(None);
        };
        let owner = Owner { nonce: Nonce::fresh(), name: terms.name };
        let bid = Bid { key: terms.key.clone(), owner: owner.clone(), lease: terms.lease, waits: None };
        let mut wish = Wish::new(Arc::clone(shared), terms.key, owner);
        metrics::asked(&wish.key);
        let sent = clock::now();
        let limit = answer_limit(terms.lease).min(terms.deadline.unwrap_or(Duration::MAX));
        let (reply, _, trouble) = understand(wish.send(bid, limit).await);
        match (reply, trouble) {
            (Reply::Granted(token), _) if tenure::valid_until(sent, terms.lease) > clock::now() => {
                wish.was_asked = false;
                wish.ended(metrics::outcome(None));
                let nonce = wish.owner.nonce;
                Ok(Some(Guard::keep(shared.holding(&wish.key, nonce, token, sent, terms.lease, Some(place)))))
            }
            (reply, None) => {
                wish.ended("contended");
                // A grant whose response took as long as the lease is not valid.
                wish.was_asked = matches!(reply, Reply::Granted(_));
                wish.withdraw().await;
                Ok(None)
            }
            // The store may have granted the lock. This caller does not wait for the outcome.
            (_, Some(error)) => {
                wish.ended(metrics::outcome(Some(&error)));
                wish.withdraw().await;
                Err(error)
            }
        }
    }

    /// Acquires the lock for a client that maintains it itself, such as a remote client. The library does not renew it.
    pub async fn hand_over(self) -> Result<Handover> {
        let mut pursuit = self.begin()?;
        loop {
            if let Progress::Granted(grant) = pursuit.step().await? {
                return Ok(pursuit.hand_over(grant));
            }
        }
    }

    /// Creates a value once: see [`Locks::once`].
    pub fn once<T, E, P, PF, C, CF>(self, probe: P, create: C) -> MakeOnce<P, C>
    where
        P: FnMut() -> PF,
        PF: Future<Output = std::result::Result<Option<T>, E>>,
        C: FnOnce(Option<crate::Token>) -> CF,
        CF: Future<Output = std::result::Result<T, E>>,
    {
        MakeOnce::new(self, probe, create)
    }

    /// Returns the checked parameters of the acquisition.
    pub(super) fn terms(&self) -> Result<Terms> {
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
        Ok(Terms {
            key: Key::new(self.namespace.as_deref().unwrap_or(&settings.namespace), &self.key)?,
            policy,
            lease,
            deadline: self.deadline,
            cancel: self.cancel.clone(),
            name,
        })
    }

    pub(super) fn begin(&self) -> Result<Pursuit> {
        let terms = self.terms()?;
        if self.cancel.as_ref().is_some_and(CancellationToken::is_cancelled) {
            return Err(Error::Cancelled);
        }
        Pursuit::begin(&self.locks.shared, terms)
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Guard>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Guard>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut pursuit = self.begin()?;
            loop {
                if let Progress::Granted(grant) = pursuit.step().await? {
                    return Ok(pursuit.keep(grant));
                }
            }
        })
    }
}
