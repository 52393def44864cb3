//! Knowing that steps have become due, also when another process has written them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sqlx::SqlitePool;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// How often the file is asked whether anybody has written. Asking reads one number from memory.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Wake {
    /// Nothing for a database in memory, which only this process can write.
    readers: Option<SqlitePool>,
    woken: Arc<watch::Sender<()>>,
    watcher: OnceLock<AbortOnDropHandle<()>>,
}

impl Wake {
    pub(super) fn new(readers: Option<SqlitePool>) -> Self {
        Self { readers, woken: Arc::new(watch::Sender::new(())), watcher: OnceLock::new() }
    }

    /// This process has made steps due.
    pub(super) fn send(&self) {
        self.woken.send_replace(());
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        if let Some(readers) = &self.readers {
            self.watcher.get_or_init(|| {
                AbortOnDropHandle::new(tokio::spawn(watch_file(readers.clone(), Arc::clone(&self.woken))))
            });
        }
        self.woken.subscribe()
    }
}

async fn watch_file(readers: SqlitePool, woken: Arc<watch::Sender<()>>) {
    loop {
        if let Err(error) = watch_connection(&readers, &woken).await {
            tracing::debug!(%error, "not watching for new steps; polling goes on");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The number belongs to the connection: it changes when any other one has written.
async fn watch_connection(readers: &SqlitePool, woken: &watch::Sender<()>) -> Result<(), sqlx::Error> {
    let mut connection = readers.acquire().await?;
    let mut last: i64 = 0;
    loop {
        let version = sqlx::query_scalar("pragma data_version").fetch_one(&mut *connection).await?;
        if version != last {
            last = version;
            woken.send_replace(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
