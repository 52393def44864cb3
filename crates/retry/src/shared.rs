//! State that all callers of the same dependency share: the circuit breaker, and the refresher of its credential.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdoff_policy::{Admission, Breaker, BreakerOptions, BreakerState, Ticket};
use parking_lot::Mutex;

type BoxError = Box<dyn Error + Send + Sync>;
type RefreshFn = dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>> + Send + Sync;

/// A [`Breaker`] shared by all callers of the same dependency.
#[derive(Debug)]
pub struct SharedBreaker(Mutex<Breaker>);

impl Default for SharedBreaker {
    fn default() -> Self {
        Self::new(BreakerOptions::default())
    }
}

impl SharedBreaker {
    /// Creates a closed breaker.
    pub fn new(options: BreakerOptions) -> Self {
        Self(Mutex::new(Breaker::new(options)))
    }

    /// Returns the state.
    pub fn state(&self) -> BreakerState {
        self.0.lock().state()
    }

    pub(crate) fn admit(&self, now: Duration) -> Result<Ticket, Duration> {
        match self.0.lock().admit(now) {
            Admission::Admitted(ticket) => Ok(ticket),
            Admission::Refused { retry_in } => Err(retry_in),
        }
    }

    pub(crate) fn record(&self, ticket: Ticket, succeeded: bool, now: Duration, roll: u32) {
        self.0.lock().record(ticket, succeeded, now, roll);
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
/// use holdoff_policy::{Class, Policy};
/// use holdoff_retry::{Refresher, Retry};
/// use std::sync::Arc;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let refresher = Arc::new(Refresher::new(|| async { Ok(()) }));
/// let retry = Retry::new(Policy::standard()).refresh(refresher);
/// let mut tokens = ["expired", "fresh"].into_iter();
/// let answer = retry
///     .run(|| {
///         let token = tokens.next();
///         async move { if token == Some("fresh") { Ok("welcome") } else { Err(()) } }
///     })
///     .classify(|_| Class::Unauthorized)
///     .await
///     .unwrap();
/// assert_eq!(answer, "welcome");
/// # }
/// ```
pub struct Refresher {
    refresh: Box<RefreshFn>,
    rounds: RefreshRounds,
    gate: tokio::sync::Mutex<()>,
}

/// The refresh failed; the credentials are unchanged.
#[derive(Debug)]
pub struct RefreshFailed(Option<BoxError>);

impl fmt::Display for RefreshFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the credentials could not be refreshed and are unchanged")
    }
}

impl Error for RefreshFailed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.as_ref().map(|error| &**error as &(dyn Error + 'static))
    }
}

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

impl fmt::Debug for Refresher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refresher").field("generation", &self.generation()).finish_non_exhaustive()
    }
}
