//! A value is created once, for any number of callers.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use holdoff_lock::{Locks, Once};

use crate::conformance::test_store::{CONDITION_TIMEOUT, TestStore, acquire, inspect, on_every_store, until};

/// The value to be created: the number of probes, and the number of creations.
#[derive(Default)]
struct CreatedOnce {
    probes: AtomicU32,
    creations: AtomicU32,
}

impl CreatedOnce {
    fn probe(&self) -> Option<u32> {
        self.probes.fetch_add(1, Ordering::SeqCst);
        Some(self.creations.load(Ordering::SeqCst)).filter(|creations| *creations > 0)
    }
}

async fn create_once(locks: Locks, value: Arc<CreatedOnce>) -> Once<u32> {
    let (probed, created) = (Arc::clone(&value), value);
    let probe = move || {
        let value = Arc::clone(&probed);
        async move { Ok::<_, Infallible>(value.probe()) }
    };
    let create = move |token: Option<_>| async move {
        assert!(token.is_some(), "the value is created under the lock");
        tokio::task::yield_now().await;
        Ok(created.creations.fetch_add(1, Ordering::SeqCst) + 1)
    };
    locks.acquire("value").wait(CONDITION_TIMEOUT).once(probe, create).await.unwrap()
}

async fn one_of_many_callers_creates_the_value(test_store: TestStore) {
    let value = Arc::new(CreatedOnce::default());
    let mut creating = Vec::new();
    for _ in 0..3 {
        let locks = test_store.node().await;
        for _ in 0..2 {
            creating.push(tokio::spawn(create_once(locks.clone(), Arc::clone(&value))));
        }
    }
    let mut creations = 0;
    for caller in creating {
        let once = caller.await.unwrap();
        creations += u32::from(matches!(once, Once::Created(_)));
        assert_eq!(once.into_inner(), 1);
    }
    assert_eq!((creations, value.creations.load(Ordering::SeqCst)), (1, 1));
}

/// The value exists, although its creator still holds the lock: no caller waits for the release.
async fn a_waiting_caller_finds_the_value(test_store: TestStore) {
    let (locks, other) = (test_store.node().await, test_store.node().await);
    let holder = acquire(&locks, "value").await;
    let value = Arc::new(CreatedOnce::default());
    let waiting = tokio::spawn(create_once(other, Arc::clone(&value)));
    until("the caller probes", async || value.probes.load(Ordering::SeqCst) > 1).await;
    value.creations.store(7, Ordering::SeqCst);
    assert_eq!(waiting.await.unwrap(), Once::Found(7));
    assert!(holder.is_valid());
    until("no waiter is left", async || inspect(&locks, "value").await.waiting == 0).await;
}

on_every_store!(one_of_many_callers_creates_the_value, a_waiting_caller_finds_the_value,);
