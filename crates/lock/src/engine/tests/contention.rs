//! Many requests at once.

use std::collections::HashSet;
use std::time::Duration;

use holdoff_testbed::CONDITION_TIMEOUT;
use tokio::time::Instant;

use super::{TestStore, granted, granted_at_last, key, nonce, on_all, refused, request, waiting};
use crate::notify::{Notification, Subscription};
use crate::store::{AcquireOutcome, AcquireRequest, RESERVATION};
use crate::{Nonce, Token};

on_all!(
    one_of_many_concurrent_requests_is_granted,
    pruning_does_not_lower_tokens,
    the_longest_waiting_contender_is_next,
    a_dead_waiter_is_passed_over_after_its_reservation,
    a_waiter_that_stopped_asking_is_passed_over,
    a_release_notifies_the_waiters,
    a_waiter_that_registers_during_a_release_is_notified,
);

const CONTENDERS: u128 = 16;

/// Waits for a notification of this kind: hints may arrive twice, or without a reason.
async fn wait_for(subscription: &mut Subscription, wanted: Notification) {
    let waiting = async { while subscription.recv().await != wanted {} };
    tokio::time::timeout(CONDITION_TIMEOUT, waiting).await.expect("no notification arrived");
}

async fn one_of_many_concurrent_requests_is_granted(test_store: TestStore) {
    let clients = [test_store.open().await, test_store.open().await];
    let rounds = if test_store.is_postgres() { 200 } else { 60 };
    let mut last = Token::new(0);
    for round in 0..rounds {
        // Every fourth round uses a new key.
        let key = key(&format!("{}", if round % 4 == 0 { round } else { -1 }));
        let requests = (0..CONTENDERS).map(|number| {
            let client = clients[usize::try_from(number % 2).unwrap()].clone();
            let request = if number % 3 == 0 { waiting(&key, number + 1) } else { request(&key, number + 1) };
            tokio::spawn(async move { (request.owner.nonce, client.try_acquire(&request).await.unwrap()) })
        });
        let mut winners: Vec<(Nonce, Token)> = Vec::new();
        for request in requests.collect::<Vec<_>>() {
            let (nonce, answer) = request.await.unwrap();
            if let AcquireOutcome::Granted(token) = answer {
                winners.push((nonce, token));
            }
        }
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        let (winner, token) = winners[0];
        if round % 4 != 0 {
            assert!(token > last, "round {round}: {token} after {last}");
            last = token;
        }
        for number in 1..=CONTENDERS {
            if nonce(number) != winner {
                clients[0].withdraw(&key, nonce(number)).await.unwrap();
            }
        }
        assert!(clients[1].release(&key, winner, token).await.unwrap());
    }
}

/// Locks are pruned while other clients acquire them: no token is granted twice.
async fn pruning_does_not_lower_tokens(test_store: TestStore) {
    let (store, other) = (test_store.open().await, test_store.open().await);
    let key = key("a");
    let pruner = tokio::spawn(async move {
        let mut forgotten = 0;
        loop {
            forgotten += other.prune(Duration::ZERO, 10).await.unwrap();
            if forgotten > 30 {
                return;
            }
        }
    });
    let (mut tokens, mut last, mut number) = (HashSet::new(), Token::new(0), 0);
    while !pruner.is_finished() {
        number += 1;
        let token = granted(&*store, &request(&key, number)).await;
        assert!(tokens.insert(token) && token > last, "{token} after {last}");
        last = token;
        assert!(store.release(&key, nonce(number), token).await.unwrap());
    }
    pruner.await.unwrap();
}

/// A busy machine may take longer than the reservation lasts. Such a round shows nothing, and the test repeats it.
async fn the_longest_waiting_contender_is_next(test_store: TestStore) {
    for round in 0.. {
        if passes_to_the_longest_waiter(&test_store, &format!("{round}")).await {
            return;
        }
    }
}

async fn passes_to_the_longest_waiter(test_store: &TestStore, name: &str) -> bool {
    let (store, other) = (test_store.open().await, test_store.open().await);
    let key = key(name);
    let token = granted(&*store, &request(&key, 1)).await;
    refused(&*store, &waiting(&key, 2)).await;
    refused(&*other, &waiting(&key, 3)).await;
    refused(&*store, &waiting(&key, 2)).await;
    let released_at = Instant::now();
    assert!(store.release(&key, nonce(1), token).await.unwrap());
    for newcomer in [waiting(&key, 1), request(&key, 9), waiting(&key, 3)] {
        match other.try_acquire(&newcomer).await.unwrap() {
            AcquireOutcome::Refused(refusal) => {
                assert!(refusal.holder.is_none() && refusal.free_in <= RESERVATION, "{refusal:?}");
            }
            AcquireOutcome::Granted(token) => {
                assert!(released_at.elapsed() > RESERVATION, "a newcomer was granted {token}");
                return false;
            }
        }
    }
    let second = granted(&*other, &waiting(&key, 2)).await;
    assert!(second > token);
    let released_at = Instant::now();
    assert!(store.force_release(&key).await.unwrap().is_some());
    if let AcquireOutcome::Granted(token) = store.try_acquire(&request(&key, 9)).await.unwrap() {
        assert!(released_at.elapsed() > RESERVATION, "a newcomer was granted {token}");
        return false;
    }
    granted(&*store, &waiting(&key, 3)).await;
    true
}

async fn a_dead_waiter_is_passed_over_after_its_reservation(test_store: TestStore) {
    let store = test_store.open().await;
    let key = key("a");
    let token = granted(&*store, &request(&key, 1)).await;
    refused(&*store, &waiting(&key, 2)).await;
    assert!(store.release(&key, nonce(1), token).await.unwrap());
    // The second is registered for another half minute, but never asks.
    let timeout = Duration::from_secs(10);
    tokio::time::timeout(timeout, granted_at_last(&*store, &request(&key, 3)))
        .await
        .expect("the lock stayed reserved for an absent waiter");
}

async fn a_waiter_that_stopped_asking_is_passed_over(test_store: TestStore) {
    let store = test_store.open().await;
    let key = key("a");
    let token = granted(&*store, &request(&key, 1)).await;
    let briefly = AcquireRequest { waits_for: Some(Duration::from_millis(1)), ..request(&key, 2) };
    refused(&*store, &briefly).await;
    while store.read(&key).await.unwrap().unwrap().waiting > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    refused(&*store, &waiting(&key, 3)).await;
    assert!(store.release(&key, nonce(1), token).await.unwrap());
    granted(&*store, &waiting(&key, 3)).await;
}

async fn a_release_notifies_the_waiters(test_store: TestStore) {
    let (store, other) = (test_store.open().await, test_store.open().await);
    let (key, unused) = (key("a"), key("b"));
    let token = granted(&*store, &request(&key, 1)).await;
    // The first subscription of a client makes it listen, so that this one is notified of it in any case.
    let mut elsewhere = other.subscribe(&unused);
    let (mut near, mut far) = (store.subscribe(&key), other.subscribe(&key));
    refused(&*other, &waiting(&key, 2)).await;
    refused(&*store, &waiting(&key, 3)).await;
    // Postgres notifies once when it listens. Only then are further notifications reliable.
    if test_store.is_postgres() {
        tokio::join!(
            wait_for(&mut near, Notification::MayBeFree),
            wait_for(&mut elsewhere, Notification::MayBeFree)
        );
    }
    assert!(store.release(&key, nonce(1), token).await.unwrap());
    tokio::join!(
        wait_for(&mut near, Notification::ReservedFor(nonce(2))),
        wait_for(&mut far, Notification::ReservedFor(nonce(2)))
    );
    store.withdraw(&key, nonce(2)).await.unwrap();
    tokio::join!(
        wait_for(&mut near, Notification::ReservedFor(nonce(3))),
        wait_for(&mut far, Notification::ReservedFor(nonce(3)))
    );
    granted(&*other, &waiting(&key, 3)).await;
    assert!(store.force_release(&key).await.unwrap().is_some());
    tokio::join!(wait_for(&mut near, Notification::MayBeFree), wait_for(&mut far, Notification::MayBeFree));
    let silence = tokio::time::timeout(Duration::from_millis(1), elsewhere.recv()).await;
    assert!(silence.is_err(), "a notification of another lock: {silence:?}");
}

/// The registration of a waiter and the release race in the store: the waiter is granted the lock, or is notified.
async fn a_waiter_that_registers_during_a_release_is_notified(test_store: TestStore) {
    let (holder, waiter) = (test_store.open().await, test_store.open().await);
    let key = key("k");
    let mut subscription = waiter.subscribe(&key);
    // As above: a release before Postgres listens notifies the waiter without naming it.
    if test_store.is_postgres() {
        wait_for(&mut subscription, Notification::MayBeFree).await;
    }
    let rounds = if test_store.is_postgres() { 200 } else { 20 };
    for _ in 0..rounds {
        let token = granted(&*holder, &request(&key, 1)).await;
        let (releasing, asking) = (holder.clone(), waiter.clone());
        let release = {
            let key = key.clone();
            tokio::spawn(async move { releasing.release(&key, nonce(1), token).await.unwrap() })
        };
        let ask = {
            let request = waiting(&key, 2);
            tokio::spawn(async move { asking.try_acquire(&request).await.unwrap() })
        };
        assert!(release.await.unwrap());
        let token = match ask.await.unwrap() {
            AcquireOutcome::Granted(token) => token,
            AcquireOutcome::Refused(_) => {
                wait_for(&mut subscription, Notification::ReservedFor(nonce(2))).await;
                granted(&*waiter, &waiting(&key, 2)).await
            }
        };
        assert!(waiter.release(&key, nonce(2), token).await.unwrap());
    }
}
