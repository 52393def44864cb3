//! Many bids at once.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use super::place::{Place, bid, granted, granted_at_last, held, key, nonce, on_all, waiting};
use crate::store::{Answer, Bid, HEADSTART};
use crate::wakes::{Heard, Subscription};
use crate::{Nonce, Token};

on_all!(
    of_many_at_once_one_is_granted,
    pruning_in_between_lowers_no_token,
    the_one_that_waits_longest_is_next,
    one_that_died_waiting_costs_a_moment,
    one_that_stopped_asking_is_passed_over,
    whoever_waits_is_told,
    whoever_begins_to_wait_while_it_is_let_go_is_told,
);

const CROWD: u128 = 16;

/// Waits for a notification of this kind: hints may arrive twice, or without a reason.
async fn heard(subscription: &mut Subscription, wanted: Heard) {
    let waiting = async { while subscription.heard().await != wanted {} };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("nobody was told");
}

async fn of_many_at_once_one_is_granted(place: Place) {
    let doors = [place.open().await, place.open().await];
    let rounds = if place.is_postgres() { 200 } else { 60 };
    let mut last = Token::new(0);
    for round in 0..rounds {
        // Every fourth round uses a new key.
        let key = key(&format!("{}", if round % 4 == 0 { round } else { -1 }));
        let bids = (0..CROWD).map(|number| {
            let door = doors[usize::try_from(number % 2).unwrap()].clone();
            let bid = if number % 3 == 0 { waiting(&key, number + 1) } else { bid(&key, number + 1) };
            tokio::spawn(async move { (bid.owner.nonce, door.try_acquire(&bid).await.unwrap()) })
        });
        let mut winners: Vec<(Nonce, Token)> = Vec::new();
        for bid in bids.collect::<Vec<_>>() {
            let (nonce, answer) = bid.await.unwrap();
            if let Answer::Granted(token) = answer {
                winners.push((nonce, token));
            }
        }
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        let (winner, token) = winners[0];
        if round % 4 != 0 {
            assert!(token > last, "round {round}: {token} after {last}");
            last = token;
        }
        for number in 1..=CROWD {
            if nonce(number) != winner {
                doors[0].withdraw(&key, nonce(number)).await.unwrap();
            }
        }
        assert!(doors[1].release(&key, winner, token).await.unwrap());
    }
}

/// Locks are pruned while other clients acquire them: no token is granted twice.
async fn pruning_in_between_lowers_no_token(place: Place) {
    let (store, other) = (place.open().await, place.open().await);
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
        let token = granted(&*store, &bid(&key, number)).await;
        assert!(tokens.insert(token) && token > last, "{token} after {last}");
        last = token;
        assert!(store.release(&key, nonce(number), token).await.unwrap());
    }
    pruner.await.unwrap();
}

/// A busy machine may take longer than the reservation lasts. Such a round shows nothing, and the test repeats it.
async fn the_one_that_waits_longest_is_next(place: Place) {
    for round in 0.. {
        if is_handed_over(&place, &format!("{round}")).await {
            return;
        }
    }
}

async fn is_handed_over(place: &Place, name: &str) -> bool {
    let (store, other) = (place.open().await, place.open().await);
    let key = key(name);
    let token = granted(&*store, &bid(&key, 1)).await;
    held(&*store, &waiting(&key, 2)).await;
    held(&*other, &waiting(&key, 3)).await;
    held(&*store, &waiting(&key, 2)).await;
    let let_go = Instant::now();
    assert!(store.release(&key, nonce(1), token).await.unwrap());
    for newcomer in [waiting(&key, 1), bid(&key, 9), waiting(&key, 3)] {
        match other.try_acquire(&newcomer).await.unwrap() {
            Answer::Held(refusal) => {
                assert!(refusal.holder.is_none() && refusal.free_in <= HEADSTART, "{refusal:?}");
            }
            Answer::Granted(token) => {
                assert!(let_go.elapsed() > HEADSTART, "a newcomer was granted {token}");
                return false;
            }
        }
    }
    let second = granted(&*other, &waiting(&key, 2)).await;
    assert!(second > token);
    let let_go = Instant::now();
    assert!(store.force_release(&key).await.unwrap().is_some());
    if let Answer::Granted(token) = store.try_acquire(&bid(&key, 9)).await.unwrap() {
        assert!(let_go.elapsed() > HEADSTART, "a newcomer was granted {token}");
        return false;
    }
    granted(&*store, &waiting(&key, 3)).await;
    true
}

async fn one_that_died_waiting_costs_a_moment(place: Place) {
    let store = place.open().await;
    let key = key("a");
    let token = granted(&*store, &bid(&key, 1)).await;
    held(&*store, &waiting(&key, 2)).await;
    assert!(store.release(&key, nonce(1), token).await.unwrap());
    // The second is registered for another half minute, but never asks.
    let patience = Duration::from_secs(10);
    tokio::time::timeout(patience, granted_at_last(&*store, &bid(&key, 3))).await.expect("kept for too long");
}

async fn one_that_stopped_asking_is_passed_over(place: Place) {
    let store = place.open().await;
    let key = key("a");
    let token = granted(&*store, &bid(&key, 1)).await;
    let briefly = Bid { waits: Some(Duration::from_millis(1)), ..bid(&key, 2) };
    held(&*store, &briefly).await;
    while store.read(&key).await.unwrap().unwrap().waiting > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    held(&*store, &waiting(&key, 3)).await;
    assert!(store.release(&key, nonce(1), token).await.unwrap());
    granted(&*store, &waiting(&key, 3)).await;
}

async fn whoever_waits_is_told(place: Place) {
    let (store, other) = (place.open().await, place.open().await);
    let (key, unused) = (key("a"), key("b"));
    let token = granted(&*store, &bid(&key, 1)).await;
    let (mut near, mut far) = (store.subscribe(&key), other.subscribe(&key));
    let mut elsewhere = other.subscribe(&unused);
    held(&*other, &waiting(&key, 2)).await;
    held(&*store, &waiting(&key, 3)).await;
    // Postgres notifies once when it listens. Only then are further notifications reliable.
    if place.is_postgres() {
        tokio::join!(heard(&mut near, Heard::Maybe), heard(&mut elsewhere, Heard::Maybe));
    }
    assert!(store.release(&key, nonce(1), token).await.unwrap());
    tokio::join!(heard(&mut near, Heard::Next(nonce(2))), heard(&mut far, Heard::Next(nonce(2))));
    store.withdraw(&key, nonce(2)).await.unwrap();
    tokio::join!(heard(&mut near, Heard::Next(nonce(3))), heard(&mut far, Heard::Next(nonce(3))));
    granted(&*other, &waiting(&key, 3)).await;
    assert!(store.force_release(&key).await.unwrap().is_some());
    tokio::join!(heard(&mut near, Heard::Maybe), heard(&mut far, Heard::Maybe));
    let silence = tokio::time::timeout(Duration::from_millis(1), elsewhere.heard()).await;
    assert!(silence.is_err(), "told of another lock: {silence:?}");
}

/// The registration of a waiter and the release race in the store: the waiter is granted the lock, or is notified.
async fn whoever_begins_to_wait_while_it_is_let_go_is_told(place: Place) {
    let (holder, waiter) = (place.open().await, place.open().await);
    let key = key("k");
    let mut subscription = waiter.subscribe(&key);
    let rounds = if place.is_postgres() { 200 } else { 20 };
    for _ in 0..rounds {
        let token = granted(&*holder, &bid(&key, 1)).await;
        let (letting_go, asking) = (holder.clone(), waiter.clone());
        let release = {
            let key = key.clone();
            tokio::spawn(async move { letting_go.release(&key, nonce(1), token).await.unwrap() })
        };
        let ask = {
            let bid = waiting(&key, 2);
            tokio::spawn(async move { asking.try_acquire(&bid).await.unwrap() })
        };
        assert!(release.await.unwrap());
        let token = match ask.await.unwrap() {
            Answer::Granted(token) => token,
            Answer::Held(_) => {
                heard(&mut subscription, Heard::Next(nonce(2))).await;
                granted(&*waiter, &waiting(&key, 2)).await
            }
        };
        assert!(waiter.release(&key, nonce(2), token).await.unwrap());
    }
}
