//! The clock of leases, the written rows, and the notifications.

use std::time::Duration;

use holdoff_ledger::machine::limits::TEXT_BYTES;

use super::world::World;
use super::{LEASE, bid, granted, held, key, nonce, waiting};
use crate::engine::ledger::MOST_WAITERS;
use crate::engine::ledger::entry::{Entry, Writing};
use crate::row::{Ground, Row};
use crate::store::{Bid, LeaseStore};
use crate::wakes::Heard;
use crate::{Key, Nonce, Owner, Token};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_lease_is_over_when_it_was_seen_unrenewed_for_its_length() {
    let world = World::default();
    let (store, early, late) = (world.open(), world.open(), world.open());
    let token = granted(&store, &bid(1)).await;
    tokio::time::sleep(LEASE / 2).await;
    let first = held(&early, &bid(2)).await;
    assert_eq!(first.free_in, LEASE, "who just begins to look knows nothing of before");
    tokio::time::sleep(9 * SECOND).await;
    assert!(held(&early, &bid(2)).await.free_in <= SECOND);
    assert!(held(&late, &bid(3)).await.free_in == LEASE);
    assert!(store.renew(&key("a"), nonce(1), token, LEASE).await.unwrap());
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(held(&early, &bid(2)).await.free_in, LEASE, "it was renewed");
    tokio::time::sleep(LEASE).await;
    assert!(granted(&early, &bid(2)).await > token);
    assert!(!store.renew(&key("a"), nonce(1), token, LEASE).await.unwrap());
}

/// A subscriber sees renewals as they are applied, and needs no request to start counting.
#[tokio::test(start_paused = true)]
async fn who_listens_counts_from_the_last_renewal() {
    let world = World::default();
    let (store, other) = (world.open(), world.open());
    let token = granted(&store, &bid(1)).await;
    let _listening = other.subscribe(&key("a"));
    held(&other, &waiting(2)).await;
    tokio::time::sleep(LEASE / 2).await;
    assert!(store.renew(&key("a"), nonce(1), token, LEASE).await.unwrap());
    tokio::time::sleep(9 * SECOND).await;
    assert!(held(&other, &waiting(2)).await.free_in <= SECOND);
    tokio::time::sleep(SECOND).await;
    assert!(granted(&other, &waiting(2)).await > token);
}

#[tokio::test(start_paused = true)]
async fn what_is_at_hand_may_be_old_and_nobody_notices() {
    let world = World::default();
    let (door, store) = (world.door(), world.open());
    let old = door.open();
    door.fall_behind();
    let token = granted(&store, &bid(1)).await;
    assert!(held(&old, &bid(2)).await.holder.is_some(), "it looked free");
    door.fall_behind();
    assert!(store.release(&key("a"), nonce(1), token).await.unwrap());
    let second = granted(&old, &bid(2)).await;
    assert!(second > token, "it looked held");
    assert!(old.renew(&key("a"), nonce(2), second, LEASE).await.unwrap());
    assert!(old.release(&key("a"), nonce(2), second).await.unwrap());
    door.fall_behind();
    let third = granted(&store, &bid(3)).await;
    assert_eq!(old.force_release(&key("a")).await.unwrap().unwrap().token, third);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_or_written_that_need_not_be() {
    let world = World::default();
    let store = world.open();
    let token = granted(&store, &bid(1)).await;
    assert!(store.renew(&key("a"), nonce(1), token, LEASE).await.unwrap());
    assert!(store.release(&key("a"), nonce(1), token).await.unwrap());
    assert_eq!(world.counts(), (3, 0), "one transaction each, and no question");
    granted(&store, &bid(2)).await;
    let (written, _) = world.counts();
    held(&store, &bid(3)).await;
    assert_eq!(world.counts().0, written, "who does not wait leaves no note");
    for _ in 0..4 {
        held(&store, &waiting(4)).await;
        tokio::time::sleep(LEASE / 5).await;
    }
    assert_eq!(world.counts().0, written + 1, "a note is good for a while");
}

#[tokio::test(start_paused = true)]
async fn what_was_missed_may_be_anything() {
    let world = World::default();
    let store = world.open();
    let mut listening = store.subscribe(&key("a"));
    world.miss();
    assert_eq!(listening.heard().await, Heard::Maybe);
    world.hang_up();
    assert_eq!(listening.heard().await, Heard::Maybe, "it listens again");
    let token = granted(&store, &bid(1)).await;
    held(&store, &waiting(2)).await;
    assert!(store.release(&key("a"), nonce(1), token).await.unwrap());
    assert_eq!(listening.heard().await, Heard::Next(nonce(2)));
}

/// A row that is too long could not be written, and the lock could not be released.
#[test]
fn the_longest_row_fits() {
    let key = Key::new(&"\u{1}".repeat(200), vec![b'"'; 64 * 1024]).unwrap();
    let mut row = Row::new(Duration::ZERO);
    let ground = Ground { era: (1 << 24) - 1, floor: Token::new(0) };
    let longest = Duration::from_secs(u64::from(u32::MAX));
    for _ in 0..=MOST_WAITERS {
        let owner = Owner { nonce: Nonce::fresh(), name: "\u{1}".repeat(256) };
        row.bid(&owner, longest, Some(longest), ground, Duration::ZERO);
    }
    row.kept = row.line.first().copied();
    let writing = Writing { version: u64::MAX, now: Duration::ZERO, renews: None, written_s: u64::MAX };
    let entry = Entry::written(&key, &row, None, writing);
    let value = entry.value().unwrap();
    assert_eq!(Entry::read(&value).unwrap(), entry);
    let length = serde_json::to_string(&entry).unwrap().len();
    assert!(length <= TEXT_BYTES, "{length}");
}

#[tokio::test(start_paused = true)]
async fn more_than_can_be_noted_may_want_it() {
    let world = World::default();
    let store = world.open();
    granted(&store, &bid(1)).await;
    let many = u128::try_from(MOST_WAITERS).unwrap() + 10;
    for number in 2..many {
        let refusal = held(&store, &waiting(number)).await;
        assert!(usize::try_from(refusal.waiting).unwrap() <= MOST_WAITERS);
    }
    let briefly = Bid { waits: Some(SECOND), ..bid(2) };
    assert_eq!(held(&store, &briefly).await.waiting, u32::try_from(MOST_WAITERS).unwrap());
}
