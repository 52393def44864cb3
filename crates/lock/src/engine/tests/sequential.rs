//! One request after the other.

use std::time::Duration;

use holdoff_policy::as_micros_u64;

use super::{
    LEASE, TestStore, granted, granted_at_last, key, nonce, on_all, refused, request, waiting, with_lease,
};
use crate::store::{ListCursor, ListQuery, RESERVATION};
use crate::{LockKey, Token, clock};

on_all!(
    repeated_requests_with_one_nonce_are_granted_once,
    a_renewal_or_release_does_not_change_the_lock_of_another_client,
    an_expired_lease_can_be_renewed_before_the_next_grant,
    a_refusal_reports_the_holder_and_the_number_of_waiters,
    a_withdrawn_nonce_leaves_no_state_behind,
    a_forced_release_raises_the_token,
    a_pruned_lock_is_recreated_with_a_higher_token,
    tokens_are_above_a_raised_floor,
    a_token_is_the_time_of_its_grant,
    keys_are_any_bytes,
    locks_are_listed_by_name,
);

mod beside {
    use super::super::on_sql;
    use super::the_tables_of_locks_coexist_with_other_components;

    on_sql!(the_tables_of_locks_coexist_with_other_components);
}

const SOON: Duration = Duration::from_millis(20);

async fn repeated_requests_with_one_nonce_are_granted_once(test_store: TestStore) {
    let (store, other) = (test_store.open().await, test_store.open().await);
    let key = key("a");
    assert_eq!(store.granted(&key, nonce(1)).await.unwrap(), None);
    assert_eq!(store.read(&key).await.unwrap(), None);
    let token = granted(&*store, &request(&key, 1)).await;
    assert_eq!(granted(&*other, &request(&key, 1)).await, token, "a repeated request returns the same grant");
    assert_eq!(other.granted(&key, nonce(1)).await.unwrap(), Some(token));
    assert!(store.release(&key, nonce(1), token).await.unwrap());
    assert_eq!(store.granted(&key, nonce(1)).await.unwrap(), None);
    assert!(
        !store.release(&key, nonce(1), token).await.unwrap(),
        "a released lease cannot be released again"
    );
    assert!(granted(&*other, &request(&key, 1)).await > token, "the token survives the release");
}

async fn a_renewal_or_release_does_not_change_the_lock_of_another_client(test_store: TestStore) {
    let store = test_store.open().await;
    let key = key("a");
    let token = granted(&*store, &request(&key, 1)).await;
    let wrong = Token::new(token.get() + 1);
    for (nonce, token) in [(nonce(2), token), (nonce(1), wrong)] {
        assert!(!store.renew(&key, nonce, token, LEASE).await.unwrap());
        assert!(!store.release(&key, nonce, token).await.unwrap());
    }
    store.withdraw(&key, nonce(2)).await.unwrap();
    assert!(store.renew(&key, nonce(1), token, LEASE).await.unwrap());
    let ends_in = store.read(&key).await.unwrap().unwrap().holder.unwrap().ends_in;
    assert!(store.renew(&key, nonce(1), token, SOON).await.unwrap());
    let record = store.read(&key).await.unwrap().unwrap();
    assert!(record.holder.unwrap().ends_in > ends_in / 2, "a short renewal does not shorten the lease");
    assert_eq!(record.token, token);
}

async fn an_expired_lease_can_be_renewed_before_the_next_grant(test_store: TestStore) {
    let store = test_store.open().await;
    let key = key("a");
    let token = granted(&*store, &with_lease(SOON, request(&key, 1))).await;
    while store.read(&key).await.unwrap().unwrap().holder.is_some() {
        tokio::time::sleep(SOON / 4).await;
    }
    assert_eq!(
        store.granted(&key, nonce(1)).await.unwrap(),
        Some(token),
        "an expired lease stays recorded until the next grant"
    );
    assert!(store.renew(&key, nonce(1), token, SOON).await.unwrap());
    let taken = granted_at_last(&*store, &request(&key, 2)).await;
    assert!(taken > token);
    assert!(!store.renew(&key, nonce(1), token, LEASE).await.unwrap());
    assert!(!store.release(&key, nonce(1), token).await.unwrap());
    assert_eq!(store.granted(&key, nonce(2)).await.unwrap(), Some(taken));
}

async fn a_refusal_reports_the_holder_and_the_number_of_waiters(test_store: TestStore) {
    let (store, other) = (test_store.open().await, test_store.open().await);
    let key = key("a");
    let token = granted(&*store, &request(&key, 1)).await;
    assert_eq!(
        refused(&*other, &request(&key, 2)).await.waiting,
        0,
        "a request that does not wait is not recorded as a waiter"
    );
    assert_eq!(refused(&*other, &waiting(&key, 3)).await.waiting, 1);
    assert_eq!(refused(&*store, &waiting(&key, 3)).await.waiting, 1, "a waiter is counted once");
    let refusal = refused(&*store, &waiting(&key, 4)).await;
    assert_eq!(refusal.waiting, 2);
    let holder = refusal.holder.unwrap();
    assert_eq!((holder.owner.nonce, holder.owner.name.as_str()), (nonce(1), "owner 1"));
    assert_eq!(holder.token, token);
    assert!(holder.held_for < LEASE && refusal.free_in > LEASE / 2 && refusal.free_in <= LEASE);
    assert_eq!(store.read(&key).await.unwrap().unwrap().waiting, 2);
}

async fn a_withdrawn_nonce_leaves_no_state_behind(test_store: TestStore) {
    let store = test_store.open().await;
    let key = key("a");
    store.withdraw(&key, nonce(1)).await.unwrap();
    granted(&*store, &request(&key, 1)).await;
    for number in [2, 3, 4] {
        refused(&*store, &waiting(&key, number)).await;
    }
    store.withdraw(&key, nonce(3)).await.unwrap();
    assert_eq!(store.read(&key).await.unwrap().unwrap().waiting, 2);
    store.withdraw(&key, nonce(1)).await.unwrap();
    assert_eq!(store.granted(&key, nonce(1)).await.unwrap(), None, "a withdrawn request releases its lock");
    // The lock is reserved for the second, which withdraws. Then it is reserved for the fourth, at any time.
    store.withdraw(&key, nonce(2)).await.unwrap();
    granted(&*store, &waiting(&key, 4)).await;
    assert_eq!(store.read(&key).await.unwrap().unwrap().waiting, 0);
}

async fn a_forced_release_raises_the_token(test_store: TestStore) {
    let store = test_store.open().await;
    let key = key("a");
    assert_eq!(store.force_release(&key).await.unwrap(), None);
    let token = granted(&*store, &request(&key, 1)).await;
    let had = store.force_release(&key).await.unwrap().unwrap();
    assert_eq!((had.owner.nonce, had.token), (nonce(1), token));
    assert_eq!(store.force_release(&key).await.unwrap(), None);
    assert!(!store.renew(&key, nonce(1), token, LEASE).await.unwrap());
    let record = store.read(&key).await.unwrap().unwrap();
    assert!(record.token > token && record.holder.is_none());
    assert!(granted(&*store, &request(&key, 2)).await > record.token);
}

async fn a_pruned_lock_is_recreated_with_a_higher_token(test_store: TestStore) {
    let store = test_store.open().await;
    let [busy, idle, fresh] = ["busy", "idle", "fresh"].map(key);
    let mut token = Token::new(0);
    for number in 0..3 {
        token = granted(&*store, &request(&idle, number)).await;
        assert!(store.release(&idle, nonce(number), token).await.unwrap());
    }
    granted(&*store, &request(&busy, 1)).await;
    assert_eq!(store.prune(LEASE, 10).await.unwrap(), 0, "the lock was held just now");
    assert_eq!(store.prune(Duration::ZERO, 10).await.unwrap(), 1);
    assert_eq!(store.read(&idle).await.unwrap(), None);
    assert!(store.read(&busy).await.unwrap().unwrap().holder.is_some());
    assert!(granted(&*store, &request(&idle, 9)).await > token);
    assert!(granted(&*store, &request(&fresh, 9)).await > token, "the floor applies to all keys");
    for name in ["x", "y", "z"] {
        let token = granted(&*store, &request(&key(name), 1)).await;
        store.release(&key(name), nonce(1), token).await.unwrap();
    }
    assert_eq!(store.prune(Duration::ZERO, 2).await.unwrap(), 2, "prune respects its limit");
    assert_eq!(store.prune(Duration::ZERO, 2).await.unwrap(), 1);
}

async fn tokens_are_above_a_raised_floor(test_store: TestStore) {
    let store = test_store.open().await;
    let (known, fresh) = (key("a"), key("b"));
    let before = granted(&*store, &request(&known, 1)).await;
    let floor = Token::new(1 << 60);
    assert_eq!(store.raise_floor(floor).await.unwrap(), floor);
    assert_eq!(store.raise_floor(before).await.unwrap(), floor, "the floor is never lowered");
    assert_eq!(granted(&*store, &request(&known, 1)).await, before, "a held lock stays held");
    assert!(store.release(&known, nonce(1), before).await.unwrap());
    let token = granted(&*store, &request(&known, 2)).await;
    assert_eq!(token, Token::new(floor.get() + 1));
    assert!(store.release(&known, nonce(2), token).await.unwrap());
    assert_eq!(granted(&*store, &request(&known, 3)).await, Token::new(floor.get() + 2));
    assert_eq!(granted(&*store, &request(&fresh, 1)).await, Token::new(floor.get() + 1));
}

/// A later grant, also by a store that has lost this one, therefore has a higher token.
async fn a_token_is_the_time_of_its_grant(test_store: TestStore) {
    let store = test_store.open().await;
    let time = || Token::new(as_micros_u64(clock::wall()));
    for number in 1..=3 {
        let before = time();
        let token = granted(&*store, &request(&key("a"), number)).await;
        assert!(before <= token && token <= time(), "{before} to {}: {token}", time());
        assert!(store.release(&key("a"), nonce(number), token).await.unwrap());
    }
}

async fn keys_are_any_bytes(test_store: TestStore) {
    let store = test_store.open().await;
    let long = vec![0xff; 10_000];
    let mut other = long.clone();
    other[9_999] = 0;
    let all: [&[u8]; 6] = [&long, &other, b"\0", b"a\0b", b"'; drop table locks; --", "schlüssel".as_bytes()];
    for namespace in ["default", "other '"] {
        for bytes in all {
            let key = LockKey::new(namespace, bytes).unwrap();
            granted(&*store, &request(&key, 1)).await;
            assert_eq!(store.read(&key).await.unwrap().unwrap().key, key.readable());
        }
    }
    let listing = ListQuery { namespace: Some("other '".to_owned()), limit: 100, ..ListQuery::default() };
    assert_eq!(store.list(&listing).await.unwrap().len(), all.len());
}

async fn locks_are_listed_by_name(test_store: TestStore) {
    let store = test_store.open().await;
    for name in ["b_1", "a", "b%", "Z", "b_2"] {
        let token = granted(&*store, &request(&key(name), 1)).await;
        if name != "b_2" {
            store.release(&key(name), nonce(1), token).await.unwrap();
        }
    }
    granted(&*store, &request(&LockKey::new("other", "b_0").unwrap(), 1)).await;
    let names = async |listing: ListQuery| {
        let records = store.list(&listing).await.unwrap();
        records.into_iter().map(|record| record.key).collect::<Vec<_>>()
    };
    let all = ListQuery { limit: 100, ..ListQuery::default() };
    assert_eq!(names(all.clone()).await, ["Z", "a", "b%", "b_1", "b_2", "b_0"]);
    assert_eq!(names(ListQuery { limit: 2, ..all.clone() }).await, ["Z", "a"]);
    assert_eq!(names(ListQuery { prefix: "b_".to_owned(), ..all.clone() }).await, ["b_1", "b_2", "b_0"]);
    assert_eq!(names(ListQuery { held: true, ..all.clone() }).await, ["b_2", "b_0"]);
    // One page at a time, over namespaces.
    let mut page = ListQuery { limit: 2, ..all.clone() };
    let mut paged = Vec::new();
    loop {
        let records = store.list(&page).await.unwrap();
        let Some(last) = records.last() else { break };
        let (namespace, key, digest) = (last.namespace.clone(), last.key.clone(), last.digest.clone());
        page.after = Some(ListCursor { namespace, key, digest });
        paged.extend(records.into_iter().map(|record| record.key));
    }
    assert_eq!(paged, ["Z", "a", "b%", "b_1", "b_2", "b_0"]);
    let other = ListQuery { namespace: Some("other".to_owned()), ..all };
    assert_eq!(names(other).await, ["b_0"]);
}

/// The daemon keeps its work in the same store, and either may create its tables first.
async fn the_tables_of_locks_coexist_with_other_components(test_store: TestStore) {
    use holdoff_sql::{Component, Migration, SchemaChange, postgres, sqlite};
    let first = Component {
        table: if test_store.is_postgres() { "holdoff.migrations" } else { "holdoff_migrations" },
        migrations: &[Migration {
            version: 7,
            breaks_before: 1,
            change: SchemaChange::Statements("create table tasks (id integer)"),
        }],
    };
    if test_store.is_postgres() {
        let connections = postgres::PoolOptions { settings: &["jit = off"], min: 1, max: 1 };
        let pool = connections.open(&test_store.url).await.unwrap();
        for _ in 0..2 {
            pool.migrate(&first).await.unwrap();
        }
    } else {
        let file = sqlite::Database::open(&test_store.url).await.unwrap();
        for _ in 0..2 {
            file.migrate(&first).await.unwrap();
        }
    }
    let opened = tokio::join!(test_store.open(), test_store.open(), test_store.open());
    granted(&*opened.0, &request(&key("a"), 1)).await;
    assert!(refused(&*opened.2, &request(&key("a"), 2)).await.free_in > RESERVATION);
}
