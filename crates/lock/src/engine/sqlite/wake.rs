//! Notifications of released locks, also from other processes.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use holdoff_sql::sqlite::{Changes, LOOK_EVERY};
use sqlx::SqlitePool;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::Nonce;
use crate::engine::sql::hex;
use crate::wakes::{Heard, Subscription, Wakes};

/// Watches the file for changes while there are subscribers.
#[derive(Debug)]
pub(super) struct Wake {
    readers: SqlitePool,
    wakes: Wakes,
    somebody: Arc<Notify>,
    watcher: OnceLock<AbortOnDropHandle<()>>,
}

impl Wake {
    pub(super) fn new(readers: SqlitePool) -> Self {
        Self { readers, wakes: Wakes::default(), somebody: Arc::new(Notify::new()), watcher: OnceLock::new() }
    }

    pub(super) fn tell(&self, digest: &[u8; 32], heard: Heard) {
        self.wakes.tell(digest, heard);
    }

    pub(super) fn subscribe(&self, digest: &[u8; 32]) -> Subscription {
        let subscription = self.wakes.subscribe(digest);
        self.watcher.get_or_init(|| {
            let (readers, wakes) = (self.readers.clone(), self.wakes.clone());
            AbortOnDropHandle::new(tokio::spawn(watch(readers, wakes, Arc::clone(&self.somebody))))
        });
        self.somebody.notify_one();
        subscription
    }
}

/// The release time of each lock in the last notification: the file changes for many reasons.
type Told = HashMap<Vec<u8>, i64>;

async fn watch(readers: SqlitePool, wakes: Wakes, somebody: Arc<Notify>) {
    let mut changes = Changes::new(readers.clone());
    let mut told = Told::new();
    loop {
        if wakes.digests().is_empty() {
            changes.rest();
            told.clear();
            somebody.notified().await;
            continue;
        }
        if changes.look().await
            && let Err(error) = tell(&readers, &wakes, &mut told).await
        {
            tracing::debug!(%error, "cannot see which locks were let go");
            changes.rest();
            wakes.tell_all();
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Notifies the subscribers of locks that are free, once for each release.
async fn tell(readers: &SqlitePool, wakes: &Wakes, told: &mut Told) -> Result<(), sqlx::Error> {
    let digests = wakes.digests();
    told.retain(|digest, _| digests.iter().any(|wanted| wanted.as_slice() == digest));
    let wanted: Vec<String> = digests.iter().map(|digest| format!("\"{}\"", hex(digest))).collect();
    let query = "select digest, until, next from holdoff_locks
        where nonce is null and digest in (select unhex(value) from json_each(?1))";
    let free: Vec<(Vec<u8>, i64, Option<Uuid>)> =
        sqlx::query_as(query).bind(format!("[{}]", wanted.join(","))).fetch_all(readers).await?;
    for (digest, since, next) in free {
        let Ok(known) = <[u8; 32]>::try_from(digest.as_slice()) else { continue };
        if told.insert(digest, since) != Some(since) {
            // After the reservation has ended, the named waiter may ask like any other contender.
            wakes.tell(&known, next.map_or(Heard::Maybe, |nonce| Heard::Next(Nonce::new(nonce))));
        }
    }
    Ok(())
}
