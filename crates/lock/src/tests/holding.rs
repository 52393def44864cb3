use tokio::time::Instant;

use super::*;
use crate::Lease;

#[tokio::test(start_paused = true)]
async fn a_guard_renews_its_lock_and_releases_it_when_dropped() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    tokio::time::sleep(SECOND * 600).await;
    assert!(guard.is_valid() && guard.valid_for() > SECOND * 15);
    assert!(another_process(&store).try_acquire("k").await.unwrap().is_none());
    drop(guard);
    settle().await;
    assert!(another_process(&store).try_acquire("k").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_holder_is_notified_of_the_loss_before_the_lease_expires() {
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
        assert!(
            another_process(&store).try_acquire("k").await.unwrap().is_none(),
            "the lease has not expired"
        );
        assert!(matches!(guard.run(async {}).await, Err(Error::Lost { .. })));
        assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn a_future_run_under_a_guard_stops_when_the_lock_is_lost() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    store.is_down.store(true, Ordering::Relaxed);
    let endless = guard.run(std::future::pending::<()>());
    assert!(matches!(endless.await, Err(Error::Lost { token }) if token == guard.token()));
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_of_the_store_does_not_lose_the_lock() {
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
async fn a_force_released_lock_is_lost_at_the_next_renewal() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    locks.force_release("k").await.unwrap();
    let other = another_process(&store).acquire("k").await.unwrap();
    let began = Instant::now();
    guard.lost().await;
    assert!(began.elapsed() <= SECOND * 11, "{:?}", began.elapsed());
    drop(guard);
    settle().await;
    assert!(locks.try_acquire("k").await.unwrap().is_none(), "another process holds the lock");
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_lost_its_lock_does_not_block_the_local_queue() {
    let (locks, store) = locks();
    let lost = locks.acquire("k").await.unwrap();
    store.is_down.store(true, Ordering::Relaxed);
    lost.lost().await;
    store.is_down.store(false, Ordering::Relaxed);
    let next = locks.acquire("k").await.unwrap();
    assert!(next.token() > lost.token());
}

#[tokio::test(start_paused = true)]
async fn a_failed_release_is_retried() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    store.is_down.store(true, Ordering::Relaxed);
    let releasing = tokio::spawn(guard.release());
    tokio::time::sleep(Duration::from_millis(10)).await;
    store.is_down.store(false, Ordering::Relaxed);
    releasing.await.unwrap().unwrap();
    assert!(another_process(&store).try_acquire("k").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn an_accepted_detached_lease_is_held_until_its_release() {
    let (locks, store) = locks();
    let handover = locks.acquire("a").lease(SECOND * 10).acquire_detached().await.unwrap();
    assert!(handover.valid_for() > SECOND * 9 && handover.valid_for() <= SECOND * 10);
    let lease = handover.accept();
    tokio::time::sleep(SECOND * 6).await;
    assert!(locks.renew(&lease, SECOND * 10).await.unwrap() > SECOND * 9);
    tokio::time::sleep(SECOND * 6).await;
    let other = another_process(&store);
    assert!(other.try_acquire("a").await.unwrap().is_none(), "the lease was renewed");
    locks.release(&lease).await.unwrap();
    assert!(matches!(locks.release(&lease).await, Err(Error::Lost { .. })));
    assert!(matches!(locks.renew(&lease, SECOND).await, Err(Error::Lost { .. })));
    let next = other.acquire("a").acquire_detached().await.unwrap();
    assert!(next.lease().token() > lease.token());
    let forged = Lease::new(next.lease().key().clone(), lease.nonce(), next.lease().token());
    assert!(
        matches!(locks.release(&forged).await, Err(Error::Lost { .. })),
        "a forged lease does not release the lock"
    );
}

#[tokio::test(start_paused = true)]
async fn a_detached_lease_expires_without_renewals() {
    let (locks, _store) = locks();
    let lease = locks.acquire("a").lease(SECOND).acquire_detached().await.unwrap().accept();
    let began = tokio::time::Instant::now();
    let second = locks.acquire("a").acquire_detached().await.unwrap();
    assert!(began.elapsed() >= SECOND && second.lease().token() > lease.token());
}

#[tokio::test(start_paused = true)]
async fn a_detached_lease_that_is_not_accepted_is_released() {
    let (locks, store) = locks();
    drop(locks.acquire("a").acquire_detached().await.unwrap());
    settle().await;
    let other = another_process(&store);
    let held = other.acquire("a").acquire_detached().await.unwrap();
    assert_eq!(
        locks.inspect("a").await.unwrap().unwrap().holder.map(|h| h.token),
        Some(held.lease().token())
    );
    // A waiter that is dropped leaves no state behind.
    let waiting = tokio::time::timeout(SECOND, locks.acquire("a").acquire_detached()).await;
    assert!(waiting.is_err());
    settle().await;
    assert_eq!(locks.inspect("a").await.unwrap().unwrap().waiting, 0);
    _ = held.accept();
}
