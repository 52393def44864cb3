//! The schedule of keepers that are not needed yet.
//!
//! Most locks are released long before their first renewal. A keeper is therefore not a task from the beginning: it is
//! scheduled here and started when the first renewal is due. One task serves the schedule of all locks of a store.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::clock;

type Keeper = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Keepers, by their start time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Later(Arc<Inner>);

/// The key of a scheduled keeper.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Ticket {
    at: Duration,
    number: u64,
}

#[derive(Debug, Default)]
struct Inner {
    notes: Mutex<Notes>,
    /// Notified when a keeper is due before the task's next check.
    sooner: Arc<Notify>,
}

#[derive(Default)]
struct Notes {
    keepers: BTreeMap<Ticket, Keeper>,
    numbers: u64,
    /// The time of the task's next check; `None` while the schedule is empty.
    looks_at: Option<Duration>,
    task: Option<JoinHandle<()>>,
}

impl Later {
    /// Schedules a keeper to start at this time.
    pub(super) fn note(&self, at: Duration, keeper: impl Future<Output = ()> + Send + 'static) -> Ticket {
        let mut notes = self.0.notes();
        notes.numbers += 1;
        let ticket = Ticket { at, number: notes.numbers };
        notes.keepers.insert(ticket, Box::pin(keeper));
        // A finished task ended with its runtime.
        if notes.task.as_ref().is_none_or(JoinHandle::is_finished) {
            notes.looks_at = Some(Duration::ZERO);
            let (inner, sooner) = (Arc::downgrade(&self.0), Arc::clone(&self.0.sooner));
            notes.task = Some(tokio::spawn(begin_in_time(inner, sooner)));
        } else if notes.looks_at.is_none_or(|looks_at| at < looks_at) {
            self.0.sooner.notify_one();
        }
        ticket
    }

    /// Removes a keeper that has not started. Returns whether there was one.
    pub(super) fn cancel(&self, ticket: Ticket) -> bool {
        let keeper = self.0.notes().keepers.remove(&ticket);
        keeper.is_some()
    }
}

impl Inner {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the keepers that are due, and returns the time of the next check.
    fn begin_due(&self) -> Option<Duration> {
        let mut notes = self.notes();
        loop {
            notes.looks_at = notes.keepers.first_key_value().map(|(ticket, _)| ticket.at);
            match notes.looks_at {
                Some(at) if at <= clock::now() => {}
                looks_at => return looks_at,
            }
            if let Some((_, keeper)) = notes.keepers.pop_first() {
                tokio::spawn(keeper);
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.sooner.notify_one();
    }
}

async fn begin_in_time(inner: Weak<Inner>, sooner: Arc<Notify>) {
    while let Some(looks_at) = inner.upgrade().map(|inner| inner.begin_due()) {
        match looks_at {
            Some(at) => tokio::select! {
                () = clock::sleep_until(at) => {}
                () = sooner.notified() => {}
            },
            None => sooner.notified().await,
        }
    }
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notes").field("keepers", &self.keepers.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn they_begin_in_time_unless_they_are_taken_back() {
        let (later, begun) = (Later::default(), Arc::new(AtomicU32::new(0)));
        let second = Duration::from_secs(1);
        let note = |seconds: u32, worth: u32| {
            let begun = Arc::clone(&begun);
            later.note(clock::now() + seconds * second, async move {
                begun.fetch_add(worth, Ordering::SeqCst);
            })
        };
        let taken_back = note(10, 1);
        note(20, 10);
        note(5, 100);
        assert!(later.cancel(taken_back) && !later.cancel(taken_back));
        for (seconds, expected) in [(4, 0), (2, 100), (13, 100), (2, 110)] {
            tokio::time::sleep(seconds * second).await;
            assert_eq!(begun.load(Ordering::SeqCst), expected);
        }
    }

    #[test]
    fn a_runtime_that_is_gone_does_not_take_the_next_ones_keepers_along() {
        let (later, begun) = (Later::default(), Arc::new(AtomicU32::new(0)));
        for _ in 0..2 {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let begun = Arc::clone(&begun);
            runtime.block_on(async {
                let told = Arc::new(Notify::new());
                let tell = Arc::clone(&told);
                later.note(clock::now(), async move {
                    begun.fetch_add(1, Ordering::SeqCst);
                    tell.notify_one();
                });
                told.notified().await;
            });
        }
        assert_eq!(begun.load(Ordering::SeqCst), 2);
    }
}
