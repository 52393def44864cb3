//! The due times that this process knows, because it set them: the delays of its retries and of its submissions. A
//! worker sleeps until the earliest of them, and so does not start a step up to a whole poll interval late.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock;

/// The maximum number of remembered times. Beyond it, the latest are forgotten; the steps are found by polling.
const MAX_TIMES: usize = 65_536;

/// Due times by this process's clock, in whole milliseconds. Steps that are due in the same millisecond share one.
#[derive(Debug, Default)]
pub(crate) struct DueTimes {
    times: Mutex<BTreeSet<u128>>,
    /// Notified when an earlier time than all others is added.
    earlier: Notify,
}

impl DueTimes {
    /// Remembers that a step becomes due after `delay`. Call it after the store has answered: the store measures the
    /// delay from an earlier time, so that the step is due when this time has come.
    pub(crate) fn add(&self, delay: Duration) {
        let now = clock::now();
        // Rounded up: a worker that looks too early would find nothing.
        let due = now.saturating_add(delay).as_micros().div_ceil(1000);
        let mut times = self.times.lock();
        // Every worker has looked since then.
        *times = times.split_off(&now.saturating_sub(Duration::from_secs(60)).as_millis());
        times.insert(due);
        if times.len() > MAX_TIMES {
            times.pop_last();
        }
        let is_next = times.range(now.as_millis()..).next() == Some(&due);
        drop(times);
        if is_next {
            self.earlier.notify_waiters();
        }
    }

    /// Whether a due time after the caller's last look at the store has come.
    pub(crate) fn have_come_since(&self, looked_at: Duration) -> bool {
        let now = clock::now().as_millis();
        looked_at.as_millis() < now
            && self.times.lock().range(looked_at.as_millis() + 1..=now).next().is_some()
    }

    /// Waits for the next due time after the caller's last look at the store, at most `longest`.
    ///
    /// Cancel-safe: it changes nothing.
    pub(crate) async fn next(&self, looked_at: Duration, longest: Duration) {
        let until = clock::now().saturating_add(longest);
        loop {
            let earlier = self.earlier.notified();
            tokio::pin!(earlier);
            // From here on no notification is missed.
            earlier.as_mut().enable();
            let next = self.times.lock().range(looked_at.as_millis() + 1..).next().copied();
            let next = next.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
            let wait = next.map_or(until, |next| next.min(until)).saturating_sub(clock::now());
            if wait.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => return,
                () = earlier => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_secs(10);

    /// Returns the time that a caller waits who has looked just now.
    async fn wait(times: &DueTimes) -> Duration {
        let before = clock::now();
        times.next(before, POLL).await;
        clock::now().saturating_sub(before)
    }

    /// The clock of leases adds suspensions, which it knows to 10 ms.
    fn assert_near(waited: Duration, expected: Duration) {
        assert!(waited.abs_diff(expected) < Duration::from_millis(50), "{waited:?}, not {expected:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_waits_for_the_earliest_time_that_it_has_not_seen() {
        let times = DueTimes::default();
        assert_near(wait(&times).await, POLL);
        for ms in [700, 300, 90_000] {
            times.add(Duration::from_millis(ms));
        }
        assert_near(wait(&times).await, Duration::from_millis(300));
        assert_near(wait(&times).await, Duration::from_millis(400));
        assert_near(wait(&times).await, POLL);
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_time_ends_a_longer_wait() {
        let times = DueTimes::default();
        times.add(Duration::from_secs(5));
        let sooner = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            times.add(Duration::from_secs(1));
        };
        let (waited, ()) = tokio::join!(wait(&times), sooner);
        assert_near(waited, Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_times_is_limited() {
        let times = DueTimes::default();
        for ms in (1..=MAX_TIMES as u64 + 10).rev() {
            times.add(Duration::from_millis(ms));
        }
        assert_eq!(times.times.lock().len(), MAX_TIMES);
        assert_near(wait(&times).await, Duration::from_millis(1));
    }
}
