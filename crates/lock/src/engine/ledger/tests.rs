//! The promises of this engine beyond those of all engines, on a table in memory that can fail.

mod chaos;
pub(crate) mod shared_table;

use std::time::Duration;

use holdoff_ledger::machine::limits::TEXT_BYTES;
use holdoff_policy::Policy;
use uuid::Uuid;

use super::MAX_WAITERS;
use super::stored_lock::{StoredLock, WriteParams};
use crate::notify::Notification;
use crate::row::Row;
use crate::store::{AcquireOutcome, AcquireRefusal, AcquireRequest, LeaseStore};
use crate::token::TokenBase;
use crate::{LockKey, Nonce, Owner, Token};
use shared_table::{Fault, SharedTable};

const LEASE: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
/// A floor above the time of any test.
const HIGH: Token = Token::new(1 << 60);

fn key(name: &str) -> LockKey {
    LockKey::new("default", name).unwrap()
}

fn nonce(number: u128) -> Nonce {
    Nonce::new(Uuid::from_u128(number))
}

fn request(number: u128) -> AcquireRequest {
    let owner = Owner { nonce: nonce(number), name: format!("owner {number}") };
    AcquireRequest { key: key("a"), owner, lease: LEASE, waits_for: None }
}

fn waiting(number: u128) -> AcquireRequest {
    AcquireRequest { waits_for: Some(LEASE), ..request(number) }
}

async fn granted(store: &impl LeaseStore, request: &AcquireRequest) -> Token {
    match store.try_acquire(request).await.unwrap() {
        AcquireOutcome::Granted(token) => token,
        AcquireOutcome::Refused(held) => panic!("not granted: {held:?}"),
    }
}

async fn refused(store: &impl LeaseStore, request: &AcquireRequest) -> AcquireRefusal {
    match store.try_acquire(request).await.unwrap() {
        AcquireOutcome::Granted(token) => panic!("granted with {token}"),
        AcquireOutcome::Refused(held) => held,
    }
}

#[test]
fn the_policy_is_valid() {
    assert_eq!(
        (super::policy().cap(), super::policy().attempts()),
        (super::PAUSE_STEP * super::MAX_ATTEMPTS, Policy::UNLIMITED)
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_expires_after_it_was_seen_unrenewed_for_its_duration() {
    let shared = SharedTable::default();
    let (store, early, late) = (shared.open(), shared.open(), shared.open());
    let token = granted(&store, &request(1)).await;
    tokio::time::sleep(LEASE / 2).await;
    let first = refused(&early, &request(2)).await;
    assert_eq!(first.free_in, LEASE, "the first observation starts the lease");
    tokio::time::sleep(9 * SECOND).await;
    assert!(refused(&early, &request(2)).await.free_in <= SECOND);
    assert!(refused(&late, &request(3)).await.free_in == LEASE);
    assert!(store.renew(&key("a"), nonce(1), token, LEASE).await.unwrap());
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(refused(&early, &request(2)).await.free_in, LEASE, "the lease was renewed");
    tokio::time::sleep(LEASE).await;
    assert!(granted(&early, &request(2)).await > token);
    assert!(!store.renew(&key("a"), nonce(1), token, LEASE).await.unwrap());
}

/// A subscriber sees renewals as they are applied, and needs no request to start counting.
#[tokio::test(start_paused = true)]
async fn a_subscriber_counts_from_the_last_renewal() {
    let shared = SharedTable::default();
    let (store, other) = (shared.open(), shared.open());
    let token = granted(&store, &request(1)).await;
    let _listening = other.subscribe(&key("a"));
    refused(&other, &waiting(2)).await;
    tokio::time::sleep(LEASE / 2).await;
    assert!(store.renew(&key("a"), nonce(1), token, LEASE).await.unwrap());
    tokio::time::sleep(9 * SECOND).await;
    assert!(refused(&other, &waiting(2)).await.free_in <= SECOND);
    tokio::time::sleep(SECOND).await;
    assert!(granted(&other, &waiting(2)).await > token);
}

#[tokio::test(start_paused = true)]
async fn a_stale_local_copy_has_no_effect() {
    let shared = SharedTable::default();
    let (client, store) = (shared.client(), shared.open());
    let old = client.open();
    client.fall_behind();
    let token = granted(&store, &request(1)).await;
    assert!(
        refused(&old, &request(2)).await.holder.is_some(),
        "a client that lags sees the lock as free, and is still refused"
    );
    client.fall_behind();
    assert!(store.release(&key("a"), nonce(1), token).await.unwrap());
    let second = granted(&old, &request(2)).await;
    assert!(second > token, "a client that lags sees the lock as held, and is still granted it");
    assert!(old.renew(&key("a"), nonce(2), second, LEASE).await.unwrap());
    assert!(old.release(&key("a"), nonce(2), second).await.unwrap());
    client.fall_behind();
    let third = granted(&store, &request(3)).await;
    assert_eq!(old.force_release(&key("a")).await.unwrap().unwrap().token, third);
}

#[tokio::test(start_paused = true)]
async fn an_uncontended_lock_takes_one_transaction_per_call() {
    let shared = SharedTable::default();
    let store = shared.open();
    let token = granted(&store, &request(1)).await;
    assert!(store.renew(&key("a"), nonce(1), token, LEASE).await.unwrap());
    assert!(store.release(&key("a"), nonce(1), token).await.unwrap());
    assert_eq!(shared.counts(), (3, 0), "one transaction each, and no read of the newest row");
    granted(&store, &request(2)).await;
    let (written, _) = shared.counts();
    refused(&store, &request(3)).await;
    assert_eq!(shared.counts().0, written, "a contender that does not wait is not recorded");
    for _ in 0..4 {
        refused(&store, &waiting(4)).await;
        tokio::time::sleep(LEASE / 5).await;
    }
    assert_eq!(shared.counts().0, written + 1, "a registration lasts for several requests");
}

#[tokio::test(start_paused = true)]
async fn missed_changes_notify_all_subscribers() {
    let shared = SharedTable::default();
    let store = shared.open();
    let mut listening = store.subscribe(&key("a"));
    shared.miss();
    assert_eq!(listening.recv().await, Notification::MayBeFree);
    shared.hang_up();
    assert_eq!(listening.recv().await, Notification::MayBeFree, "the store subscribes again");
    let token = granted(&store, &request(1)).await;
    refused(&store, &waiting(2)).await;
    assert!(store.release(&key("a"), nonce(1), token).await.unwrap());
    assert_eq!(listening.recv().await, Notification::ReservedFor(nonce(2)));
}

/// A row that is too long could not be written, and the lock could not be released.
#[test]
fn the_longest_row_fits() {
    let key = LockKey::new(&"\"".repeat(200), vec![b'"'; 64 * 1024]).unwrap();
    let mut row = Row::new(Duration::ZERO);
    let token_base = TokenBase { floor: Token::MAX_FLOOR, wall: Duration::MAX };
    let longest = Duration::from_secs(u64::from(u32::MAX));
    for _ in 0..=MAX_WAITERS {
        let owner = Owner { nonce: Nonce::random(), name: "\u{1}".repeat(256) };
        row.try_acquire(&owner, longest, Some(longest), token_base, Duration::ZERO);
    }
    row.reserved = row.waiters.first().copied();
    let params = WriteParams { version: u64::MAX, now: Duration::ZERO, renewed: None, written_s: u64::MAX };
    let entry = StoredLock::written(&key, &row, None, params);
    let value = entry.value().unwrap();
    assert_eq!(StoredLock::read(&value).unwrap(), entry);
    let length = serde_json::to_string(&entry).unwrap().len();
    assert!(length <= TEXT_BYTES, "{length}");
}

#[tokio::test(start_paused = true)]
async fn waiters_beyond_the_limit_are_not_recorded() {
    let shared = SharedTable::default();
    let store = shared.open();
    granted(&store, &request(1)).await;
    let many = u128::try_from(MAX_WAITERS).unwrap() + 10;
    for number in 2..many {
        let refusal = refused(&store, &waiting(number)).await;
        assert!(usize::try_from(refusal.waiting).unwrap() <= MAX_WAITERS);
    }
    let briefly = AcquireRequest { waits_for: Some(SECOND), ..request(2) };
    assert_eq!(refused(&store, &briefly).await.waiting, u32::try_from(MAX_WAITERS).unwrap());
}

/// Asks for the lock, and stops waiting.
async fn abandon(store: &impl LeaseStore, request: &AcquireRequest) {
    let asking = tokio::time::timeout(Duration::from_secs(1), store.try_acquire(request));
    assert!(asking.await.is_err(), "the request was answered");
}

#[tokio::test(start_paused = true)]
async fn a_transaction_with_an_unknown_outcome_is_executed_once() {
    for fault in [Fault::LoseResponse, Fault::LoseRequest] {
        let shared = SharedTable::default();
        let (store, other) = (shared.open(), shared.open());
        store.raise_floor(HIGH).await.unwrap();
        for number in 1..=3 {
            shared.inject_fault(fault);
            let token = granted(&store, &request(number)).await;
            let grants = u64::try_from(number).unwrap();
            assert_eq!(token.get(), HIGH.get() + grants, "{fault:?}: the lock was granted once");
            assert!(refused(&other, &request(9)).await.holder.is_some());
            shared.inject_fault(fault);
            assert!(store.renew(&key("a"), nonce(number), token, LEASE).await.unwrap());
            shared.inject_fault(fault);
            assert!(store.release(&key("a"), nonce(number), token).await.unwrap());
        }
        shared.inject_fault(fault);
        let higher = Token::new(HIGH.get() * 2);
        assert_eq!(store.raise_floor(higher).await.unwrap(), higher, "{fault:?}");
        assert_eq!(shared.faults_left(), 0);
    }
}

/// The ledger cannot tell whether an expired transaction was committed. The engine reads the row again, which shows it.
#[tokio::test(start_paused = true)]
async fn an_expired_transaction_is_resolved_by_the_row() {
    for fault in [Fault::ExpireCommitted, Fault::ExpireLost] {
        let shared = SharedTable::default();
        let (store, other) = (shared.open(), shared.open());
        store.raise_floor(HIGH).await.unwrap();
        shared.inject_fault(fault);
        let token = granted(&store, &request(1)).await;
        assert_eq!(token.get(), HIGH.get() + 1, "{fault:?}: the lock was granted once");
        assert!(refused(&other, &request(2)).await.holder.is_some());
        shared.inject_fault(fault);
        assert!(store.renew(&key("a"), nonce(1), token, LEASE).await.unwrap(), "{fault:?}");
        shared.inject_fault(fault);
        let is_released_now = store.release(&key("a"), nonce(1), token).await.unwrap();
        assert_eq!(
            is_released_now,
            fault == Fault::ExpireLost,
            "the row no longer tells who released the lock"
        );
        let second = granted(&other, &request(2)).await;
        assert!(second > token, "{fault:?}: the lock is free");
        assert!(other.release(&key("a"), nonce(2), second).await.unwrap());
        shared.inject_fault(fault);
        let higher = Token::new(HIGH.get() * 2);
        assert_eq!(store.raise_floor(higher).await.unwrap(), higher, "{fault:?}");
        assert!(granted(&other, &request(3)).await > higher, "{fault:?}");
        assert_eq!(shared.faults_left(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_without_a_response_is_read_back_by_nonce() {
    for fault in [Fault::Hang, Fault::Delay] {
        let shared = SharedTable::default();
        let store = shared.open();
        store.raise_floor(HIGH).await.unwrap();
        let first = Token::new(HIGH.get() + 1);
        shared.inject_fault(fault);
        abandon(&store, &request(1)).await;
        assert_eq!(store.granted(&key("a"), nonce(1)).await.unwrap(), Some(first), "{fault:?}");
        assert_eq!(granted(&store, &request(1)).await, first);
        shared.arrive();
        assert_eq!(store.granted(&key("a"), nonce(1)).await.unwrap(), Some(first));
    }
}

/// The request is in flight while its nonce is withdrawn: the lock must not be granted to it later.
#[tokio::test(start_paused = true)]
async fn a_withdrawn_request_that_arrives_later_has_no_effect() {
    for fault in [Fault::Hang, Fault::Delay] {
        let shared = SharedTable::default();
        let (store, other) = (shared.open(), shared.open());
        shared.inject_fault(fault);
        abandon(&store, &request(1)).await;
        store.withdraw(&key("a"), nonce(1)).await.unwrap();
        shared.arrive();
        assert_eq!(other.granted(&key("a"), nonce(1)).await.unwrap(), None, "{fault:?}");
        let token = granted(&other, &request(2)).await;

        shared.inject_fault(fault);
        let refusal = refused(&store, &waiting(3)).await;
        assert_eq!(refusal.holder.unwrap().token, token, "a refusal does not wait for the registration");
        store.withdraw(&key("a"), nonce(3)).await.unwrap();
        shared.arrive();
        assert_eq!(other.read(&key("a")).await.unwrap().unwrap().waiting, 0, "{fault:?}");
        assert!(other.release(&key("a"), nonce(2), token).await.unwrap());
        granted(&other, &request(4)).await;
    }
}

/// While the outcome of a request cannot be resolved, no other operation for its nonce is executed.
#[tokio::test(start_paused = true)]
async fn an_outcome_stays_unknown_without_a_leader() {
    let shared = SharedTable::default();
    let store = shared.open();
    shared.inject_fault(Fault::Delay);
    abandon(&store, &request(1)).await;
    for _ in 0..3 {
        shared.inject_fault(Fault::NoQuorum);
    }
    assert!(store.granted(&key("a"), nonce(1)).await.unwrap_err().is_transient());
    assert!(store.withdraw(&key("a"), nonce(1)).await.is_err());
    assert!(store.try_acquire(&request(1)).await.is_err());
    assert_eq!(shared.faults_left(), 0);
    store.withdraw(&key("a"), nonce(1)).await.unwrap();
    shared.arrive();
    assert_eq!(store.granted(&key("a"), nonce(1)).await.unwrap(), None);
    granted(&store, &request(2)).await;
}

/// The request was made when the lock had no row. Meanwhile other contenders held the lock, and it was pruned.
#[tokio::test(start_paused = true)]
async fn a_late_request_for_a_pruned_lock_is_rejected() {
    let shared = SharedTable::default();
    let (store, other) = (shared.open(), shared.open());
    shared.inject_fault(Fault::Delay);
    abandon(&store, &request(1)).await;
    let mut last = Token::new(0);
    for number in 2..5 {
        last = granted(&other, &request(number)).await;
        assert!(other.release(&key("a"), nonce(number), last).await.unwrap());
    }
    assert_eq!(other.prune(Duration::ZERO, 10).await.unwrap(), 1);
    shared.arrive();
    assert_eq!(
        other.read(&key("a")).await.unwrap(),
        None,
        "a grant of the late request would have a lower token"
    );
    assert!(granted(&store, &request(1)).await > last);
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_below_the_floor_is_rejected() {
    let shared = SharedTable::default();
    let (store, other) = (shared.open(), shared.open());
    shared.inject_fault(Fault::Delay);
    abandon(&store, &request(1)).await;
    other.raise_floor(HIGH).await.unwrap();
    shared.arrive();
    assert_eq!(other.granted(&key("a"), nonce(1)).await.unwrap(), None);
    assert!(granted(&store, &request(1)).await > HIGH);
}
