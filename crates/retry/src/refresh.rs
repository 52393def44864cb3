//! Refreshes credentials once for all concurrent callers.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

type BoxError = Box<dyn Error + Send + Sync>;
type RefreshFn = dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>> + Send + Sync;

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
pub struct Refresher {
    refresh: Box<RefreshFn>,
    /// Incremented by every successful refresh.
    generation: AtomicU64,
    /// Incremented by every refresh, so that callers that waited for a failed refresh share its failure.
    rounds: AtomicU64,
    gate: Mutex<()>,
}

/// The refresh failed; the credentials are unchanged.
#[derive(Debug)]
pub struct RefreshFailed(Option<BoxError>);

impl fmt::Display for RefreshFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the credentials could not be refreshed; they are as they were")
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
        Self { refresh, generation: AtomicU64::new(0), rounds: AtomicU64::new(0), gate: Mutex::new(()) }
    }

    /// Returns the number of successful refreshes so far.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Refreshes the credential of generation `seen`, unless another caller has refreshed it. If another
    /// caller is refreshing it, waits for that result.
    ///
    /// Cancel-safe: if the future is dropped during a refresh, the next waiting caller refreshes.
    pub async fn refresh(&self, seen: u64) -> Result<(), RefreshFailed> {
        let rounds = self.rounds.load(Ordering::Acquire);
        let _gate = self.gate.lock().await;
        if self.generation() > seen {
            return Ok(());
        }
        if self.rounds.load(Ordering::Acquire) > rounds {
            return Err(RefreshFailed(None));
        }
        let refreshed = (self.refresh)().await;
        self.generation.fetch_add(u64::from(refreshed.is_ok()), Ordering::AcqRel);
        self.rounds.fetch_add(1, Ordering::AcqRel);
        refreshed.map_err(|error| RefreshFailed(Some(error)))
    }
}

impl fmt::Debug for Refresher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refresher").field("generation", &self.generation()).finish_non_exhaustive()
    }
}
