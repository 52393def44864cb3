//! State that all callers of the same dependency share: the circuit breaker, and the refresher of its credential.

#[cfg(feature = "tokio")]
use std::error::Error;
#[cfg(feature = "tokio")]
use std::fmt;
#[cfg(feature = "tokio")]
use std::future::Future;
#[cfg(feature = "tokio")]
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdoff_policy::{Admission, Breaker, BreakerOptions, BreakerState, Ticket};
use parking_lot::Mutex;

use crate::state::{self, Instant};

#[cfg(feature = "tokio")]
type BoxError = Box<dyn Error + Send + Sync>;
#[cfg(feature = "tokio")]
type RefreshFn = dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>> + Send + Sync;

/// A [`Breaker`] with a clock, shared by all callers of the same dependency.
#[derive(Debug)]
pub struct SharedBreaker {
    breaker: Mutex<Breaker>,
    epoch: Instant,
}

impl SharedBreaker {
    /// Creates a closed breaker.
    pub fn new(options: BreakerOptions) -> Self {
        Self { breaker: Mutex::new(Breaker::new(options)), epoch: state::now() }
    }

    /// Returns the state.
    pub fn state(&self) -> BreakerState {
        self.breaker.lock().state()
    }

    pub(crate) fn admit(&self) -> Result<Ticket, Duration> {
        let now = self.now();
        match self.breaker.lock().admit(now) {
            Admission::Admitted(ticket) => Ok(ticket),
            Admission::Refused { retry_in } => Err(retry_in),
        }
    }

    pub(crate) fn record(&self, ticket: Ticket, succeeded: bool, roll: u32) {
        let now = self.now();
        self.breaker.lock().record(ticket, succeeded, now, roll);
    }

    fn now(&self) -> Duration {
        state::now().saturating_duration_since(self.epoch)
    }
}

/// Counts the refreshes of a credential, so that concurrent callers refresh it once and share the result.
///
/// A caller reads [`current`](Self::current), then waits for the refresher's gate, then asks
/// [`result_since`](Self::result_since) whether another caller has refreshed meanwhile.
#[derive(Debug, Default)]
pub(crate) struct RefreshRounds {
    /// Incremented by every successful refresh.
    generation: AtomicU64,
    /// Incremented by every refresh, so that callers that waited for a failed refresh share its failure.
    rounds: AtomicU64,
}

impl RefreshRounds {
    /// Returns the number of successful refreshes.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the number of refreshes.
    pub(crate) fn current(&self) -> u64 {
        self.rounds.load(Ordering::Acquire)
    }

    /// Returns whether the refreshes since `round` replaced the credential of generation `seen`; `None` if there was
    /// no refresh, so that the caller must refresh.
    pub(crate) fn result_since(&self, round: u64, seen: u64) -> Option<bool> {
        if self.generation() > seen {
            return Some(true);
        }
        (self.current() > round).then_some(false)
    }

    /// Records a refresh.
    pub(crate) fn finish(&self, succeeded: bool) {
        self.generation.fetch_add(u64::from(succeeded), Ordering::AcqRel);
        self.rounds.fetch_add(1, Ordering::AcqRel);
    }
}

/// Refreshes one credential, once for all callers whose requests were refused.
///
/// Create one refresher for each credential and share it. A caller records the credential's generation before
/// its call. If the server refuses the credential, the first caller to report it performs the refresh, and
/// all other callers wait for the result.
///
/// ```
/// use holdoff_policy::{Class, Failure, Policy};
/// use holdoff_retry::{Refresher, Retry};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let refresher = Refresher::new(|| async { Ok(()) });
/// let policy = Policy::standard();
/// let mut tokens = ["expired", "fresh"].into_iter();
/// let answer = Retry::new(&policy)
///     .refresh(&refresher)
///     .classify(|_: &()| Failure::new(Class::Unauthorized))
///     .run(|| {
///         let token = tokens.next();
///         async move { if token == Some("fresh") { Ok("welcome") } else { Err(()) } }
///     })
///     .await;
/// assert_eq!(answer, Ok("welcome"));
/// # }
/// ```
#[cfg(feature = "tokio")]
pub struct Refresher {
    refresh: Box<RefreshFn>,
    rounds: RefreshRounds,
    gate: tokio::sync::Mutex<()>,
}

/// The refresh failed; the credentials are unchanged.
#[cfg(feature = "tokio")]
#[derive(Debug)]
pub struct RefreshFailed(Option<BoxError>);

#[cfg(feature = "tokio")]
impl fmt::Display for RefreshFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the credentials could not be refreshed and are unchanged")
    }
}

#[cfg(feature = "tokio")]
impl Error for RefreshFailed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.as_ref().map(|error| &**error as &(dyn Error + 'static))
    }
}

#[cfg(feature = "tokio")]
impl Refresher {
    /// Creates a refresher that calls this function.
    pub fn new<F, Fut>(refresh: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let refresh = Box::new(move || Box::pin(refresh()) as Pin<Box<_>>);
        Self { refresh, rounds: RefreshRounds::default(), gate: tokio::sync::Mutex::new(()) }
    }

    /// Returns the number of successful refreshes so far.
    pub fn generation(&self) -> u64 {
        self.rounds.generation()
    }

    /// Refreshes the credential of generation `seen`, unless another caller has refreshed it. If another
    /// caller is refreshing it, waits for that result.
    ///
    /// Cancel-safe: if the future is dropped during a refresh, the next waiting caller refreshes.
    pub async fn refresh(&self, seen: u64) -> Result<(), RefreshFailed> {
        let round = self.rounds.current();
        let _gate = self.gate.lock().await;
        match self.rounds.result_since(round, seen) {
            Some(true) => return Ok(()),
            Some(false) => return Err(RefreshFailed(None)),
            None => {}
        }
        let refreshed = (self.refresh)().await;
        self.rounds.finish(refreshed.is_ok());
        refreshed.map_err(|error| RefreshFailed(Some(error)))
    }
}

#[cfg(feature = "tokio")]
impl fmt::Debug for Refresher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refresher").field("generation", &self.generation()).finish_non_exhaustive()
    }
}
