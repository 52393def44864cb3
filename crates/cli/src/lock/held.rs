//! A lock that this command holds.

use holdoff::client::{Client, LockGuard};
use holdoff_lock::{Error, Guard, Locks, Settings};
use tokio_util::sync::CancellationToken;

use super::run::CONTENDED;
use crate::daemon;
use crate::failure::Failure;

/// A lock that this command holds and renews.
pub(super) enum Held {
    /// A lock in a store.
    Own(Box<Guard>),
    /// A lock that a daemon grants, with its namespace.
    Lent(Box<LockGuard>, String),
}

/// The outcome of a release.
pub(super) enum Released {
    Done,
    /// The lease was lost before the release.
    Lost,
    /// The release failed. The lock becomes free when its lease expires.
    Not(String),
}

impl Held {
    /// Acquires a lock in a store.
    pub(super) async fn own(
        locks: &Locks,
        settings: Settings,
        key: &str,
        cancel: CancellationToken,
    ) -> Result<Self, Failure> {
        let acquired = locks.with_settings(settings)?.acquire(key).cancel(cancel).await;
        acquired.map(|guard| Self::Own(Box::new(guard))).map_err(|error| match error {
            Error::Contended { .. } | Error::DeadlineExceeded { .. } => {
                Failure::Coded(CONTENDED, format!("{key}: {error}"))
            }
            error => error.into(),
        })
    }

    /// Acquires a lock through a daemon. The default wait is twice the lease. A caller that stops waiting leaves no
    /// waiter at the daemon.
    pub(super) async fn lent(
        address: &str,
        settings: &Settings,
        namespace: &str,
        key: &str,
    ) -> Result<Self, Failure> {
        let mut client = Client::builder(address);
        if let Some(token) = daemon::token() {
            client = client.token(token);
        }
        let client = client.build().map_err(|error| Failure::Usage(error.to_string()))?;
        let name = format!("holdoff-{}", std::process::id());
        let lock = client.lock(key).namespace(namespace).name(name).lease(settings.lease());
        let wait = settings.wait().unwrap_or_else(|| settings.lease().saturating_mul(2));
        let guard = lock.wait(wait).acquire().await.map_err(|error| {
            match error.problem().map(|problem| (problem.kind(), problem.status)) {
                Some(("lock-held", _)) => Failure::Coded(CONTENDED, format!("{key}: {error}")),
                Some((_, 400)) => Failure::Usage(error.to_string()),
                _ => Failure::Failed(error.to_string()),
            }
        })?;
        Ok(Self::Lent(Box::new(guard), namespace.to_owned()))
    }

    pub(super) fn token(&self) -> u64 {
        match self {
            Self::Own(guard) => guard.token().get(),
            Self::Lent(guard, _) => guard.token(),
        }
    }

    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Own(guard) => guard.key().namespace(),
            Self::Lent(_, namespace) => namespace,
        }
    }

    /// Waits until the lease is lost.
    pub(super) async fn lost(&self) {
        match self {
            Self::Own(guard) => guard.lost().await,
            Self::Lent(guard, _) => guard.lost().await,
        }
    }

    pub(super) async fn release(self) -> Released {
        match self {
            Self::Own(guard) => match guard.release().await {
                Ok(()) => Released::Done,
                Err(Error::Lost { .. }) => Released::Lost,
                Err(error) => Released::Not(error.to_string()),
            },
            Self::Lent(guard, _) => match guard.release().await {
                Ok(()) => Released::Done,
                Err(error) if error.problem().is_some_and(|problem| problem.kind() == "lock-lost") => {
                    Released::Lost
                }
                Err(error) => Released::Not(error.to_string()),
            },
        }
    }
}
