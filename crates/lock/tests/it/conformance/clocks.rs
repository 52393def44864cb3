//! Processes whose wall clocks are wrong by an hour: there is no effect.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

use crate::conformance::place::{Place, SECOND, acquire, held_with, on_shared_stores};

/// Long enough that a holder on a busy machine renews in time. If a wrong clock had an effect, the lease would expire
/// at once: the error of the clock is far larger.
const LEASE_MS: u64 = 6000;
/// Longer than a third of the lease, after which a holder renews.
const OBSERVED: Duration = Duration::from_secs(3);

/// The store grants no lock that a process with a wrong clock holds and renews. That process gets its turn, and its
/// lock expires when it dies.
async fn an_hour_makes_no_difference(place: &Place, skew: &str, key: &str) {
    let (locks, mut skewed) = (place.node().await, place.process_off_by(skew).await);
    let guard = locks.acquire(key).lease(Duration::from_millis(LEASE_MS)).await.unwrap();
    skewed.tell(&format!("ACQUIRE {key} {LEASE_MS} 60000")).await;
    let held_since = Instant::now();
    while held_since.elapsed() < OBSERVED {
        assert_eq!(held_with(&locks, key).await, Some(guard.token()), "it is ours");
        assert!(guard.is_valid());
        tokio::time::sleep(SECOND / 20).await;
    }
    let ours = guard.token().get();
    guard.release().await.unwrap();

    let theirs = skewed.granted().await;
    assert!(theirs > ours);
    let held_since = Instant::now();
    while held_since.elapsed() < OBSERVED {
        assert!(locks.try_acquire(key).await.unwrap().is_none(), "it is theirs");
        tokio::time::sleep(SECOND / 20).await;
    }
    assert_eq!(skewed.ask("VALID").await, "true");
    skewed.signal(Signal::KILL);
    assert!(acquire(&locks, key).await.token().get() > theirs);
}

/// Both at once. The clock of the test process is right.
async fn clocks_an_hour_behind_and_ahead_make_no_difference(place: Place) {
    tokio::join!(
        an_hour_makes_no_difference(&place, "-1h", "ledger"),
        an_hour_makes_no_difference(&place, "+1h", "journal")
    );
}

on_shared_stores!(clocks_an_hour_behind_and_ahead_make_no_difference);
