//! Locks that their clients maintain themselves.

use super::{SECOND, locks, neighbour, settle};
use crate::{Error, Lease};

#[tokio::test(start_paused = true)]
async fn what_is_accepted_stays_until_it_is_let_go() {
    let (locks, store) = locks();
    let handover = locks.acquire("a").lease(SECOND * 10).hand_over().await.unwrap();
    assert!(handover.valid_for() > SECOND * 9 && handover.valid_for() <= SECOND * 10);
    let lease = handover.accept();
    tokio::time::sleep(SECOND * 6).await;
    assert!(locks.renew(&lease, SECOND * 10).await.unwrap() > SECOND * 9);
    tokio::time::sleep(SECOND * 6).await;
    let other = neighbour(&store);
    assert!(other.try_acquire("a").await.unwrap().is_none(), "it was renewed");
    locks.release(&lease).await.unwrap();
    assert!(matches!(locks.release(&lease).await, Err(Error::Lost { .. })));
    assert!(matches!(locks.renew(&lease, SECOND).await, Err(Error::Lost { .. })));
    let next = other.acquire("a").hand_over().await.unwrap();
    assert!(next.lease().token() > lease.token());
    let forged = Lease::new(next.lease().key().clone(), lease.nonce(), next.lease().token());
    assert!(matches!(locks.release(&forged).await, Err(Error::Lost { .. })), "another's is not touched");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_renews_ends() {
    let (locks, _store) = locks();
    let lease = locks.acquire("a").lease(SECOND).hand_over().await.unwrap().accept();
    let began = tokio::time::Instant::now();
    let second = locks.acquire("a").hand_over().await.unwrap();
    assert!(began.elapsed() >= SECOND && second.lease().token() > lease.token());
}

#[tokio::test(start_paused = true)]
async fn what_nobody_accepts_is_let_go() {
    let (locks, store) = locks();
    drop(locks.acquire("a").hand_over().await.unwrap());
    settle().await;
    let other = neighbour(&store);
    let held = other.acquire("a").hand_over().await.unwrap();
    assert_eq!(
        locks.inspect("a").await.unwrap().unwrap().holder.map(|h| h.token),
        Some(held.lease().token())
    );
    // A waiter that is dropped leaves no state behind.
    let waiting = tokio::time::timeout(SECOND, locks.acquire("a").hand_over()).await;
    assert!(waiting.is_err());
    settle().await;
    assert_eq!(locks.inspect("a").await.unwrap().unwrap().waiting, 0);
    _ = held.accept();
}
