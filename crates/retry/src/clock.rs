//! The one door to the clocks.
//!
//! Under tokio this is tokio's clock, so that tests which pause time pause everything.

#[cfg(feature = "tokio")]
use std::future::{Future, poll_fn};
#[cfg(feature = "tokio")]
use std::pin::Pin;
use std::time::Duration;

#[cfg(feature = "tokio")]
pub(crate) use tokio::time::Instant;

#[cfg(not(feature = "tokio"))]
pub(crate) use std::time::Instant;

/// The monotonic time.
#[cfg_attr(not(feature = "tokio"), expect(clippy::disallowed_methods, reason = "the one door"))]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Measures from the first moment at which there was something to wait for.
///
/// Reading a clock costs more than all the rest of a first try that succeeds at once, so it is left until
/// the call has to wait, or has failed, or a deadline needs it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stopwatch(Option<Instant>);

impl Stopwatch {
    /// Starts it, unless it runs.
    pub(crate) fn start(&mut self) {
        if self.0.is_none() {
            self.0 = Some(now());
        }
    }

    /// What it shows; zero before it was started.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.map_or(Duration::ZERO, |started| now().saturating_duration_since(started))
    }

    /// Runs the future, and starts when that first has to wait.
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

/// The wall clock, for responses without a `Date`.
#[cfg(feature = "reqwest")]
#[expect(clippy::disallowed_methods, reason = "the one door")]
pub(crate) fn wall() -> std::time::SystemTime {
    std::time::SystemTime::now()
}
