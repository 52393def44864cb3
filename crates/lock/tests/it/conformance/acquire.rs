//! Acquisition: by waiting in the queue of a process, at once, by polling, and under contention.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use holdoff_lock::{Error, FencedCell, Guard, Locks, Polled};
use holdoff_policy::{Growth, Jitter, Policy};

use crate::conformance::test_store::{
    CONDITION_TIMEOUT, TestStore, acquire, held_with, inspect, on_every_store, on_shared_stores, pass, until,
};
use crate::node::assert_exclusive;

type Waiting = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

/// Joins the queue: a future that has been polled once is in the queue.
fn joined(mut waiting: Waiting) -> Waiting {
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    waiting
}

async fn the_local_queue_is_first_come_first_served_and_only_its_head_asks_the_store(test_store: TestStore) {
    const WAITERS: usize = 5;
    let (locks, watcher) = (test_store.node().await, test_store.node().await);
    let holder = acquire(&locks, "ledger").await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..WAITERS {
        let (acquiring, order) =
            (joined(locks.acquire("ledger").wait(CONDITION_TIMEOUT).into_future()), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let guard = acquiring.await.unwrap();
            order.lock().unwrap().push((guard.token(), number));
            guard.release().await.unwrap();
        }));
    }
    assert_eq!(inspect(&watcher, "ledger").await.waiting, 0, "the holder is the head of the queue");
    holder.release().await.unwrap();
    for waiter in waiting {
        waiter.await.unwrap();
    }
    let order = order.lock().unwrap();
    assert!(order.is_sorted() && order.iter().map(|(_, number)| *number).is_sorted(), "{order:?}");
    assert_eq!(order.len(), WAITERS);
}

/// Another process holds the lock: of the five contenders here, the store records one.
async fn many_local_waiters_are_one_contender_at_the_store(test_store: TestStore) {
    let (locks, other) = (test_store.node().await, test_store.node().await);
    let holder = acquire(&other, "ledger").await;
    let waiting: Vec<_> = (0..5)
        .map(|_| tokio::spawn(joined(locks.acquire("ledger").wait(CONDITION_TIMEOUT).into_future())))
        .collect();
    // Kubernetes records no waiters, and in memory the holder is in the same queue.
    let (counts, mut looks) = (u32::from(!test_store.is_kubernetes() && test_store.store != "memory:"), 0);
    until("the head is recorded", async || {
        let noted = inspect(&other, "ledger").await.waiting;
        assert!(noted <= counts, "{noted} waiters are recorded for one process");
        looks += u32::from(noted == counts);
        looks == 20
    })
    .await;
    holder.release().await.unwrap();
    for waiter in waiting {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
}

async fn a_waiter_beyond_the_limit_is_rejected(test_store: TestStore) {
    let locks = test_store.node_with(|settings| settings.with_max_waiters(2)).await;
    let holder = acquire(&locks, "ledger").await;
    let waiting = [(); 2].map(|()| joined(locks.acquire("ledger").wait(CONDITION_TIMEOUT).into_future()));
    let refused = locks.acquire("ledger").await.unwrap_err();
    assert!(matches!(refused, Error::TooManyWaiters { limit: 2 }) && refused.is_transient(), "{refused}");
    locks.acquire("another").await.unwrap().release().await.unwrap();
    drop(waiting);
    let patient = joined(locks.acquire("ledger").wait(CONDITION_TIMEOUT).into_future());
    holder.release().await.unwrap();
    patient.await.unwrap().release().await.unwrap();
}

async fn the_error_names_the_holder(test_store: TestStore) {
    let other = test_store.node_with(|settings| settings.with_name("the night shift")).await;
    let locks = test_store.node_with(|settings| settings.with_name("the day shift")).await;
    let holder = acquire(&other, "ledger").await;
    let brief = Policy::builder(Growth::constant(Duration::from_millis(20))).jitter(Jitter::None).attempts(3);
    let contended = locks.acquire("ledger").policy(brief.build().unwrap()).await.unwrap_err();
    let late = late_acquisition(&locks, test_store.store != "memory:").await;
    for error in [&contended, &late] {
        assert!(error.is_transient(), "{error}");
    }
    // In memory both are in one queue, and neither has asked the store for the holder.
    if test_store.store != "memory:" {
        for error in [&contended, &late] {
            assert!(error.to_string().contains("by the night shift"), "{error}");
        }
        let Error::Contended { holder: Some(named), attempts: 3, .. } = &contended else {
            panic!("{contended:?}")
        };
        assert_eq!(named.token, holder.token());
    }
    assert!(
        matches!(&late, Error::DeadlineExceeded { waited, .. } if *waited >= Duration::from_millis(150)),
        "{late:?}"
    );
    until("no waiter is left", async || inspect(&other, "ledger").await.waiting == 0).await;
    holder.release().await.unwrap();
}

/// Returns the error of an acquisition whose deadline passes. If the store is to name the holder, the deadline must be longer
/// than a request to the store takes, whatever else the machine does.
async fn late_acquisition(locks: &Locks, names_holder: bool) -> Error {
    let mut deadline = Duration::from_millis(150);
    loop {
        let error = locks.acquire("ledger").deadline(deadline).await.unwrap_err();
        let is_unanswered = matches!(&error, Error::DeadlineExceeded { holder: None, .. });
        if !(names_holder && is_unanswered) || deadline > CONDITION_TIMEOUT {
            return error;
        }
        deadline *= 4;
    }
}

async fn try_acquire_does_not_wait(test_store: TestStore) {
    let (locks, other) = (test_store.node().await, test_store.node().await);
    let guard = locks.try_acquire("ledger").await.unwrap().expect("the lock is free");
    assert!(guard.is_valid() && guard.valid_for() <= Duration::from_secs(30));
    assert!(other.try_acquire("ledger").await.unwrap().is_none());
    assert!(locks.try_acquire("ledger").await.unwrap().is_none(), "also not in the same process");
    assert_eq!(inspect(&locks, "ledger").await.waiting, 0, "try_acquire does not wait");
    let first = guard.token();
    guard.release().await.unwrap();
    let guard = other.try_acquire("ledger").await.unwrap().expect("the lock is free again");
    assert!(guard.token() > first);
}

async fn a_dropped_guard_releases_its_lock(test_store: TestStore) {
    let (locks, other) = (test_store.node().await, test_store.node().await);
    let guard = acquire(&locks, "ledger").await;
    let token = guard.token();
    drop(guard);
    let next = tokio::time::timeout(CONDITION_TIMEOUT / 6, acquire(&other, "ledger"))
        .await
        .expect("dropping the guard did not release the lock");
    assert!(next.token() > token);
}

async fn polling_returns_when_to_retry(test_store: TestStore) {
    let (locks, other) = (test_store.node().await, test_store.node().await);
    let holder = acquire(&other, "ledger").await;
    for _ in 0..3 {
        let Polled::RetryAfter(after) = locks.poll("ledger").await.unwrap() else {
            panic!("the held lock was granted")
        };
        assert!(after <= Duration::from_secs(30), "{after:?}");
    }
    let token = holder.token();
    holder.release().await.unwrap();
    let mut granted = None;
    until("a poll is granted", async || {
        match locks.poll("ledger").await.unwrap() {
            Polled::Granted(guard) => granted = Some(guard),
            Polled::RetryAfter(after) => tokio::time::sleep(after).await,
        }
        granted.is_some()
    })
    .await;
    let guard = granted.unwrap();
    assert!(guard.token() > token && guard.is_valid());
    assert_eq!(held_with(&other, "ledger").await, Some(guard.token()));
    guard.release().await.unwrap();
    pass(&other, "ledger").await;
}

/// No holder writes between the two writes of another, and each has a higher token than all before.
async fn holders_never_overlap_and_tokens_only_grow(test_store: TestStore) {
    const NODES: usize = 3;
    const TASKS: usize = 3;
    const ROUNDS: usize = 4;
    let resource = Arc::new(FencedCell::new(Vec::new()));
    let mut contending = Vec::new();
    for _ in 0..NODES {
        let locks = test_store.node().await;
        for _ in 0..TASKS {
            let (locks, resource) = (locks.clone(), Arc::clone(&resource));
            contending.push(tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = acquire(&locks, "ledger").await;
                    for what in ["enter", "leave"] {
                        let write = |events: &mut Vec<_>| events.push((guard.token().get(), what.to_owned()));
                        resource.update(guard.token(), write).unwrap();
                        tokio::task::yield_now().await;
                    }
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for contender in contending {
        contender.await.unwrap();
    }
    let entered = resource.read(|events| assert_exclusive(events));
    assert_eq!(entered, NODES * TASKS * ROUNDS);
}

async fn processes_never_overlap_and_their_tokens_only_grow(test_store: TestStore) {
    const PROCESSES: usize = 3;
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(test_store.process().await);
    }
    for process in &mut processes {
        process.send("ROUNDS ledger 8 1 30000").await;
    }
    for process in &mut processes {
        let answer = process.answer().await;
        assert!(answer.starts_with("done"), "{answer}");
    }
    assert_eq!(assert_exclusive(&test_store.resource().await.events().await), PROCESSES * 8);
}

on_every_store!(
    the_local_queue_is_first_come_first_served_and_only_its_head_asks_the_store,
    many_local_waiters_are_one_contender_at_the_store,
    a_waiter_beyond_the_limit_is_rejected,
    the_error_names_the_holder,
    try_acquire_does_not_wait,
    a_dropped_guard_releases_its_lock,
    polling_returns_when_to_retry,
    holders_never_overlap_and_tokens_only_grow,
);

mod shared_stores {
    use super::{on_shared_stores, processes_never_overlap_and_their_tokens_only_grow};

    on_shared_stores!(processes_never_overlap_and_their_tokens_only_grow,);
}
