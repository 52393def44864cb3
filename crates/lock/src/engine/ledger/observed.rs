//! The times at which this process first saw each version (the only clock that leases are measured with), and the
//! notifications of released locks.
//!
//! The content of a version was written before any process saw that version or a later one. If it is still current, it
//! has stood for at least the time since then. The transaction that expects the row checks that it is still current. No
//! wall clock, neither the observer's nor the holder's, takes part in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdoff_ledger::machine::{Key, RowChange, Value};
use holdoff_retry::Backoff;

use super::stored_lock::StoredLock;
use super::table::{TableEvent, TableSubscription};
use super::{Inner, digest_of};
use crate::clock;
use crate::engine::optimistic::ObservationTable;
use crate::engine::watch_backoff;
use crate::notify::Notification;
use crate::row::Row;

#[derive(Debug, Default)]
pub(super) struct ObservedRows(ObservationTable<Versions>);

/// The time at which each version was first seen, while some part of the row still starts from it.
type Versions = BTreeMap<u64, Duration>;

impl ObservedRows {
    /// Records a row that arrived at this time, and returns it on the local clock.
    pub(super) fn observe(&mut self, digest: &[u8; 32], stored: &StoredLock, read_at: Duration) -> Row {
        let versions = self.0.get_or_insert(digest, read_at, Versions::new);
        // The local copy may be older than a row seen before. No time of the newer row may be removed then.
        let is_newest = versions.last_key_value().is_none_or(|(newest, _)| *newest <= stored.version);
        if is_newest {
            versions.entry(stored.version).or_insert(read_at);
        }
        let first = |version: u64| versions.range(version..).next().map(|(version, at)| (*version, *at));
        let row = stored.row(|version| first(version).map_or(read_at, |(_, at)| at));
        if is_newest {
            *versions = stored.versions().filter_map(first).collect();
        }
        row
    }
}

/// Notifies the subscribers of changes while it runs.
pub(super) async fn follow(inner: Arc<Inner>, mut subscription: Option<Box<dyn TableSubscription>>) {
    let mut backoff = watch_backoff();
    loop {
        if let Some(subscription) = &mut subscription {
            listen(&inner, subscription.as_mut(), &mut backoff).await;
        }
        tracing::debug!("stopped following the ledger; contenders poll until the next subscription");
        backoff.wait().await;
        subscription = inner.table.subscribe().ok();
        // Changes since the end of the last subscription were missed.
        inner.subscribers.notify_all();
    }
}

async fn listen(inner: &Inner, subscription: &mut dyn TableSubscription, backoff: &mut Backoff) {
    while let Some(event) = subscription.next().await {
        backoff.reset();
        match event {
            TableEvent::Changed(changes) => changes.iter().for_each(|change| handle_change(inner, change)),
            TableEvent::Missed => inner.subscribers.notify_all(),
        }
    }
}

/// Handles a change of a lock that has subscribers. From now on this process knows since when the row is unchanged.
fn handle_change(inner: &Inner, change: &RowChange<Key, Value>) {
    let Some(digest) = digest_of(&change.key).filter(|digest| inner.subscribers.has_subscriber(digest))
    else {
        return;
    };
    let read = |value: &Option<Value>| value.as_ref().and_then(|value| StoredLock::read(value).ok());
    let (before, after) = (read(&change.before), read(&change.after));
    if let Some(after) = &after {
        inner.observed.lock().observe(&digest, after, clock::now());
    }
    if let Some(notification) = notification_of(before.as_ref(), after.as_ref()) {
        inner.subscribers.notify(&digest, notification);
    }
}

/// Returns the notification of a change: the lock was released, or is now reserved for another waiter.
fn notification_of(before: Option<&StoredLock>, after: Option<&StoredLock>) -> Option<Notification> {
    if after.and_then(StoredLock::holder).is_some() {
        return None;
    }
    let reserved = after.and_then(StoredLock::reserved);
    match reserved {
        Some((nonce, _)) if reserved != before.and_then(StoredLock::reserved) => {
            Some(Notification::ReservedFor(nonce))
        }
        Some(_) => None,
        None => before
            .is_some_and(|before| before.holder().or(before.reserved().map(|(nonce, _)| nonce)).is_some())
            .then_some(Notification::MayBeFree),
    }
}

#[cfg(test)]
mod tests {
    use super::super::stored_lock::WriteParams;
    use super::*;
    use crate::token::TokenBase;
    use crate::{LockKey, Nonce, Owner, Token};

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns a lock that was granted for ten seconds in this version.
    fn held(version: u64) -> StoredLock {
        let token_base = TokenBase { floor: Token::new(0), wall: Duration::ZERO };
        let (key, mut row) = (LockKey::new("default", "a").unwrap(), Row::new(Duration::ZERO));
        let owner = Owner { nonce: Nonce::random(), name: String::new() };
        row.try_acquire(&owner, SECOND * 10, None, token_base, Duration::ZERO);
        let params = WriteParams { version, now: Duration::ZERO, renewed: Some(owner.nonce), written_s: 0 };
        StoredLock::written(&key, &row, None, params)
    }

    fn until(row: &Row) -> Duration {
        row.lease.as_ref().unwrap().until
    }

    #[test]
    fn an_older_row_that_is_seen_later_does_not_restart_the_lease() {
        let (mut observed, older, newer) = (ObservedRows::default(), held(3), held(7));
        let mut observe =
            |stored: &StoredLock, second: u32| until(&observed.observe(&[0; 32], stored, SECOND * second));
        assert_eq!(observe(&newer, 1), SECOND * 11);
        assert_eq!(observe(&older, 5), SECOND * 11, "the row was written before the row that was seen first");
        assert_eq!(observe(&newer, 6), SECOND * 11);
        assert_eq!(observe(&held(8), 9), SECOND * 19, "the lease was renewed");
    }

    #[test]
    fn versions_that_no_part_of_the_row_refers_to_are_removed() {
        let mut observed = ObservedRows::default();
        for version in 1..100 {
            observed.observe(&[0; 32], &held(version), SECOND);
        }
        assert_eq!(observed.0.get_or_insert(&[0; 32], SECOND, Versions::new).len(), 1);
    }
}
