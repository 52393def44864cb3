//! Contenders of one process form a queue: the head asks the store, and the others wait for it.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use holdoff_lock::{Error, Guard};
use holdoff_policy::{Growth, Jitter, Policy};

use crate::conformance::place::{CONDITION_TIMEOUT, Place, acquire, inspect, on_every_store, until};

type Waiting = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

/// Joins the queue: a future that has been polled once is in the queue.
fn stand(mut waiting: Waiting) -> Waiting {
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    waiting
}

async fn first_come_first_served_and_one_asks_the_store(place: Place) {
    const WAITERS: usize = 5;
    let (locks, watcher) = (place.node().await, place.node().await);
    let holder = acquire(&locks, "ledger").await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..WAITERS {
        let (acquiring, order) =
            (stand(locks.acquire("ledger").wait(CONDITION_TIMEOUT).into_future()), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let guard = acquiring.await.unwrap();
            order.lock().unwrap().push((guard.token(), number));
            guard.release().await.unwrap();
        }));
    }
    assert_eq!(inspect(&watcher, "ledger").await.waiting, 0, "the holder stands before them");
    holder.release().await.unwrap();
    for waiter in waiting {
        waiter.await.unwrap();
    }
    let order = order.lock().unwrap();
    assert!(order.is_sorted() && order.iter().map(|(_, number)| *number).is_sorted(), "{order:?}");
    assert_eq!(order.len(), WAITERS);
}

/// Another process holds the lock: of the five contenders here, the store records one.
async fn a_crowd_here_is_one_contender_there(place: Place) {
    let (locks, other) = (place.node().await, place.node().await);
    let holder = acquire(&other, "ledger").await;
    let waiting: Vec<_> = (0..5)
        .map(|_| tokio::spawn(stand(locks.acquire("ledger").wait(CONDITION_TIMEOUT).into_future())))
        .collect();
    // Kubernetes records no waiters, and in memory the holder is in the same queue.
    let (counts, mut looks) = (u32::from(!place.is_kubernetes() && place.store != "memory:"), 0);
    until("the first of them is noted", async || {
        let noted = inspect(&other, "ledger").await.waiting;
        assert!(noted <= counts, "{noted} of one process wait");
        looks += u32::from(noted == counts);
        looks == 20
    })
    .await;
    holder.release().await.unwrap();
    for waiter in waiting {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
}

async fn one_too_many_is_told_to_come_back(place: Place) {
    let locks = place.node_with(|settings| settings.with_most_waiters(2)).await;
    let holder = acquire(&locks, "ledger").await;
    let waiting = [(); 2].map(|()| stand(locks.acquire("ledger").wait(CONDITION_TIMEOUT).into_future()));
    let refused = locks.acquire("ledger").await.unwrap_err();
    assert!(matches!(refused, Error::TooManyWaiters { limit: 2 }) && refused.is_transient(), "{refused}");
    locks.acquire("another").await.unwrap().release().await.unwrap();
    drop(waiting);
    let patient = stand(locks.acquire("ledger").wait(CONDITION_TIMEOUT).into_future());
    holder.release().await.unwrap();
    patient.await.unwrap().release().await.unwrap();
}

async fn giving_up_names_the_holder(place: Place) {
    let other = place.node_with(|settings| settings.with_name("the night shift")).await;
    let locks = place.node_with(|settings| settings.with_name("the day shift")).await;
    let holder = acquire(&other, "ledger").await;
    let brief = Policy::builder(Growth::constant(Duration::from_millis(20))).jitter(Jitter::None).attempts(3);
    let contended = locks.acquire("ledger").policy(brief.build().unwrap()).await.unwrap_err();
    let late = locks.acquire("ledger").deadline(Duration::from_millis(150)).await.unwrap_err();
    for error in [&contended, &late] {
        assert!(error.is_transient(), "{error}");
    }
    // In memory both are in one queue, and neither has asked the store for the holder.
    if place.store != "memory:" {
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
    until("nobody waits any more", async || inspect(&other, "ledger").await.waiting == 0).await;
    holder.release().await.unwrap();
}

on_every_store!(
    first_come_first_served_and_one_asks_the_store,
    a_crowd_here_is_one_contender_there,
    one_too_many_is_told_to_come_back,
    giving_up_names_the_holder,
);
