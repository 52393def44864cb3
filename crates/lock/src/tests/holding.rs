use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::*;
use crate::Error;

#[tokio::test(start_paused = true)]
async fn it_is_renewed_for_as_long_as_it_is_held_and_let_go_when_dropped() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    tokio::time::sleep(SECOND * 600).await;
    assert!(guard.is_valid() && guard.valid_for() > SECOND * 15);
    assert!(neighbour(&store).try_acquire("k").await.unwrap().is_none());
    drop(guard);
    settle().await;
    assert!(neighbour(&store).try_acquire("k").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn it_is_lost_before_anybody_else_can_have_it() {
    for hangs in [false, true] {
        let (locks, store) = locks();
        let guard = locks.acquire("k").await.unwrap();
        let began = Instant::now();
        (if hangs { &store.is_hanging } else { &store.is_down }).store(true, Ordering::Relaxed);
        guard.lost().await;
        let took = began.elapsed();
        assert!(took < SECOND * 30 && took > SECOND * 28, "{took:?}");
        assert!(!guard.is_valid() && guard.valid_for().is_zero());
        store.is_down.store(false, Ordering::Relaxed);
        store.is_hanging.store(false, Ordering::Relaxed);
        assert!(neighbour(&store).try_acquire("k").await.unwrap().is_none(), "the lease is not over");
        assert!(matches!(guard.run(async {}).await, Err(Error::Lost { .. })));
        assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_under_a_lock_stops_when_it_is_lost() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    store.is_down.store(true, Ordering::Relaxed);
    let endless = guard.run(std::future::pending::<()>());
    assert!(matches!(endless.await, Err(Error::Lost { token }) if token == guard.token()));
}

#[tokio::test(start_paused = true)]
async fn a_short_failure_of_the_store_is_not_noticed() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    for _ in 0..20 {
        store.is_down.store(true, Ordering::Relaxed);
        tokio::time::sleep(SECOND * 15).await;
        store.is_down.store(false, Ordering::Relaxed);
        tokio::time::sleep(SECOND * 10).await;
    }
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_that_was_taken_by_force_is_lost_at_the_next_renewal_and_releases_nothing() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    locks.force_release("k").await.unwrap();
    let other = neighbour(&store).acquire("k").await.unwrap();
    let began = Instant::now();
    guard.lost().await;
    assert!(began.elapsed() <= SECOND * 11, "{:?}", began.elapsed());
    drop(guard);
    settle().await;
    assert!(locks.try_acquire("k").await.unwrap().is_none(), "it is the other's");
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn others_of_the_process_need_not_wait_for_one_that_lost_it() {
    let (locks, store) = locks();
    let lost = locks.acquire("k").await.unwrap();
    store.is_down.store(true, Ordering::Relaxed);
    lost.lost().await;
    store.is_down.store(false, Ordering::Relaxed);
    let next = locks.acquire("k").await.unwrap();
    assert!(next.token() > lost.token());
}

#[tokio::test(start_paused = true)]
async fn a_release_that_the_store_did_not_hear_is_told_again() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    store.is_down.store(true, Ordering::Relaxed);
    let releasing = tokio::spawn(guard.release());
    tokio::time::sleep(Duration::from_millis(10)).await;
    store.is_down.store(false, Ordering::Relaxed);
    releasing.await.unwrap().unwrap();
    assert!(neighbour(&store).try_acquire("k").await.unwrap().is_some());
}
