//! Processes whose wall clocks are an hour wrong: it makes no difference.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

use crate::place::{Place, SECOND, acquire, held_with, on_shared_stores};

/// Long enough for a busy machine to renew in time.
const LEASE_MS: u64 = 1500;
/// Longer than the lease, so that it is renewed meanwhile.
const LONGER: Duration = Duration::from_millis(2500);

/// Nobody is granted what somebody whose clock is wrong holds and renews; it gets its turn, and gives way when it dies.
async fn an_hour_makes_no_difference(place: Place, skew: &str) {
    let (locks, mut skewed) = (place.node().await, place.process_off_by(skew).await);
    let guard = locks.acquire("ledger").lease(Duration::from_millis(LEASE_MS)).await.unwrap();
    skewed.tell(&format!("ACQUIRE ledger {LEASE_MS} 60000")).await;
    let held_since = Instant::now();
    while held_since.elapsed() < LONGER {
        assert_eq!(held_with(&locks, "ledger").await, Some(guard.token()), "it is ours");
        assert!(guard.is_valid());
        tokio::time::sleep(SECOND / 20).await;
    }
    let ours = guard.token().get();
    guard.release().await.unwrap();

    let theirs = skewed.granted().await;
    assert!(theirs > ours);
    let held_since = Instant::now();
    while held_since.elapsed() < LONGER {
        assert!(locks.try_acquire("ledger").await.unwrap().is_none(), "it is theirs");
        tokio::time::sleep(SECOND / 20).await;
    }
    assert_eq!(skewed.ask("VALID").await, "true");
    skewed.signal(Signal::KILL);
    assert!(acquire(&locks, "ledger").await.token().get() > theirs);
}

async fn an_hour_behind(place: Place) {
    an_hour_makes_no_difference(place, "-1h").await;
}

async fn an_hour_ahead(place: Place) {
    an_hour_makes_no_difference(place, "+1h").await;
}

on_shared_stores!(an_hour_behind, an_hour_ahead);
