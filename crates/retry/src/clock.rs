//! The only access to the clocks.
//!
//! With tokio this is tokio's clock, so that tests that pause time pause all of this crate.

#[cfg(feature = "tokio")]
use std::future::{Future, poll_fn};
#[cfg(feature = "tokio")]
use std::pin::Pin;
use std::time::Duration;

#[cfg(feature = "tokio")]
pub(crate) use tokio::time::Instant;

#[cfg(not(feature = "tokio"))]
pub(crate) use std::time::Instant;

/// Returns the monotonic time.
#[cfg_attr(not(feature = "tokio"), expect(clippy::disallowed_methods, reason = "the one door"))]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Measures the time since an attempt first had to wait.
///
/// A reading of the clock costs more than the rest of a first attempt that succeeds at once. The stopwatch
/// therefore starts only when the call has to wait, has failed, or a deadline needs the time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stopwatch(Option<Instant>);

impl Stopwatch {
    /// Starts the stopwatch, unless it is running.
    pub(crate) fn start(&mut self) {
        if self.0.is_none() {
            self.0 = Some(now());
        }
    }

    /// Returns the elapsed time; zero before the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.map_or(Duration::ZERO, |started| now().saturating_duration_since(started))
    }

    /// Runs the future, and starts the stopwatch when the future first returns pending.
    #[cfg(feature = "tokio")]
    pub(crate) fn time<O>(
        &mut self,
        mut future: Pin<&mut impl Future<Output = O>>,
    ) -> impl Future<Output = O> {
        poll_fn(move |context| {
            let polled = future.as_mut().poll(context);
            if polled.is_pending() {
                self.start();
            }
            polled
        })
    }
}

/// Returns the wall-clock time, for responses without a `Date`.
#[cfg(feature = "reqwest")]
#[expect(clippy::disallowed_methods, reason = "the one door")]
pub(crate) fn wall() -> std::time::SystemTime {
    std::time::SystemTime::now()
}
