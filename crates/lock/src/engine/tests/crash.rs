//! What a crash of the server leaves.

use std::time::Duration;

use holdoff_testbed::{Options, Postgres as Server};

use super::place::{bid, granted, held, key, nonce, waiting};
use crate::engine::postgres::Postgres;
use crate::store::LeaseStore;
use crate::wakes::Heard;
use crate::{Key, Token};

/// Asks until the server is back: connections that died fail once.
async fn granted_to(store: &Postgres, key: &Key, number: u128) -> Option<Token> {
    loop {
        match store.granted(key, nonce(number)).await {
            Ok(found) => return found,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_grant_survives_a_crash() {
    // What is not waited for stays in memory for long, so that a grant that did not wait would be gone.
    let settings = vec![("wal_writer_delay".to_owned(), "10s".to_owned())];
    let start = || Server::start_with(&Options { settings, ..Options::default() });
    let server = tokio::task::spawn_blocking(start).await.unwrap();
    let store = Postgres::open(&server.create_database("crash")).await.unwrap();
    let key = key("a");
    let mut listening = store.subscribe(&key);
    assert_eq!(listening.heard().await, Heard::Maybe, "it listens");
    for number in 1..=3 {
        let token = granted(&store, &bid(&key, number)).await;
        held(&store, &waiting(&key, number + 100)).await;
        server.restart_immediately();
        assert_eq!(granted_to(&store, &key, number).await, Some(token), "crash {number}");
        let refusal = held(&store, &bid(&key, 99)).await;
        assert_eq!((refusal.holder.unwrap().token, refusal.waiting), (token, 0), "who waited must ask again");
        assert_eq!(listening.heard().await, Heard::Maybe, "it listens again");
        assert!(store.release(&key, nonce(number), token).await.unwrap());
        store.withdraw(&key, nonce(number + 100)).await.unwrap();
    }
}
