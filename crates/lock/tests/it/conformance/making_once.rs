//! A value is created once, for any number of callers.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use holdoff_lock::{Locks, Once};

use crate::conformance::place::{CONDITION_TIMEOUT, Place, acquire, inspect, on_every_store, until};

/// The value to be created: the number of probes, and the number of creations.
#[derive(Default)]
struct Thing {
    looks: AtomicU32,
    made: AtomicU32,
}

impl Thing {
    fn look(&self) -> Option<u32> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        Some(self.made.load(Ordering::SeqCst)).filter(|made| *made > 0)
    }
}

async fn make(locks: Locks, thing: Arc<Thing>) -> Once<u32> {
    let (looked, made) = (Arc::clone(&thing), thing);
    let probe = move || {
        let thing = Arc::clone(&looked);
        async move { Ok::<_, Infallible>(thing.look()) }
    };
    let create = move |token: Option<_>| async move {
        assert!(token.is_some(), "it is made under the lock");
        tokio::task::yield_now().await;
        Ok(made.made.fetch_add(1, Ordering::SeqCst) + 1)
    };
    locks.acquire("thing").wait(CONDITION_TIMEOUT).once(probe, create).await.unwrap()
}

async fn of_many_one_makes_it_and_the_others_find_it(place: Place) {
    let thing = Arc::new(Thing::default());
    let mut making = Vec::new();
    for _ in 0..3 {
        let locks = place.node().await;
        for _ in 0..2 {
            making.push(tokio::spawn(make(locks.clone(), Arc::clone(&thing))));
        }
    }
    let mut made = 0;
    for maker in making {
        let once = maker.await.unwrap();
        made += u32::from(matches!(once, Once::Created(_)));
        assert_eq!(once.into_inner(), 1);
    }
    assert_eq!((made, thing.made.load(Ordering::SeqCst)), (1, 1));
}

/// The value exists, although its creator still holds the lock: no caller waits for the release.
async fn it_is_found_while_waiting(place: Place) {
    let (locks, other) = (place.node().await, place.node().await);
    let holder = acquire(&locks, "thing").await;
    let thing = Arc::new(Thing::default());
    let waiting = tokio::spawn(make(other, Arc::clone(&thing)));
    until("it is looked for", async || thing.looks.load(Ordering::SeqCst) > 1).await;
    thing.made.store(7, Ordering::SeqCst);
    assert_eq!(waiting.await.unwrap(), Once::Found(7));
    assert!(holder.is_valid());
    until("nobody waits any more", async || inspect(&locks, "thing").await.waiting == 0).await;
}

on_every_store!(of_many_one_makes_it_and_the_others_find_it, it_is_found_while_waiting);
