//! The schedule of renewal tasks that are not needed yet.
//!
//! Most locks are released long before their first renewal. A renewal task is therefore not spawned at the grant: it is
//! scheduled here and started when the first renewal is due. One task serves the schedule of all locks of a store.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::clock;

type RenewalTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Renewal tasks, by their start time.
#[derive(Clone, Debug, Default)]
pub(crate) struct RenewalSchedule(Arc<Inner>);

/// The key of a scheduled renewal task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ScheduleKey {
    at: Duration,
    number: u64,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<ScheduleState>,
    /// Notified when a renewal task is due before the next check.
    earlier: Arc<Notify>,
}

#[derive(Default)]
struct ScheduleState {
    tasks: BTreeMap<ScheduleKey, RenewalTask>,
    next_number: u64,
    /// The time of the next check; `None` while the schedule is empty.
    next_check: Option<Duration>,
    /// The task that runs the schedule.
    runner: Option<JoinHandle<()>>,
}

impl RenewalSchedule {
    /// Schedules a renewal task to start at this time.
    pub(super) fn schedule(
        &self,
        at: Duration,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> ScheduleKey {
        let mut state = self.0.state.lock();
        state.next_number += 1;
        let key = ScheduleKey { at, number: state.next_number };
        state.tasks.insert(key, Box::pin(task));
        // A finished runner ended with its runtime.
        if state.runner.as_ref().is_none_or(JoinHandle::is_finished) {
            state.next_check = Some(Duration::ZERO);
            let (inner, earlier) = (Arc::downgrade(&self.0), Arc::clone(&self.0.earlier));
            state.runner = Some(tokio::spawn(run_schedule(inner, earlier)));
        } else if state.next_check.is_none_or(|next_check| at < next_check) {
            self.0.earlier.notify_one();
        }
        key
    }

    /// Removes a renewal task that has not started. Returns whether there was one.
    pub(super) fn cancel(&self, key: ScheduleKey) -> bool {
        let task = self.0.state.lock().tasks.remove(&key);
        task.is_some()
    }
}

impl Inner {
    /// Starts the renewal tasks that are due, and returns the time of the next check.
    fn start_due(&self) -> Option<Duration> {
        let mut state = self.state.lock();
        loop {
            state.next_check = state.tasks.first_key_value().map(|(key, _)| key.at);
            match state.next_check {
                Some(at) if at <= clock::now() => {}
                next_check => return next_check,
            }
            if let Some((_, task)) = state.tasks.pop_first() {
                tokio::spawn(task);
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.earlier.notify_one();
    }
}

async fn run_schedule(inner: Weak<Inner>, earlier: Arc<Notify>) {
    while let Some(next_check) = inner.upgrade().map(|inner| inner.start_due()) {
        match next_check {
            Some(at) => tokio::select! {
                () = clock::sleep_until(at) => {}
                () = earlier.notified() => {}
            },
            None => earlier.notified().await,
        }
    }
}

impl fmt::Debug for ScheduleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleState").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn renewal_tasks_start_when_due_unless_cancelled() {
        let (schedule, begun) = (RenewalSchedule::default(), Arc::new(AtomicU32::new(0)));
        let second = Duration::from_secs(1);
        let add = |seconds: u32, worth: u32| {
            let begun = Arc::clone(&begun);
            schedule.schedule(clock::now() + seconds * second, async move {
                begun.fetch_add(worth, Ordering::SeqCst);
            })
        };
        let cancelled = add(10, 1);
        add(20, 10);
        // The runner waits for the first task.
        tokio::task::yield_now().await;
        add(5, 100);
        add(5, 100);
        assert_eq!(format!("{:?}", schedule.0.state.lock()), "ScheduleState { tasks: 4, .. }");
        assert!(schedule.cancel(cancelled) && !schedule.cancel(cancelled));
        for (seconds, expected) in [(4, 0), (2, 200), (13, 200), (2, 210)] {
            tokio::time::sleep(seconds * second).await;
            assert_eq!(begun.load(Ordering::SeqCst), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_runner_ends_with_the_schedule() {
        let schedule = RenewalSchedule::default();
        schedule.schedule(clock::now() + Duration::from_secs(10), async {});
        tokio::task::yield_now().await;
        let runner = schedule.0.state.lock().runner.take().expect("a task is scheduled");
        drop(schedule);
        let ended = tokio::time::timeout(Duration::from_secs(1), runner).await;
        assert!(ended.is_ok_and(|ended| ended.is_ok()), "the runner waits for the task's time");
    }

    #[test]
    fn the_schedule_works_in_a_second_runtime_after_the_first_has_ended() {
        let (schedule, begun) = (RenewalSchedule::default(), Arc::new(AtomicU32::new(0)));
        for _ in 0..2 {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let begun = Arc::clone(&begun);
            runtime.block_on(async {
                let started = Arc::new(Notify::new());
                let start = Arc::clone(&started);
                schedule.schedule(clock::now(), async move {
                    begun.fetch_add(1, Ordering::SeqCst);
                    start.notify_one();
                });
                started.notified().await;
            });
        }
        assert_eq!(begun.load(Ordering::SeqCst), 2);
    }
}
