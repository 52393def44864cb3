//! Creation of a value once, for any number of callers.

use std::pin::Pin;

use super::Acquire;
use crate::pursuit::Progress;
use crate::{Error, Guard, Token, metrics};

/// A value to be created once: `.await` it.
#[derive(Clone, Debug)]
#[must_use = "nothing is made until it is awaited"]
pub struct MakeOnce<P, C> {
    acquire: Acquire,
    probe: P,
    create: C,
    anyway: bool,
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
        let (Self::Created(made) | Self::Found(made)) = self;
        made
    }
}

/// The reason why the value was not created.
#[derive(Debug, thiserror::Error)]
pub enum OnceError<E> {
    /// The lock was not acquired, or it was lost. If it was lost, the value may have been created.
    #[error(transparent)]
    Lock(Error),
    /// The probe failed. This caller has not created the value.
    #[error("looking whether it was made already failed: {0}")]
    Probe(E),
    /// The creation failed.
    #[error("making it failed: {0}")]
    Create(E),
}

impl<P, C> MakeOnce<P, C> {
    pub(super) fn new(acquire: Acquire, probe: P, create: C) -> Self {
        Self { acquire, probe, create, anyway: false }
    }

    /// Creates the value without the lock, and so without a token, if the lock cannot be acquired in time: the creation
    /// is itself idempotent. A cancelled call creates nothing.
    pub fn or_create_anyway(mut self) -> Self {
        self.anyway = true;
        self
    }

    async fn make<T, E, PF, CF>(mut self) -> Result<Once<T>, OnceError<E>>
    where
        P: FnMut() -> PF,
        PF: Future<Output = Result<Option<T>, E>>,
        C: FnOnce(Option<Token>) -> CF,
        CF: Future<Output = Result<T, E>>,
    {
        let guard = match self.guard().await {
            Ok(Ok(guard)) => guard,
            Ok(Err(found)) => return Ok(Once::Found(found)),
            Err(OnceError::Lock(error)) if self.anyway && error.is_transient() => {
                tracing::debug!(outcome = metrics::outcome(Some(&error)), "made without its lock");
                return (self.create)(None).await.map(Once::Created).map_err(OnceError::Create);
            }
            Err(error) => return Err(error),
        };
        if let Some(found) = (self.probe)().await.map_err(OnceError::Probe)? {
            return Ok(Once::Found(found));
        }
        let made = guard.run((self.create)(Some(guard.token()))).await.map_err(OnceError::Lock)?;
        let made = made.map_err(OnceError::Create)?;
        // The value exists, whether or not the release succeeds.
        if let Err(error) = guard.release().await {
            tracing::debug!(outcome = metrics::outcome(Some(&error)), "made, but its lock was not let go");
        }
        Ok(Once::Created(made))
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
        let mut pursuit = self.acquire.begin().map_err(OnceError::Lock)?;
        loop {
            match pursuit.step().await.map_err(OnceError::Lock)? {
                Progress::Granted(grant) => return Ok(Ok(pursuit.keep(grant))),
                Progress::Woke => {
                    if let Some(found) = (self.probe)().await.map_err(OnceError::Probe)? {
                        metrics::found_waiting(pursuit.key());
                        pursuit.found().await;
                        return Ok(Err(found));
                    }
                }
            }
        }
    }
}

impl<T, E, P, PF, C, CF> IntoFuture for MakeOnce<P, C>
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
        Box::pin(self.make())
    }
}
