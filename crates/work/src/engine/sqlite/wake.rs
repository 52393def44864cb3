//! Wakes workers when steps become due, also if another process has written them.

use std::sync::{Arc, OnceLock};

use holdoff_sql::sqlite::{Changes, LOOK_EVERY};
use sqlx::SqlitePool;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

#[derive(Debug)]
pub(super) struct Wake {
    /// `None` for a database in memory, which only this process can write.
    readers: Option<SqlitePool>,
    woken: Arc<watch::Sender<()>>,
    watcher: OnceLock<AbortOnDropHandle<()>>,
}

impl Wake {
    pub(super) fn new(readers: Option<SqlitePool>) -> Self {
        Self { readers, woken: Arc::new(watch::Sender::new(())), watcher: OnceLock::new() }
    }

    /// Signals that this process has made steps due.
    pub(super) fn send(&self) {
        self.woken.send_replace(());
    }

    /// Returns the receiver for all changes, because a change of the file does not say which rows were written.
    pub(super) fn policies(&self) -> watch::Receiver<()> {
        self.subscribe()
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
    let mut changes = Changes::new(readers);
    loop {
        if changes.look().await {
            woken.send_replace(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
