//! The file, the clock that its leases are measured with, and the watch for releases by other processes.
//!
//! All users of a file are on one machine, so all can read the time since its boot: a clock that cannot be set, that
//! keeps running while the machine is suspended, and that is the same in all processes. The wall clock is not suitable:
//! if it is set an hour forward, all leases expire at once, and no holder notices.
//!
//! A reboot resets the clock. All holders of that time are gone, so all leases have expired.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use holdoff_policy::as_micros_i64;
use holdoff_sql::Component;
use holdoff_sql::sqlite::{self, ChangeDetector, POLL_INTERVAL, WriteTransaction};
use sqlx::SqlitePool;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::key::to_hex;
use crate::notify::{Notification, Subscribers, Subscription};
use crate::store::Result;
use crate::{Nonce, clock};

/// An open file of locks.
#[derive(Debug)]
pub(super) struct LockFile(sqlite::Database);

impl LockFile {
    /// Opens the file at this URL, migrates its tables, and expires the leases of an earlier boot.
    pub(super) async fn open(url: &str, component: &Component) -> Result<Self> {
        let file = sqlite::Database::open(url).await?;
        file.migrate(component).await?;
        let mut write = file.write().await?;
        let query = "update holdoff_lock_token_base set boot = ?1 where boot <> ?1";
        let is_new =
            sqlx::query(query).bind(clock::boot()).execute(&mut *write.tx).await?.rows_affected() > 0;
        if is_new {
            let over = "update holdoff_locks set since = 0, until = 0, reserved_until = 0;
                delete from holdoff_lock_waiters";
            sqlx::raw_sql(over).execute(&mut *write.tx).await?;
        }
        write.tx.commit().await?;
        Ok(Self(file))
    }

    /// Begins a write transaction that survives a power cut.
    pub(super) async fn write(&self) -> Result<WriteTransaction> {
        let write = self.0.write().await?;
        Ok(WriteTransaction { now: self.now(), ..write })
    }

    /// Begins a write transaction that a power cut may undo, but a crash of this program does not.
    pub(super) async fn write_relaxed(&self) -> Result<WriteTransaction> {
        let write = self.0.write_relaxed().await?;
        Ok(WriteTransaction { now: self.now(), ..write })
    }

    pub(super) fn readers(&self) -> &SqlitePool {
        self.0.readers()
    }

    /// Returns the time in microseconds since the machine was booted.
    #[allow(clippy::unused_self, reason = "it is the clock of files")]
    pub(super) fn now(&self) -> i64 {
        as_micros_i64(clock::since_boot())
    }
}

/// Watches the file for changes while there are subscribers.
#[derive(Debug)]
pub(super) struct ReleaseWatcher {
    readers: SqlitePool,
    subscribers: Subscribers,
    subscribed: Arc<Notify>,
    watcher: OnceLock<AbortOnDropHandle<()>>,
}

impl ReleaseWatcher {
    pub(super) fn new(readers: SqlitePool) -> Self {
        Self {
            readers,
            subscribers: Subscribers::default(),
            subscribed: Arc::new(Notify::new()),
            watcher: OnceLock::new(),
        }
    }

    pub(super) fn notify(&self, digest: &[u8; 32], notification: Notification) {
        self.subscribers.notify(digest, notification);
    }

    pub(super) fn subscribe(&self, digest: &[u8; 32]) -> Subscription {
        let subscription = self.subscribers.subscribe(digest);
        self.watcher.get_or_init(|| {
            let (readers, subscribers) = (self.readers.clone(), self.subscribers.clone());
            AbortOnDropHandle::new(tokio::spawn(watch(readers, subscribers, Arc::clone(&self.subscribed))))
        });
        self.subscribed.notify_one();
        subscription
    }
}

/// The release time of each lock in the last notification: the file changes for many reasons.
type Notified = HashMap<Vec<u8>, i64>;

async fn watch(readers: SqlitePool, subscribers: Subscribers, subscribed: Arc<Notify>) {
    let mut changes = ChangeDetector::new(readers.clone());
    let mut notified = Notified::new();
    loop {
        if subscribers.digests().is_empty() {
            changes.release();
            notified.clear();
            subscribed.notified().await;
            continue;
        }
        if changes.has_changed().await
            && let Err(error) = notify_released(&readers, &subscribers, &mut notified).await
        {
            tracing::debug!(%error, "failed to read the released locks");
            changes.release();
            subscribers.notify_all();
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Notifies the subscribers of locks that are free, once for each release.
async fn notify_released(
    readers: &SqlitePool,
    subscribers: &Subscribers,
    notified: &mut Notified,
) -> std::result::Result<(), sqlx::Error> {
    let digests = subscribers.digests();
    notified.retain(|digest, _| digests.iter().any(|wanted| wanted.as_slice() == digest));
    let wanted: Vec<String> = digests.iter().map(|digest| format!("\"{}\"", to_hex(digest))).collect();
    let query = "select digest, until, reserved_for from holdoff_locks
        where nonce is null and digest in (select unhex(value) from json_each(?1))";
    let free: Vec<(Vec<u8>, i64, Option<Uuid>)> =
        sqlx::query_as(query).bind(format!("[{}]", wanted.join(","))).fetch_all(readers).await?;
    for (digest, released_at, reserved_for) in free {
        let Ok(known) = <[u8; 32]>::try_from(digest.as_slice()) else { continue };
        if notified.insert(digest, released_at) != Some(released_at) {
            // After the reservation has ended, the named waiter may ask like any other contender.
            subscribers.notify(
                &known,
                reserved_for
                    .map_or(Notification::MayBeFree, |nonce| Notification::ReservedFor(Nonce::new(nonce))),
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::engine::sqlite::SqliteStore;
    use crate::store::{AcquireOutcome, AcquireRequest, LeaseStore as _};
    use crate::{LockKey, Nonce, Owner};

    #[tokio::test]
    async fn a_reboot_expires_all_leases_and_keeps_the_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("a.db").display());
        let request = || AcquireRequest {
            key: LockKey::new("default", "a").unwrap(),
            owner: Owner { nonce: Nonce::random(), name: "a client".to_owned() },
            lease: std::time::Duration::from_secs(3600),
            waits_for: None,
        };
        let before = SqliteStore::open(&url).await.unwrap();
        let AcquireOutcome::Granted(first) = before.try_acquire(&request()).await.unwrap() else {
            panic!("no other client holds the lock")
        };
        let again = SqliteStore::open(&url).await.unwrap();
        assert!(
            matches!(again.try_acquire(&request()).await.unwrap(), AcquireOutcome::Refused(_)),
            "the lease is still valid in the same boot"
        );
        let mut write = again.file.write().await.unwrap();
        let query = "update holdoff_lock_token_base set boot = 'another'";
        sqlx::query(query).execute(&mut *write.tx).await.unwrap();
        write.tx.commit().await.unwrap();
        let after = SqliteStore::open(&url).await.unwrap();
        let AcquireOutcome::Granted(token) = after.try_acquire(&request()).await.unwrap() else {
            panic!("the lease has not expired")
        };
        assert!(token > first);
    }
}
