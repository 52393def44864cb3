//! Timers and clocks.

use std::future::Future;
use std::sync::LazyLock;
use std::time::Duration;

use clock::Instant;

/// Waits, and reads the time: the executor's access to an async runtime.
///
/// A closure is a sleeper, too: `smol::Timer::after`, `gloo_timers::future::sleep`. [`FakeTime`](crate::testing::FakeTime) is
/// one for tests.
///
/// ```
/// use holdoff_retry::Sleeper;
/// use std::time::Duration;
///
/// struct Smol;
///
/// impl Sleeper for Smol {
///     type Sleep = smol::Timer;
///
///     fn sleep(&self, delay: Duration) -> smol::Timer {
///         smol::Timer::after(delay)
///     }
/// }
/// ```
pub trait Sleeper {
    /// The timer.
    type Sleep: Future;

    /// Returns a future that ends after this delay.
    fn sleep(&self, delay: Duration) -> Self::Sleep;

    /// Returns the monotonic time since any fixed moment.
    fn now(&self) -> Duration {
        since_epoch(clock::now())
    }
}

impl<F: Fn(Duration) -> Fut, Fut: Future> Sleeper for F {
    type Sleep = Fut;

    fn sleep(&self, delay: Duration) -> Fut {
        self(delay)
    }
}

/// The sleeper of a [`Retry`](crate::Retry) that names none: tokio's timer and clock, which a test can pause.
///
/// It implements [`Sleeper`] with the feature `tokio`.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioSleeper;

#[cfg(feature = "tokio")]
impl Sleeper for TokioSleeper {
    type Sleep = tokio::time::Sleep;

    fn sleep(&self, delay: Duration) -> tokio::time::Sleep {
        tokio::time::sleep(delay)
    }

    fn now(&self) -> Duration {
        since_epoch(tokio::time::Instant::now().into_std())
    }
}

/// Waits on this thread: the sleeper of the blocking executor.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadSleeper;

impl Sleeper for ThreadSleeper {
    type Sleep = OnThread;

    fn sleep(&self, delay: Duration) -> OnThread {
        OnThread(delay)
    }
}

/// A wait that blocks the thread when it is polled.
#[derive(Debug)]
pub struct OnThread(Duration);

impl Future for OnThread {
    type Output = ();

    #[expect(clippy::disallowed_methods, reason = "this is the blocking executor")]
    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        std::thread::sleep(self.0);
        std::task::Poll::Ready(())
    }
}

/// Counts the time from one moment for all sleepers of the process, so that they can share a breaker.
///
/// The moment is an hour before the first call: a runtime with paused time may have started before that call.
fn since_epoch(now: Instant) -> Duration {
    static EPOCH: LazyLock<Instant> = LazyLock::new(|| {
        let now = clock::now();
        now.checked_sub(Duration::from_secs(3600)).unwrap_or(now)
    });
    now.saturating_duration_since(*EPOCH)
}

mod clock {
    // A browser has no clock of `std`.
    #[cfg(all(target_family = "wasm", target_os = "unknown"))]
    pub(super) use web_time::Instant;

    #[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
    pub(super) use std::time::Instant;

    #[cfg_attr(
        not(all(target_family = "wasm", target_os = "unknown")),
        expect(clippy::disallowed_methods, reason = "the only access to the clock")
    )]
    pub(super) fn now() -> Instant {
        Instant::now()
    }
}
