//! Transactions with an unknown outcome.

use std::time::Duration;

use super::world::{Fault, World};
use super::{bid, granted, held, key, nonce, waiting};
use crate::Token;
use crate::store::{Bid, LeaseStore};

/// Asks for the lock, and stops waiting.
async fn gives_up(store: &impl LeaseStore, bid: &Bid) {
    let asking = tokio::time::timeout(Duration::from_secs(1), store.try_acquire(bid));
    assert!(asking.await.is_err(), "there was an answer");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_known_is_asked_again_and_happens_once() {
    for fault in [Fault::LoseAnswer, Fault::LoseQuestion] {
        let world = World::default();
        let (store, other) = (world.open(), world.open());
        for number in 1..=3 {
            world.strike(fault);
            let token = granted(&store, &bid(number)).await;
            assert_eq!(token, Token::new(u64::try_from(number).unwrap()), "{fault:?}: it was granted once");
            assert!(held(&other, &bid(9)).await.holder.is_some());
            world.strike(fault);
            assert!(store.renew(&key("a"), nonce(number), token, super::LEASE).await.unwrap());
            world.strike(fault);
            assert!(store.release(&key("a"), nonce(number), token).await.unwrap());
        }
        world.strike(fault);
        assert_eq!(store.raise_era().await.unwrap(), 1, "{fault:?}: it was raised once");
        assert_eq!(world.faults_left(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_heard_of_is_found_by_its_nonce() {
    for fault in [Fault::Hang, Fault::Delay] {
        let world = World::default();
        let store = world.open();
        world.strike(fault);
        gives_up(&store, &bid(1)).await;
        assert_eq!(store.granted(&key("a"), nonce(1)).await.unwrap(), Some(Token::new(1)), "{fault:?}");
        assert_eq!(granted(&store, &bid(1)).await, Token::new(1));
        world.arrive();
        assert_eq!(store.granted(&key("a"), nonce(1)).await.unwrap(), Some(Token::new(1)));
    }
}

/// The bid is in flight while its nonce is withdrawn: the lock must not be granted to it later.
#[tokio::test(start_paused = true)]
async fn a_bid_that_was_withdrawn_arrives_in_vain() {
    for fault in [Fault::Hang, Fault::Delay] {
        let world = World::default();
        let (store, other) = (world.open(), world.open());
        world.strike(fault);
        gives_up(&store, &bid(1)).await;
        store.withdraw(&key("a"), nonce(1)).await.unwrap();
        world.arrive();
        assert_eq!(other.granted(&key("a"), nonce(1)).await.unwrap(), None, "{fault:?}");
        let token = granted(&other, &bid(2)).await;

        world.strike(fault);
        let refusal = held(&store, &waiting(3)).await;
        assert_eq!(refusal.holder.unwrap().token, token, "a refusal does not wait for its note");
        store.withdraw(&key("a"), nonce(3)).await.unwrap();
        world.arrive();
        assert_eq!(other.read(&key("a")).await.unwrap().unwrap().waiting, 0, "{fault:?}");
        assert!(other.release(&key("a"), nonce(2), token).await.unwrap());
        granted(&other, &bid(4)).await;
    }
}

/// While the outcome of a bid cannot be resolved, no other operation for its nonce is executed.
#[tokio::test(start_paused = true)]
async fn a_bid_stays_unknown_while_nobody_leads() {
    let world = World::default();
    let store = world.open();
    world.strike(Fault::Delay);
    gives_up(&store, &bid(1)).await;
    for _ in 0..3 {
        world.strike(Fault::NoQuorum);
    }
    assert!(store.granted(&key("a"), nonce(1)).await.unwrap_err().is_transient());
    assert!(store.withdraw(&key("a"), nonce(1)).await.is_err());
    assert!(store.try_acquire(&bid(1)).await.is_err());
    assert_eq!(world.faults_left(), 0);
    store.withdraw(&key("a"), nonce(1)).await.unwrap();
    world.arrive();
    assert_eq!(store.granted(&key("a"), nonce(1)).await.unwrap(), None);
    granted(&store, &bid(2)).await;
}

/// The bid was made when the lock had no row. Meanwhile other contenders held the lock, and it was pruned.
#[tokio::test(start_paused = true)]
async fn a_late_bid_for_a_forgotten_lock_is_refused() {
    let world = World::default();
    let (store, other) = (world.open(), world.open());
    world.strike(Fault::Delay);
    gives_up(&store, &bid(1)).await;
    let mut last = Token::new(0);
    for number in 2..5 {
        last = granted(&other, &bid(number)).await;
        assert!(other.release(&key("a"), nonce(number), last).await.unwrap());
    }
    assert_eq!(other.prune(Duration::ZERO, 10).await.unwrap(), 1);
    world.arrive();
    assert_eq!(other.read(&key("a")).await.unwrap(), None, "it would have had a token of before");
    assert!(granted(&store, &bid(1)).await > last);
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_of_an_era_that_is_over_is_refused() {
    let world = World::default();
    let (store, other) = (world.open(), world.open());
    world.strike(Fault::Delay);
    gives_up(&store, &bid(1)).await;
    assert_eq!(other.raise_era().await.unwrap(), 1);
    world.arrive();
    assert_eq!(other.granted(&key("a"), nonce(1)).await.unwrap(), None);
    assert_eq!(granted(&store, &bid(1)).await, Token::first_of(1));
}
