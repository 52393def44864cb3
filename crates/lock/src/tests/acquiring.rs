use std::sync::Mutex;

use holdoff_policy::{BreakerOptions, Growth, Jitter, Policy};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{LockFilter, Polled, Settings};

#[tokio::test(start_paused = true)]
async fn contenders_of_one_process_are_served_in_order_and_only_the_head_asks_the_store() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..10 {
        let (locks, order) = (locks.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            let guard = locks.acquire("k").await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        settle().await;
    }
    assert_eq!(store.requests(), 1, "the others wait in the local queue");
    guard.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
    assert_eq!(store.requests(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_in_another_process_is_granted_the_lock_at_its_release() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    let (first, other) = (guard.token(), another_process(&store));
    let waiting = tokio::spawn(async move { (other.acquire("k").await.unwrap(), Instant::now()) });
    tokio::time::sleep(SECOND * 3).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    let (guard, at) = waiting.await.unwrap();
    assert!(at - released < Duration::from_millis(5), "{:?}", at - released);
    assert!(guard.token() > first);
}

#[tokio::test(start_paused = true)]
async fn a_previous_holder_does_not_overtake_the_waiters() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    let other = another_process(&store);
    let waiting = tokio::spawn(async move { other.acquire("k").await.unwrap().token() });
    settle().await;
    guard.release().await.unwrap();
    let again = locks.acquire("k").await.unwrap();
    assert!(waiting.await.unwrap() < again.token());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_granted_the_lock_soon_after_the_lease_of_a_vanished_holder() {
    let (locks, store) = locks();
    let key = LockKey::new("default", "k").unwrap();
    let owner = crate::Owner { nonce: Nonce::random(), name: "dead".to_owned() };
    let request = AcquireRequest { key, owner, lease: SECOND * 30, waits_for: None };
    LeaseStore::try_acquire(&*store, &request).await.unwrap();
    let began = Instant::now();
    locks.acquire("k").await.unwrap().release().await.unwrap();
    let took = began.elapsed();
    assert!(took >= SECOND * 30 && took < SECOND * 30 + SECOND / 10, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn wake_ups_do_not_count_as_attempts() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    let policy =
        Policy::builder(Growth::constant(SECOND * 2)).jitter(Jitter::None).attempts(2).build().unwrap();
    let waiting = tokio::spawn(another_process(&store).acquire("k").policy(policy).into_future());
    settle().await;
    for _ in 0..10 {
        store.notify(guard.key(), Notification::MayBeFree);
        tokio::time::sleep(SECOND / 10).await;
    }
    assert_eq!(store.requests(), 12, "each notification leads to a request");
    guard.release().await.unwrap();
    waiting
        .await
        .unwrap()
        .expect("refused requests after a notification do not count as attempts")
        .release()
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_error_after_the_last_attempt_names_the_holder() {
    let (locks, store) = locks();
    let settings = Settings::default().with_name("the holder");
    let _guard = locks.with_settings(settings).unwrap().acquire("k").await.unwrap();
    let policy = Policy::builder(Growth::constant(SECOND)).jitter(Jitter::None).attempts(3).build().unwrap();
    let began = Instant::now();
    let error = another_process(&store).acquire("k").policy(policy.clone()).await.unwrap_err();
    assert!(error.to_string().contains("by the holder: gave up after 3 attempts"), "{error}");
    assert!((SECOND * 2..SECOND * 21 / 10).contains(&began.elapsed()), "{:?}", began.elapsed());
    let began = Instant::now();
    let error = locks.acquire("k").policy(policy).await.unwrap_err();
    assert!(
        matches!(error, Error::Contended { attempts: 3, .. }),
        "the policy also limits the wait in the local queue: {error}"
    );
    assert!((SECOND * 2..SECOND * 21 / 10).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!(locks.inspect("k").await.unwrap().unwrap().waiting, 0, "no waiter is left");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_kept_in_the_local_queue_at_the_store_and_while_it_hangs() {
    let (locks, store) = locks();
    let _guard = locks.acquire("k").await.unwrap();
    for hangs in [false, true] {
        store.is_hanging.store(hangs, Ordering::Relaxed);
        for locks in [locks.clone(), another_process(&store)] {
            let began = Instant::now();
            let acquire = locks.acquire(if hangs { "other" } else { "k" }).deadline(SECOND * 5);
            let error = tokio::time::timeout(SECOND * 11, acquire.into_future()).await.unwrap().unwrap_err();
            assert!(error.is_transient(), "{error}");
            let expected = if hangs { SECOND * 5..SECOND * 11 } else { SECOND * 5..SECOND * 51 / 10 };
            assert!(expected.contains(&began.elapsed()), "{:?}", began.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_allows_any_number_of_attempts() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    let policy = Policy::preset("lock").unwrap();
    let began = Instant::now();
    let other = another_process(&store);
    let error = other.acquire("k").policy(policy.clone()).wait(SECOND * 60).await.unwrap_err();
    assert!(matches!(error, Error::DeadlineExceeded { .. }), "{error}");
    assert!((SECOND * 60..SECOND * 61).contains(&began.elapsed()));
    assert!(guard.is_valid(), "the lease was renewed");
}

#[tokio::test(start_paused = true)]
async fn cancelled_or_dropped_waiters_leave_no_state_behind() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    for drops in [false, true] {
        for locks in [locks.clone(), another_process(&store)] {
            let cancel = CancellationToken::new();
            let waiting = tokio::spawn(locks.acquire("k").cancel(cancel.clone()).into_future());
            settle().await;
            if drops {
                waiting.abort();
                assert!(waiting.await.unwrap_err().is_cancelled());
            } else {
                cancel.cancel();
                assert!(matches!(waiting.await.unwrap(), Err(Error::Cancelled)));
            }
            settle().await;
            assert_eq!(locks.inspect("k").await.unwrap().unwrap().waiting, 0);
            let key = LockKey::new("default", "k").unwrap();
            assert!(locks.shared.queues.members(&key) <= 1, "only the holder");
        }
    }
    guard.release().await.unwrap();
    assert!(locks.try_acquire("k").await.unwrap().is_some(), "the lock is reserved for no contender");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_beyond_the_limit_is_rejected_at_once() {
    let (locks, _) = locks();
    let locks = locks.with_settings(Settings::default().with_max_waiters(2)).unwrap();
    let _guard = locks.acquire("k").await.unwrap();
    let waiting: Vec<_> = (0..2).map(|_| tokio::spawn(locks.acquire("k").into_future())).collect();
    settle().await;
    let error = locks.acquire("k").await.unwrap_err();
    assert!(matches!(error, Error::TooManyWaiters { limit: 2 }), "{error}");
    assert!(locks.acquire("another key").await.is_ok());
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_grant_with_a_lost_response_is_read_back() {
    let (locks, store) = locks();
    store.lost_responses.store(1, Ordering::Relaxed);
    let guard = locks.acquire("k").await.unwrap();
    assert_eq!(store.requests(), 1, "the grant was read back, not requested again");
    assert_eq!(locks.inspect("k").await.unwrap().unwrap().token, guard.token());
    store.lost_responses.store(1, Ordering::Relaxed);
    assert!(locks.try_acquire("other").await.is_err());
    assert!(
        another_process(&store).try_acquire("other").await.unwrap().is_some(),
        "the request was withdrawn"
    );
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_survives_a_temporary_outage_of_the_store() {
    let (locks, store) = locks();
    store.is_down.store(true, Ordering::Relaxed);
    let waiting = tokio::spawn(locks.acquire("k").into_future());
    tokio::time::sleep(SECOND * 5).await;
    store.is_down.store(false, Ordering::Relaxed);
    assert!(waiting.await.unwrap().is_ok());
    store.is_down.store(true, Ordering::Relaxed);
    let error = locks.acquire("other").deadline(SECOND * 5).await.unwrap_err();
    assert!(
        matches!(error, Error::Store { transient: true, .. }),
        "the error of the store, not the deadline: {error}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_circuit_breaker_opens_after_repeated_failures() {
    let (locks, store) = locks();
    let breaker = BreakerOptions { min_calls: 4, ..BreakerOptions::default() };
    let locks = locks.with_settings(Settings::default().with_breaker(breaker)).unwrap();
    store.is_down.store(true, Ordering::Relaxed);
    for _ in 0..20 {
        assert!(matches!(locks.try_acquire("k").await, Err(Error::Store { transient: true, .. })));
    }
    assert!(store.requests() <= 4, "the store received {} requests", store.requests());
    store.is_down.store(false, Ordering::Relaxed);
    tokio::time::sleep(SECOND * 60).await;
    assert!(locks.try_acquire("k").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn namespaces_are_separate_and_locks_can_be_listed_force_released_and_pruned() {
    let (locks, _) = locks();
    let one = locks.acquire("k").namespace("one").await.unwrap();
    let other = locks.with_namespace("other").unwrap().acquire("k").await.unwrap();
    let found = locks.list(&LockFilter::default().held()).await.unwrap();
    assert_eq!(found.iter().map(|record| &*record.namespace).collect::<Vec<_>>(), ["one", "other"]);
    assert_eq!(
        locks.list(&LockFilter::default().namespace("one").prefix("k").limit(9)).await.unwrap().len(),
        1
    );
    let forced = locks.with_namespace("one").unwrap().force_release("k").await.unwrap();
    assert_eq!(forced.map(|holder| holder.token), Some(one.token()));
    assert!(matches!(one.release().await, Err(Error::Lost { .. })));
    other.release().await.unwrap();
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!(locks.prune(SECOND * 5, 100).await.unwrap(), 2);
    let floor = Token::MAX_FLOOR;
    assert_eq!(locks.raise_floor(floor).await.unwrap(), floor);
    assert_eq!(locks.raise_floor(Token::new(1)).await.unwrap(), floor, "the floor is never lowered");
    let too_high = locks.raise_floor(Token::new(floor.get() + 1)).await.unwrap_err();
    assert!(matches!(too_high, Error::FloorTooHigh { .. }), "{too_high}");
    assert!(locks.acquire("k").namespace("one").await.unwrap().token() > floor);
}

async fn retry_after(locks: &Locks) -> Duration {
    match locks.poll("k").await.unwrap() {
        Polled::RetryAfter(after) => after,
        Polled::Granted(guard) => panic!("granted {:?}", guard.token()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_does_not_wait_and_returns_when_to_retry() {
    let (locks, store) = locks();
    let guard = another_process(&store).acquire("k").await.unwrap();
    let began = tokio::time::Instant::now();
    let mut delays = Vec::new();
    for _ in 0..5 {
        let after = retry_after(&locks).await;
        delays.push(after);
        tokio::time::sleep(after).await;
    }
    let slept = delays.iter().sum::<Duration>();
    assert!(began.elapsed() <= slept + Duration::from_millis(10), "timers round up to a millisecond each");
    assert!(delays[0] < SECOND / 8 && delays[4] > SECOND / 2, "the delays increase: {delays:?}");
    assert_eq!(locks.inspect("k").await.unwrap().unwrap().waiting, 1, "the same waiter at every poll");
    guard.release().await.unwrap();
    let again = another_process(&store).try_acquire("k").await.unwrap();
    assert!(again.is_none(), "the lock is reserved for the poller");
    assert!(matches!(locks.poll("k").await.unwrap(), Polled::Granted(_)));
}

#[tokio::test(start_paused = true)]
async fn a_poll_for_a_locally_held_lock_does_not_ask_the_store() {
    let (locks, store) = locks();
    let _guard = locks.acquire("k").await.unwrap();
    assert!(retry_after(&locks).await > Duration::ZERO);
    assert_eq!(store.requests(), 1);
}

#[tokio::test(start_paused = true)]
async fn polling_never_gives_up() {
    let (locks, store) = locks();
    let _guard = another_process(&store).acquire("k").await.unwrap();
    for _ in 0..500 {
        tokio::time::sleep(retry_after(&locks).await.max(Duration::from_millis(1))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_reads_back_a_grant_with_a_lost_response() {
    let (locks, store) = locks();
    store.is_down.store(true, Ordering::Relaxed);
    retry_after(&locks).await;
    store.is_down.store(false, Ordering::Relaxed);
    store.lost_responses.store(1, Ordering::Relaxed);
    assert!(matches!(locks.poll("k").await.unwrap(), Polled::Granted(_)));
}
