//! One bid after the other.

use std::time::Duration;

use sqlx::Connection as _;

use super::place::{
    LEASE, Place, bid, granted, granted_at_last, held, key, nonce, on_all, waiting, with_lease,
};
use crate::store::{HEADSTART, Listing, Mark};
use crate::{Key, Token};

on_all!(
    one_nonce_is_granted_once,
    anothers_lock_is_never_touched,
    a_lease_that_is_over_may_be_renewed_until_somebody_takes_it,
    a_refusal_says_who_has_it_and_how_many_wait,
    a_withdrawn_nonce_leaves_nothing_behind,
    force_raises_the_token,
    what_is_pruned_comes_back_with_a_higher_token,
    a_new_era_is_above_all_before,
    keys_are_any_bytes,
    locks_are_listed_by_name,
);

mod beside {
    use super::super::place::on_sql;
    use super::it_lives_beside_other_components;

    on_sql!(it_lives_beside_other_components);
}

const SOON: Duration = Duration::from_millis(20);

async fn one_nonce_is_granted_once(place: Place) {
    let (store, other) = (place.open().await, place.open().await);
    let key = key("a");
    assert_eq!(store.granted(&key, nonce(1)).await.unwrap(), None);
    assert_eq!(store.read(&key).await.unwrap(), None);
    let token = granted(&*store, &bid(&key, 1)).await;
    assert_eq!(granted(&*other, &bid(&key, 1)).await, token, "its answer was lost");
    assert_eq!(other.granted(&key, nonce(1)).await.unwrap(), Some(token));
    assert!(store.release(&key, nonce(1), token).await.unwrap());
    assert_eq!(store.granted(&key, nonce(1)).await.unwrap(), None);
    assert!(!store.release(&key, nonce(1), token).await.unwrap(), "it was let go already");
    assert!(granted(&*other, &bid(&key, 1)).await > token, "the token survives the release");
}

async fn anothers_lock_is_never_touched(place: Place) {
    let store = place.open().await;
    let key = key("a");
    let token = granted(&*store, &bid(&key, 1)).await;
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
    assert!(record.holder.unwrap().ends_in > ends_in / 2, "a short renewal shortens nothing");
    assert_eq!(record.token, token);
}

async fn a_lease_that_is_over_may_be_renewed_until_somebody_takes_it(place: Place) {
    let store = place.open().await;
    let key = key("a");
    let token = granted(&*store, &with_lease(SOON, bid(&key, 1))).await;
    while store.read(&key).await.unwrap().unwrap().holder.is_some() {
        tokio::time::sleep(SOON / 4).await;
    }
    assert_eq!(store.granted(&key, nonce(1)).await.unwrap(), Some(token), "nobody took it");
    assert!(store.renew(&key, nonce(1), token, SOON).await.unwrap());
    let taken = granted_at_last(&*store, &bid(&key, 2)).await;
    assert!(taken > token);
    assert!(!store.renew(&key, nonce(1), token, LEASE).await.unwrap());
    assert!(!store.release(&key, nonce(1), token).await.unwrap());
    assert_eq!(store.granted(&key, nonce(2)).await.unwrap(), Some(taken));
}

async fn a_refusal_says_who_has_it_and_how_many_wait(place: Place) {
    let (store, other) = (place.open().await, place.open().await);
    let key = key("a");
    let token = granted(&*store, &bid(&key, 1)).await;
    assert_eq!(held(&*other, &bid(&key, 2)).await.waiting, 0, "it does not wait");
    assert_eq!(held(&*other, &waiting(&key, 3)).await.waiting, 1);
    assert_eq!(held(&*store, &waiting(&key, 3)).await.waiting, 1, "the same again");
    let refusal = held(&*store, &waiting(&key, 4)).await;
    assert_eq!(refusal.waiting, 2);
    let holder = refusal.holder.unwrap();
    assert_eq!((holder.owner.nonce, holder.owner.name.as_str()), (nonce(1), "owner 1"));
    assert_eq!(holder.token, token);
    assert!(holder.held_for < LEASE && refusal.free_in > LEASE / 2 && refusal.free_in <= LEASE);
    assert_eq!(store.read(&key).await.unwrap().unwrap().waiting, 2);
}

async fn a_withdrawn_nonce_leaves_nothing_behind(place: Place) {
    let store = place.open().await;
    let key = key("a");
    store.withdraw(&key, nonce(1)).await.unwrap();
    granted(&*store, &bid(&key, 1)).await;
    for number in [2, 3, 4] {
        held(&*store, &waiting(&key, number)).await;
    }
    store.withdraw(&key, nonce(3)).await.unwrap();
    assert_eq!(store.read(&key).await.unwrap().unwrap().waiting, 2);
    store.withdraw(&key, nonce(1)).await.unwrap();
    assert_eq!(store.granted(&key, nonce(1)).await.unwrap(), None, "what it had is let go");
    // The lock is reserved for the second, which withdraws. Then it is reserved for the fourth, at any time.
    store.withdraw(&key, nonce(2)).await.unwrap();
    granted(&*store, &waiting(&key, 4)).await;
    assert_eq!(store.read(&key).await.unwrap().unwrap().waiting, 0);
}

async fn force_raises_the_token(place: Place) {
    let store = place.open().await;
    let key = key("a");
    assert_eq!(store.force_release(&key).await.unwrap(), None);
    let token = granted(&*store, &bid(&key, 1)).await;
    let had = store.force_release(&key).await.unwrap().unwrap();
    assert_eq!((had.owner.nonce, had.token), (nonce(1), token));
    assert_eq!(store.force_release(&key).await.unwrap(), None);
    assert!(!store.renew(&key, nonce(1), token, LEASE).await.unwrap());
    let record = store.read(&key).await.unwrap().unwrap();
    assert!(record.token > token && record.holder.is_none());
    assert!(granted(&*store, &bid(&key, 2)).await > record.token);
}

async fn what_is_pruned_comes_back_with_a_higher_token(place: Place) {
    let store = place.open().await;
    let [busy, idle, fresh] = ["busy", "idle", "fresh"].map(key);
    let mut token = Token::new(0);
    for number in 0..3 {
        token = granted(&*store, &bid(&idle, number)).await;
        assert!(store.release(&idle, nonce(number), token).await.unwrap());
    }
    granted(&*store, &bid(&busy, 1)).await;
    assert_eq!(store.prune(LEASE, 10).await.unwrap(), 0, "it was held just now");
    assert_eq!(store.prune(Duration::ZERO, 10).await.unwrap(), 1);
    assert_eq!(store.read(&idle).await.unwrap(), None);
    assert!(store.read(&busy).await.unwrap().unwrap().holder.is_some());
    assert!(granted(&*store, &bid(&idle, 9)).await > token);
    assert!(granted(&*store, &bid(&fresh, 9)).await > token, "what was forgotten is not known by name");
    for name in ["x", "y", "z"] {
        let token = granted(&*store, &bid(&key(name), 1)).await;
        store.release(&key(name), nonce(1), token).await.unwrap();
    }
    assert_eq!(store.prune(Duration::ZERO, 2).await.unwrap(), 2, "no more than asked for");
    assert_eq!(store.prune(Duration::ZERO, 2).await.unwrap(), 1);
}

async fn a_new_era_is_above_all_before(place: Place) {
    let store = place.open().await;
    let key = key("a");
    let before = granted(&*store, &bid(&key, 1)).await;
    assert_eq!(store.raise_era().await.unwrap(), 1);
    assert_eq!(store.raise_era().await.unwrap(), 2);
    assert_eq!(granted(&*store, &bid(&key, 1)).await, before, "what is held stays");
    assert!(store.release(&key, nonce(1), before).await.unwrap());
    assert_eq!(granted(&*store, &bid(&key, 2)).await, Token::first_of(2));
}

async fn keys_are_any_bytes(place: Place) {
    let store = place.open().await;
    let long = vec![0xff; 10_000];
    let mut other = long.clone();
    other[9_999] = 0;
    let all: [&[u8]; 6] = [&long, &other, b"\0", b"a\0b", b"'; drop table locks; --", "schlüssel".as_bytes()];
    for namespace in ["default", "other\0"] {
        for bytes in all {
            let key = Key::new(namespace, bytes).unwrap();
            assert_eq!(granted(&*store, &bid(&key, 1)).await.get(), 1);
            assert_eq!(store.read(&key).await.unwrap().unwrap().key, key.readable());
        }
    }
    let listing = Listing { namespace: Some("other\0".to_owned()), limit: 100, ..Listing::default() };
    assert_eq!(store.list(&listing).await.unwrap().len(), all.len());
}

async fn locks_are_listed_by_name(place: Place) {
    let store = place.open().await;
    for name in ["b_1", "a", "b%", "Z", "b_2"] {
        let token = granted(&*store, &bid(&key(name), 1)).await;
        if name != "b_2" {
            store.release(&key(name), nonce(1), token).await.unwrap();
        }
    }
    granted(&*store, &bid(&Key::new("other", "b_0").unwrap(), 1)).await;
    let names = async |listing: Listing| {
        let records = store.list(&listing).await.unwrap();
        records.into_iter().map(|record| record.key).collect::<Vec<_>>()
    };
    let all = Listing { limit: 100, ..Listing::default() };
    assert_eq!(names(all.clone()).await, ["Z", "a", "b%", "b_1", "b_2", "b_0"]);
    assert_eq!(names(Listing { limit: 2, ..all.clone() }).await, ["Z", "a"]);
    assert_eq!(names(Listing { prefix: "b_".to_owned(), ..all.clone() }).await, ["b_1", "b_2", "b_0"]);
    assert_eq!(names(Listing { held: true, ..all.clone() }).await, ["b_2", "b_0"]);
    // One page at a time, over namespaces.
    let mut page = Listing { limit: 2, ..all.clone() };
    let mut paged = Vec::new();
    loop {
        let records = store.list(&page).await.unwrap();
        let Some(last) = records.last() else { break };
        let (namespace, key, digest) = (last.namespace.clone(), last.key.clone(), last.digest.clone());
        page.after = Some(Mark { namespace, key, digest });
        paged.extend(records.into_iter().map(|record| record.key));
    }
    assert_eq!(paged, ["Z", "a", "b%", "b_1", "b_2", "b_0"]);
    let other = Listing { namespace: Some("other".to_owned()), ..all };
    assert_eq!(names(other).await, ["b_0"]);
}

/// The daemon keeps its work in the same store, and either may create its tables first.
async fn it_lives_beside_other_components(place: Place) {
    use holdoff_sql::{Component, Migration, postgres, sqlite};
    let first = Component {
        table: if place.is_postgres() { "holdoff.migrations" } else { "holdoff_migrations" },
        migrations: &[Migration { version: 7, breaks_before: 1, sql: "create table tasks (id integer)" }],
    };
    if place.is_postgres() {
        let connections = postgres::Connections { session: "set jit = off", min: 1, max: 1 };
        let pool = connections.open(&place.url).await.unwrap();
        for _ in 0..2 {
            postgres::migrate(&mut pool.acquire().await.unwrap(), &first).await.unwrap();
        }
    } else {
        let file = sqlite::File::open(&place.url).await.unwrap();
        for _ in 0..2 {
            file.migrate(&first).await.unwrap();
        }
    }
    let opened = tokio::join!(place.open(), place.open(), place.open());
    granted(&*opened.0, &bid(&key("a"), 1)).await;
    assert!(held(&*opened.2, &bid(&key("a"), 2)).await.free_in > HEADSTART);
}

/// A file is restored from a copy, and later grants are lost: a new fencing epoch is above them.
#[tokio::test]
async fn a_restored_file_with_a_new_era_is_above_what_it_forgot() {
    let place = Place::sqlite();
    let file = place.folder.path().join("locks.db");
    let (copy, key) = (place.folder.path().join("copy.db"), key("a"));
    let take = async |number| {
        let store = place.open().await;
        let token = granted(&*store, &bid(&key, number)).await;
        assert!(store.release(&key, nonce(number), token).await.unwrap());
        token
    };
    take(1).await;
    let mut connection = sqlx::SqliteConnection::connect(&place.url).await.unwrap();
    sqlx::query("vacuum into ?1").bind(copy.to_str().unwrap()).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    take(2).await;
    let forgotten = take(3).await;
    for suffix in ["-wal", "-shm"] {
        // The file does not exist if the last connection was closed in time.
        let _ = std::fs::remove_file(place.folder.path().join(format!("locks.db{suffix}")));
    }
    std::fs::rename(&copy, &file).unwrap();
    assert_eq!(take(4).await, Token::new(2), "without a new era a token would be given twice");
    assert_eq!(place.open().await.raise_era().await.unwrap(), 1);
    assert!(take(5).await > forgotten);
}
