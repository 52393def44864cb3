//! Tools for the tests of programs that retry: scripted outcomes, fake time, and chaos.
//!
//! ```
//! use holdoff_policy::Policy;
//! use holdoff_retry::Retryable;
//! use holdoff_retry::testing::{FakeTime, Script};
//! use std::io::{Error, ErrorKind};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
//! let script = Script::new([Err(Error::from(ErrorKind::ConnectionReset)), Ok("page")]);
//! let time = FakeTime::new();
//! let page = (|| script.call()).retry(&Policy::standard()).sleeper(time.clone()).await?;
//! assert_eq!((page, script.calls(), time.waits().len()), ("page", 2, 1));
//! # Ok(()) }
//! ```

use std::collections::VecDeque;
use std::future::{Future, Ready, ready};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;

use crate::{Sleeper, TokioSleeper};

/// A call with scripted outcomes.
#[derive(Debug)]
pub struct Script<O> {
    outcomes: Mutex<VecDeque<O>>,
    calls: AtomicU32,
}

impl<O> Script<O> {
    /// Creates a call with these outcomes, in order.
    pub fn new(outcomes: impl IntoIterator<Item = O>) -> Self {
        Self { outcomes: Mutex::new(outcomes.into_iter().collect()), calls: AtomicU32::new(0) }
    }

    /// Makes the call.
    ///
    /// # Panics
    ///
    /// If the script has ended: the program made more attempts than the test expects.
    #[expect(clippy::panic, reason = "a test fails by panicking")]
    pub fn call(&self) -> Ready<O> {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        match self.outcomes.lock().pop_front() {
            Some(outcome) => ready(outcome),
            None => panic!("attempt {} has no outcome: the script ended after {calls}", calls + 1),
        }
    }

    /// Returns the number of calls.
    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// A sleeper whose time passes at once: each wait advances its clock. Clones share the clock.
///
/// An attempt that has to wait for something else is cut off at its time limit at once.
#[derive(Clone, Debug, Default)]
pub struct FakeTime(Arc<Mutex<Waits>>);

#[derive(Debug, Default)]
struct Waits {
    waits: Vec<Duration>,
    now: Duration,
}

impl FakeTime {
    /// Creates a clock at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the waits so far.
    pub fn waits(&self) -> Vec<Duration> {
        self.0.lock().waits.clone()
    }
}

impl Sleeper for FakeTime {
    type Sleep = FakeSleep;

    fn sleep(&self, delay: Duration) -> FakeSleep {
        FakeSleep { time: self.clone(), delay }
    }

    fn now(&self) -> Duration {
        self.0.lock().now
    }
}

/// A wait of [`FakeTime`].
#[derive(Debug)]
pub struct FakeSleep {
    time: FakeTime,
    delay: Duration,
}

impl Future for FakeSleep {
    type Output = ();

    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        let mut time = self.time.0.lock();
        time.waits.push(self.delay);
        time.now = time.now.saturating_add(self.delay);
        std::task::Poll::Ready(())
    }
}

/// Disturbs calls by ratio and seed: errors instead of calls, and latency.
///
/// ```
/// use holdoff_retry::testing::Chaos;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let chaos = Chaos::new(7).errors(0.5);
/// let mut failed = 0;
/// for _ in 0..100 {
///     failed += u32::from(chaos.call(|| async { Ok(()) }, || "injected").await.is_err());
/// }
/// assert!((30..70).contains(&failed), "{failed}");
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Chaos<S = TokioSleeper> {
    rng: Arc<Mutex<Rng>>,
    errors: f64,
    latency: RangeInclusive<Duration>,
    sleeper: S,
}

impl Chaos {
    /// Creates a disturbance that does nothing yet. The same seed disturbs the same calls.
    pub fn new(seed: u64) -> Self {
        let rng = Arc::new(Mutex::new(Rng::with_seed(seed)));
        Self { rng, errors: 0.0, latency: Duration::ZERO..=Duration::ZERO, sleeper: TokioSleeper }
    }
}

impl<S> Chaos<S> {
    /// Sets the share of the calls that fail without being made, from 0 to 1.
    #[must_use]
    pub fn errors(mut self, ratio: f64) -> Self {
        self.errors = ratio;
        self
    }

    /// Delays every call by a random time in this range.
    #[must_use]
    pub fn latency(mut self, range: RangeInclusive<Duration>) -> Self {
        self.latency = range;
        self
    }

    /// Sets the timer.
    pub fn sleeper<Z: Sleeper>(self, sleeper: Z) -> Chaos<Z> {
        Chaos { rng: self.rng, errors: self.errors, latency: self.latency, sleeper }
    }
}

impl<S: Sleeper> Chaos<S> {
    /// Makes the call, or fails with the injected error. Cancel-safe if the call is.
    pub async fn call<T, E, Fut>(&self, call: impl FnOnce() -> Fut, error: impl FnOnce() -> E) -> Result<T, E>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        let (fails, delay) = self.draw();
        if !delay.is_zero() {
            self.sleeper.sleep(delay).await;
        }
        if fails { Err(error()) } else { call().await }
    }

    fn draw(&self) -> (bool, Duration) {
        let mut rng = self.rng.lock();
        let (low, high) = (*self.latency.start(), *self.latency.end());
        (rng.f64() < self.errors, low + high.saturating_sub(low).mul_f64(rng.f64()))
    }
}

/// A tower layer that disturbs the requests of a service; created with [`Chaos::layer`].
#[cfg(feature = "tower")]
#[derive(Clone, Debug)]
pub struct ChaosLayer<F, S = TokioSleeper> {
    chaos: Chaos<S>,
    error: F,
}

#[cfg(feature = "tower")]
impl<S> Chaos<S> {
    /// Returns a tower layer that fails requests with the errors of this function.
    pub fn layer<F: Fn() -> E, E>(self, error: F) -> ChaosLayer<F, S> {
        ChaosLayer { chaos: self, error }
    }
}

#[cfg(feature = "tower")]
impl<I, F: Clone, S: Clone> tower_layer::Layer<I> for ChaosLayer<F, S> {
    type Service = ChaosService<I, F, S>;

    fn layer(&self, inner: I) -> Self::Service {
        ChaosService { inner, layer: self.clone() }
    }
}

/// A tower service that disturbs requests; created by [`ChaosLayer`].
#[cfg(feature = "tower")]
#[derive(Clone, Debug)]
pub struct ChaosService<I, F, S = TokioSleeper> {
    inner: I,
    layer: ChaosLayer<F, S>,
}

#[cfg(feature = "tower")]
impl<I, F, S, R> tower_service::Service<R> for ChaosService<I, F, S>
where
    I: tower_service::Service<R> + Clone + Send + 'static,
    I::Future: Send,
    F: Fn() -> I::Error + Clone + Send + 'static,
    S: Sleeper<Sleep: Send> + Clone + Send + Sync + 'static,
    R: Send + 'static,
{
    type Response = I::Response;
    type Error = I::Error;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<I::Response, I::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), I::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let clone = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, clone);
        let ChaosLayer { chaos, error } = self.layer.clone();
        Box::pin(async move { chaos.call(move || ready.call(request), error).await })
    }
}
