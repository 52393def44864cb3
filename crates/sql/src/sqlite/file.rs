//! Opens a file, and begins write transactions.

use std::str::FromStr;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Sqlite, SqliteConnection, SqlitePool, Transaction};

use super::Clock;
use crate::{Component, Error, clock, is_transient};

/// The longest time that a writer waits for another process.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);

/// The shortest pause before a writer checks again whether the file is free; the longest is twice that.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The number of read-only connections.
const READERS: u32 = 4;

/// Begins a transaction that survives a power failure, not only a crash.
const DURABLE: &str = "pragma synchronous = full; begin immediate";

/// Begins a transaction that a power failure may undo. The next durable transaction also makes it durable.
const RELAXED: &str = "pragma synchronous = normal; begin immediate";

/// An open file.
#[derive(Debug)]
pub struct File {
    /// One connection: SQLite allows one writer at a time, and waiting in the pool is cheaper than waiting
    /// for the file.
    writer: SqlitePool,
    readers: SqlitePool,
    /// An unused connection. A cancelled call closes its connection, and a database in memory is lost with
    /// its last connection.
    _anchor: Option<SqlitePool>,
    clock: Clock,
    is_in_memory: bool,
}

/// A write transaction and its time.
#[derive(Debug)]
pub struct Write {
    /// The transaction.
    pub tx: Transaction<'static, Sqlite>,
    /// Microseconds since 1970, by the store's clock.
    pub now: i64,
}

impl File {
    /// Opens the file at this address.
    pub async fn open(url: &str) -> Result<Self, Error> {
        let options = SqliteConnectOptions::from_str(url)
            .map_err(|why| Error::address(url, &why))?
            .create_if_missing(true)
            .auto_vacuum(SqliteAutoVacuum::Incremental)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_PATIENCE)
            .foreign_keys(false)
            .pragma("temp_store", "memory")
            .pragma("journal_size_limit", "67108864");
        let one = SqlitePoolOptions::new()
            .max_connections(1)
            .min_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .after_connect(|connection, _| Box::pin(look_once(connection)));
        let writer = connect(&one, &options).await?;
        let is_in_memory = url.contains(":memory:") || url.contains("mode=memory");
        let anchor = if is_in_memory { Some(connect(&one, &options).await?) } else { None };
        let readers = if is_in_memory {
            writer.clone()
        } else {
            connect(&SqlitePoolOptions::new().max_connections(READERS), &options).await?
        };
        Ok(Self { writer, readers, _anchor: anchor, clock: Clock::new(), is_in_memory })
    }

    /// Migrates a component's tables to the newest schema. Any number of processes may call it concurrently.
    pub async fn migrate(&self, component: &Component) -> Result<(), Error> {
        super::migrate(begin(&self.writer, DURABLE).await?, component).await
    }

    /// Begins a write transaction. Its time is the largest time in the store, and later transactions never
    /// see an earlier time. A committed transaction survives a power failure.
    pub async fn write(&self) -> Result<Write, sqlx::Error> {
        self.write_as(DURABLE).await
    }

    /// Begins a write transaction that a power failure may undo. A crash of this program never does.
    pub async fn write_relaxed(&self) -> Result<Write, sqlx::Error> {
        self.write_as(RELAXED).await
    }

    async fn write_as(&self, how: &'static str) -> Result<Write, sqlx::Error> {
        let mut tx = begin(&self.writer, how).await?;
        let now = now(&mut tx, &self.clock).await?;
        Ok(Write { tx, now })
    }

    /// Returns the pool with the only writing connection.
    pub const fn writer(&self) -> &SqlitePool {
        &self.writer
    }

    /// Returns the read-only connections.
    pub const fn readers(&self) -> &SqlitePool {
        &self.readers
    }

    /// Returns the approximate time, for callers that only read.
    pub fn now(&self) -> i64 {
        self.clock.now()
    }

    /// Returns whether the database is in memory, so that no other process can see it.
    pub const fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }
}

/// Returns the time inside a transaction that the caller has begun.
pub async fn now_in(tx: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    now(tx, &Clock::new()).await
}

/// Disables SQLite's own busy timeout. SQLite sleeps for up to 100 ms at a time: among many processes that
/// write continuously, some would wait for seconds while the file is free.
async fn look_once(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("pragma busy_timeout = 0").execute(connection).await?;
    Ok(())
}

/// Connects as soon as no other connection is in the way. If several connections switch a new file to WAL
/// mode concurrently, SQLite lets all but one fail, regardless of the busy timeout.
async fn connect(
    pool: &SqlitePoolOptions,
    options: &SqliteConnectOptions,
) -> Result<SqlitePool, sqlx::Error> {
    let until = clock::now() + BUSY_PATIENCE;
    loop {
        match pool.clone().connect_with(options.clone()).await {
            Err(error) if is_transient(&error) && clock::now() < until => {
                tokio::time::sleep(clock::about(LOOK_AGAIN)).await;
            }
            connected => return connected,
        }
    }
}

/// Begins a write transaction as soon as no other writer is active.
async fn begin(writer: &SqlitePool, how: &'static str) -> Result<Transaction<'static, Sqlite>, sqlx::Error> {
    let until = clock::now() + BUSY_PATIENCE;
    loop {
        match writer.begin_with(how).await {
            Err(error) if is_transient(&error) && clock::now() < until => {
                tokio::time::sleep(clock::about(LOOK_AGAIN)).await;
            }
            begun => return begun,
        }
    }
}

async fn now(tx: &mut SqliteConnection, clock: &Clock) -> Result<i64, sqlx::Error> {
    let high: i64 = sqlx::query_scalar("update holdoff_clock set high = max(high, ?1) returning high")
        .bind(clock.now())
        .fetch_one(tx)
        .await?;
    clock.observe(high);
    // Returns the stored time, not the current time of the clock: the next writer knows only the stored time.
    Ok(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Component = Component { table: "holdoff_test_migrations", migrations: &[] };

    #[tokio::test]
    async fn only_what_may_be_undone_is_relaxed() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("a.db").display());
        let (file, other) = (File::open(&url).await.unwrap(), File::open(&url).await.unwrap());
        tokio::try_join!(file.migrate(&EMPTY), other.migrate(&EMPTY)).unwrap();
        let (normal, full) = (1, 2);
        let mut last = 0;
        for expected in [full, normal, full, normal] {
            let write = if expected == full { file.write().await } else { file.write_relaxed().await };
            let mut write = write.unwrap();
            let found: i64 =
                sqlx::query_scalar("pragma synchronous").fetch_one(&mut *write.tx).await.unwrap();
            assert_eq!(found, expected);
            let refused = other.writer().begin_with("begin immediate").await;
            assert!(refused.is_err_and(|error| is_transient(&error)), "one writes at a time");
            assert!(std::mem::replace(&mut last, write.now) <= write.now);
            write.tx.commit().await.unwrap();
        }
    }

    /// Each connection switches the new file to WAL mode; SQLite lets all but one fail.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn any_number_open_a_new_file_at_once() {
        for round in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let url = format!("sqlite:{}", folder.path().join("a.db").display());
            let mut opening = tokio::task::JoinSet::new();
            for _ in 0..16 {
                let url = url.clone();
                opening.spawn(async move { File::open(&url).await.map(drop) });
            }
            for opened in opening.join_all().await {
                opened.unwrap_or_else(|error| panic!("round {round}: {error}"));
            }
        }
    }
}
