//! Steps in a SQLite file, shared by any number of processes on one machine.
//!
//! Writers begin with `begin immediate`: a transaction that first reads and then writes would fail because the database
//! is locked, however long it waits. Arrays are passed as JSON.

mod admin;
mod filter;
mod finish;
mod json_rows;
mod policies;
mod prune;
mod queue;
mod stats;
mod submit;

pub(crate) use holdoff_sql::sqlite::now_in;

pub(crate) use finish::{succeed, unblock};
pub(crate) use queue::lane_ids;
pub(crate) use submit::submit;

use std::sync::{Arc, OnceLock};

use holdoff_sql::sqlite::{ChangeDetector, Database, POLL_INTERVAL};
use holdoff_sql::{Component, Migration, SchemaChange};
use sqlx::SqlitePool;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::store::Result;

/// The schema. Stores written before the first release, with schemas 1 to 7, cannot be read.
const COMPONENT: Component = Component {
    table: "holdoff_migrations",
    migrations: &[Migration {
        version: 8,
        breaks_before: 8,
        change: SchemaChange::Statements(include_str!("sqlite/schema.sql")),
    }],
};

/// A store in a SQLite file or in memory.
#[derive(Debug)]
pub(crate) struct Sqlite {
    file: Database,
    wake: WakeChannel,
}

impl Sqlite {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let file = Database::open(url).await?;
        let wake = WakeChannel::new((!file.is_in_memory()).then(|| file.readers().clone()));
        Ok(Self { file, wake })
    }
}

/// Wakes workers when steps become due, also if another process has written them.
#[derive(Debug)]
struct WakeChannel {
    /// `None` for a database in memory, which only this process can write.
    readers: Option<SqlitePool>,
    changes: Arc<watch::Sender<()>>,
    watcher: OnceLock<AbortOnDropHandle<()>>,
}

impl WakeChannel {
    fn new(readers: Option<SqlitePool>) -> Self {
        Self { readers, changes: Arc::new(watch::Sender::new(())), watcher: OnceLock::new() }
    }

    /// Signals that this process has changed the file.
    fn send(&self) {
        self.changes.send_replace(());
    }

    /// Returns a receiver for all changes, because a change of the file does not say which rows were written.
    fn subscribe(&self) -> watch::Receiver<()> {
        if let Some(readers) = &self.readers {
            self.watcher.get_or_init(|| {
                AbortOnDropHandle::new(tokio::spawn(watch_file(readers.clone(), Arc::clone(&self.changes))))
            });
        }
        self.changes.subscribe()
    }
}

async fn watch_file(readers: SqlitePool, changed: Arc<watch::Sender<()>>) {
    let mut detector = ChangeDetector::new(readers);
    loop {
        if detector.has_changed().await {
            changed.send_replace(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, Row};

    use super::{Sqlite, queue};
    use crate::store::AdminStore;

    async fn plan(statement: &str) -> String {
        let store = Sqlite::open("sqlite::memory:").await.unwrap();
        store.migrate().await.unwrap();
        let explain = AssertSqlSafe(format!("explain query plan {statement}"));
        let rows = sqlx::query(explain).fetch_all(store.file.writer()).await.unwrap();
        rows.iter().map(|row| row.get::<String, _>("detail")).collect::<Vec<_>>().join("\n")
    }

    /// The hot statements do not read the whole table.
    #[tokio::test]
    async fn claims_rescues_and_expiries_use_an_index() {
        let expired = plan(queue::EXPIRED_STEPS).await;
        assert!(expired.contains("USING COVERING INDEX holdoff_steps_expires"), "{expired}");
        for statement in [queue::HEAD, queue::CLAIM, queue::LOST] {
            let plan = plan(statement).await;
            assert!(
                plan.contains("USING COVERING INDEX holdoff_steps_due")
                    || plan.contains("USING INDEX holdoff_steps_due"),
                "{plan}"
            );
            assert!(
                !plan.contains("SCAN s\n")
                    && !plan.contains("SCAN c")
                    && !plan.contains("TEMP B-TREE FOR ORDER BY\nSCAN"),
                "{plan}"
            );
        }
    }
}
