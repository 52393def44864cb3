//! Creation of a value once, for any number of callers.

use std::pin::Pin;

use holdoff_policy::{ClassMap, Classify, Failure};

use super::Acquire;
use crate::acquisition::Progress;
use crate::{Error, Guard, Token, metrics};

/// A value to be created once: `.await` it.
#[derive(Clone, Debug)]
#[must_use = "nothing is created until it is awaited"]
pub struct CreateOnce<P, C> {
    acquire: Acquire,
    probe: P,
    create: C,
    without_lock: bool,
}

/// The origin of the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Once<T> {
    /// This caller created it.
    Created(T),
    /// Another caller had created it.
    Found(T),
}

impl<T> Once<T> {
    /// Returns the value, regardless of its origin.
    pub fn into_inner(self) -> T {
        let (Self::Created(value) | Self::Found(value)) = self;
        value
    }
}

/// The reason why the value was not created.
#[derive(Debug, thiserror::Error)]
pub enum OnceError<E> {
    /// The lock was not acquired, or it was lost. If it was lost, the value may have been created.
    #[error(transparent)]
    Lock(Error),
    /// The probe failed. This caller has not created the value.
    #[error("the probe for the existing value failed: {0}")]
    Probe(E),
    /// The creation failed.
    #[error("the creation of the value failed: {0}")]
    Create(E),
}

impl<E: Classify> Classify for OnceError<E> {
    fn classify(&self, classes: &ClassMap) -> Failure {
        match self {
            Self::Lock(error) => error.classify(classes),
            Self::Probe(error) | Self::Create(error) => error.classify(classes),
        }
    }
}

impl<P, C> CreateOnce<P, C> {
    pub(super) fn new(acquire: Acquire, probe: P, create: C) -> Self {
        Self { acquire, probe, create, without_lock: false }
    }

    /// Creates the value without the lock, and so without a token, if the lock cannot be acquired in time: the creation
    /// is itself idempotent. A cancelled call creates nothing.
    pub fn or_create_anyway(mut self) -> Self {
        self.without_lock = true;
        self
    }

    async fn create_once<T, E, PF, CF>(mut self) -> Result<Once<T>, OnceError<E>>
    where
        P: FnMut() -> PF,
        PF: Future<Output = Result<Option<T>, E>>,
        C: FnOnce(Option<Token>) -> CF,
        CF: Future<Output = Result<T, E>>,
    {
        let guard = match self.guard().await {
            Ok(Ok(guard)) => guard,
            Ok(Err(found)) => return Ok(Once::Found(found)),
            Err(OnceError::Lock(error)) if self.without_lock && error.is_transient() => {
                tracing::debug!(outcome = metrics::outcome(Some(&error)), "created a value without the lock");
                return (self.create)(None).await.map(Once::Created).map_err(OnceError::Create);
            }
            Err(error) => return Err(error),
        };
        if let Some(found) = (self.probe)().await.map_err(OnceError::Probe)? {
            return Ok(Once::Found(found));
        }
        let created = guard.run((self.create)(Some(guard.token()))).await.map_err(OnceError::Lock)?;
        let value = created.map_err(OnceError::Create)?;
        // The value exists, whether or not the release succeeds.
        if let Err(error) = guard.release().await {
            tracing::debug!(
                outcome = metrics::outcome(Some(&error)),
                "created a value, but failed to release its lock"
            );
        }
        Ok(Once::Created(value))
    }

    /// Returns the guard, or the value if a probe found it before the lock was acquired.
    async fn guard<T, E, PF>(&mut self) -> Result<Result<Guard, T>, OnceError<E>>
    where
        P: FnMut() -> PF,
        PF: Future<Output = Result<Option<T>, E>>,
    {
        if let Some(found) = (self.probe)().await.map_err(OnceError::Probe)? {
            return Ok(Err(found));
        }
        let mut acquisition = self.acquire.begin().map_err(OnceError::Lock)?;
        loop {
            match acquisition.step().await.map_err(OnceError::Lock)? {
                Progress::Granted(grant) => return Ok(Ok(acquisition.into_guard(grant))),
                Progress::Woke => {
                    if let Some(found) = (self.probe)().await.map_err(OnceError::Probe)? {
                        metrics::found_before_grant(acquisition.key());
                        acquisition.abandon().await;
                        return Ok(Err(found));
                    }
                }
            }
        }
    }
}

impl<T, E, P, PF, C, CF> IntoFuture for CreateOnce<P, C>
where
    T: Send + 'static,
    E: Send + 'static,
    P: FnMut() -> PF + Send + 'static,
    PF: Future<Output = Result<Option<T>, E>> + Send + 'static,
    C: FnOnce(Option<Token>) -> CF + Send + 'static,
    CF: Future<Output = Result<T, E>> + Send + 'static,
{
    type Output = Result<Once<T>, OnceError<E>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.create_once())
    }
}
