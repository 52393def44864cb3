use std::sync::atomic::Ordering;

use super::*;
use crate::Polled;

async fn come_back(locks: &Locks) -> Duration {
    match locks.poll("k").await.unwrap() {
        Polled::ComeBack(after) => after,
        Polled::Granted(guard) => panic!("granted {:?}", guard.token()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_never_waits_and_says_when_to_come_back() {
    let (locks, store) = locks();
    let guard = neighbour(&store).acquire("k").await.unwrap();
    let began = tokio::time::Instant::now();
    let mut delays = Vec::new();
    for _ in 0..5 {
        let after = come_back(&locks).await;
        delays.push(after);
        tokio::time::sleep(after).await;
    }
    let slept = delays.iter().sum::<Duration>();
    assert!(began.elapsed() <= slept + Duration::from_millis(10), "timers round up to a millisecond each");
    assert!(delays[0] < SECOND / 8 && delays[4] > SECOND / 2, "it backs off: {delays:?}");
    assert_eq!(locks.inspect("k").await.unwrap().unwrap().waiting, 1, "one and the same wish all along");
    guard.release().await.unwrap();
    let again = neighbour(&store).try_acquire("k").await.unwrap();
    assert!(again.is_none(), "it is kept for the one that polls");
    assert!(matches!(locks.poll("k").await.unwrap(), Polled::Granted(_)));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_held_in_this_process_is_come_back_for_without_asking() {
    let (locks, store) = locks();
    let _guard = locks.acquire("k").await.unwrap();
    assert!(come_back(&locks).await > Duration::ZERO);
    assert_eq!(store.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_never_stops_polling_is_never_given_up_on() {
    let (locks, store) = locks();
    let _guard = neighbour(&store).acquire("k").await.unwrap();
    for _ in 0..500 {
        tokio::time::sleep(come_back(&locks).await.max(Duration::from_millis(1))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_found_by_the_next_poll_at_the_latest() {
    let (locks, store) = locks();
    store.is_down.store(true, Ordering::Relaxed);
    come_back(&locks).await;
    store.is_down.store(false, Ordering::Relaxed);
    store.lost_answers.store(1, Ordering::Relaxed);
    assert!(matches!(locks.poll("k").await.unwrap(), Polled::Granted(_)));
}
