use std::sync::Mutex;
use std::sync::atomic::Ordering;

use holdoff_policy::{BreakerOptions, Growth, Jitter, Policy};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{Error, Filter, Settings, Token};

#[tokio::test(start_paused = true)]
async fn those_of_one_process_are_served_in_order_and_only_the_first_asks() {
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
    assert_eq!(store.asked(), 1, "the others wait in front");
    guard.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
    assert_eq!(store.asked(), 11);
}

#[tokio::test(start_paused = true)]
async fn another_process_gets_it_as_soon_as_it_is_let_go() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    let other = neighbour(&store);
    let waiting = tokio::spawn(async move { (other.acquire("k").await.unwrap(), Instant::now()) });
    tokio::time::sleep(SECOND * 3).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    let (guard, at) = waiting.await.unwrap();
    assert!(at - released < Duration::from_millis(5), "{:?}", at - released);
    assert_eq!(guard.token(), Token::new(2));
}

#[tokio::test(start_paused = true)]
async fn whoever_let_go_cannot_take_it_again_before_those_who_wait() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    let other = neighbour(&store);
    let waiting = tokio::spawn(async move { other.acquire("k").await.unwrap().token() });
    settle().await;
    guard.release().await.unwrap();
    let again = locks.acquire("k").await.unwrap();
    assert_eq!((waiting.await.unwrap(), again.token()), (Token::new(2), Token::new(3)));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_vanished_is_succeeded_soon_after_its_lease() {
    let (locks, store) = locks();
    let key = crate::Key::new("default", "k").unwrap();
    let owner = crate::Owner { nonce: crate::Nonce::fresh(), name: "dead".to_owned() };
    let bid = crate::store::Bid { key, owner, lease: SECOND * 30, waits: None };
    crate::store::LeaseStore::try_acquire(&*store, &bid).await.unwrap();
    let began = Instant::now();
    locks.acquire("k").await.unwrap().release().await.unwrap();
    let took = began.elapsed();
    assert!(took >= SECOND * 30 && took < SECOND * 30 + SECOND / 10, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn wake_ups_are_no_attempts() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    let policy =
        Policy::builder(Growth::constant(SECOND * 2)).jitter(Jitter::None).attempts(2).build().unwrap();
    let waiting = tokio::spawn(neighbour(&store).acquire("k").policy(policy).into_future());
    settle().await;
    for _ in 0..10 {
        store.tell(guard.key(), crate::wakes::Heard::Maybe);
        tokio::time::sleep(SECOND / 10).await;
    }
    assert_eq!(store.asked(), 12, "each word is followed");
    guard.release().await.unwrap();
    waiting.await.unwrap().expect("ten times in vain, and none was an attempt").release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn attempts_run_out_and_the_error_says_who_has_it() {
    let (locks, store) = locks();
    let settings = Settings::default().with_name("the holder");
    let _guard = locks.with_settings(settings).unwrap().acquire("k").await.unwrap();
    let policy = Policy::builder(Growth::constant(SECOND)).jitter(Jitter::None).attempts(3).build().unwrap();
    let began = Instant::now();
    let error = neighbour(&store).acquire("k").policy(policy.clone()).await.unwrap_err();
    assert!(error.to_string().contains("by the holder: given up after 3 attempts"), "{error}");
    assert!((SECOND * 2..SECOND * 21 / 10).contains(&began.elapsed()), "{:?}", began.elapsed());
    let began = Instant::now();
    let error = locks.acquire("k").policy(policy).await.unwrap_err();
    assert!(matches!(error, Error::Contended { attempts: 3, .. }), "in front too: {error}");
    assert!((SECOND * 2..SECOND * 21 / 10).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!(locks.inspect("k").await.unwrap().unwrap().waiting, 0, "nothing is left behind");
}

#[tokio::test(start_paused = true)]
async fn deadlines_hold_in_front_at_the_store_and_while_it_hangs() {
    let (locks, store) = locks();
    let _guard = locks.acquire("k").await.unwrap();
    for hangs in [false, true] {
        store.is_hanging.store(hangs, Ordering::Relaxed);
        for locks in [locks.clone(), neighbour(&store)] {
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
async fn to_wait_is_to_make_as_many_attempts_as_it_takes() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    let policy = Policy::preset("lock").unwrap();
    let began = Instant::now();
    let other = neighbour(&store);
    let error = other.acquire("k").policy(policy.clone()).wait(SECOND * 60).await.unwrap_err();
    assert!(matches!(error, Error::DeadlineExceeded { .. }), "{error}");
    assert!((SECOND * 60..SECOND * 61).contains(&began.elapsed()));
    assert!(guard.is_valid(), "renewed all the while");
}

#[tokio::test(start_paused = true)]
async fn cancelled_or_dropped_waiters_leave_nothing_behind() {
    let (locks, store) = locks();
    let guard = locks.acquire("k").await.unwrap();
    for drops in [false, true] {
        for locks in [locks.clone(), neighbour(&store)] {
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
            let key = crate::Key::new("default", "k").unwrap();
            assert!(locks.shared.lines.members(&key) <= 1, "only the holder");
        }
    }
    guard.release().await.unwrap();
    assert!(locks.try_acquire("k").await.unwrap().is_some(), "it is kept for nobody");
}

#[tokio::test(start_paused = true)]
async fn too_many_waiters_are_refused_at_once() {
    let (locks, _) = locks();
    let locks = locks.with_settings(Settings::default().with_most_waiters(2)).unwrap();
    let _guard = locks.acquire("k").await.unwrap();
    let waiting: Vec<_> = (0..2).map(|_| tokio::spawn(locks.acquire("k").into_future())).collect();
    settle().await;
    let error = locks.acquire("k").await.unwrap_err();
    assert!(matches!(error, Error::TooManyWaiters { limit: 2 }), "{error}");
    assert!(locks.acquire("another key").await.is_ok());
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_found_again() {
    let (locks, store) = locks();
    store.lost_answers.store(1, Ordering::Relaxed);
    let guard = locks.acquire("k").await.unwrap();
    assert_eq!((guard.token(), store.asked()), (Token::new(1), 1), "read back, not asked again");
    store.lost_answers.store(1, Ordering::Relaxed);
    assert!(locks.try_acquire("other").await.is_err());
    assert!(neighbour(&store).try_acquire("other").await.unwrap().is_some(), "it was withdrawn");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_while_is_waited_for() {
    let (locks, store) = locks();
    store.is_down.store(true, Ordering::Relaxed);
    let waiting = tokio::spawn(locks.acquire("k").into_future());
    tokio::time::sleep(SECOND * 5).await;
    store.is_down.store(false, Ordering::Relaxed);
    assert!(waiting.await.unwrap().is_ok());
    store.is_down.store(true, Ordering::Relaxed);
    let error = locks.acquire("other").deadline(SECOND * 5).await.unwrap_err();
    assert!(matches!(error, Error::Store { transient: true, .. }), "the reason, not the deadline: {error}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_again_and_again_is_left_alone() {
    let (locks, store) = locks();
    let breaker = BreakerOptions { min_calls: 4, ..BreakerOptions::default() };
    let locks = locks.with_settings(Settings::default().with_breaker(breaker)).unwrap();
    store.is_down.store(true, Ordering::Relaxed);
    for _ in 0..20 {
        assert!(matches!(locks.try_acquire("k").await, Err(Error::Store { transient: true, .. })));
    }
    assert!(store.asked() <= 4, "asked {} times", store.asked());
    store.is_down.store(false, Ordering::Relaxed);
    tokio::time::sleep(SECOND * 60).await;
    assert!(locks.try_acquire("k").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn namespaces_are_apart_and_locks_can_be_listed_forced_and_pruned() {
    let (locks, _) = locks();
    let one = locks.acquire("k").namespace("one").await.unwrap();
    let other = locks.with_namespace("other").unwrap().acquire("k").await.unwrap();
    let found = locks.list(&Filter::default().held()).await.unwrap();
    assert_eq!(found.iter().map(|record| &*record.namespace).collect::<Vec<_>>(), ["one", "other"]);
    assert_eq!(locks.list(&Filter::default().namespace("one").prefix("k").limit(9)).await.unwrap().len(), 1);
    let forced = locks.with_namespace("one").unwrap().force_release("k").await.unwrap();
    assert_eq!(forced.map(|holder| holder.token), Some(one.token()));
    assert!(matches!(one.release().await, Err(Error::Lost { .. })));
    other.release().await.unwrap();
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!(locks.prune(SECOND * 5, 100).await.unwrap(), 2);
    assert_eq!(locks.raise_era().await.unwrap(), 1);
    let next = locks.acquire("k").namespace("one").await.unwrap();
    assert_eq!(next.token().era(), 1);
}
