//! Opening a file, and beginning to write.

use std::str::FromStr;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Sqlite, SqliteConnection, SqlitePool, Transaction};

use super::Clock;
use crate::{Component, Error, clock, is_transient};

/// How long a writer waits for another process.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);

/// How long a writer sleeps before it looks again whether the file is free, at least; and at most twice that.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Connections that only read.
const READERS: u32 = 4;

/// How to begin to write what survives a power cut, not only a crash.
const DURABLE: &str = "pragma synchronous = full; begin immediate";

/// How to begin to write what a power cut may undo. Whatever is written durably later takes it along to the disk.
const RELAXED: &str = "pragma synchronous = normal; begin immediate";

/// A file that is open.
#[derive(Debug)]
pub struct File {
    /// One connection: SQLite has one writer at a time, and waiting for it is cheaper in here.
    writer: SqlitePool,
    readers: SqlitePool,
    /// A connection that nobody uses. A call that is given up half-way closes its connection, and a database in memory
    /// is gone with the last one.
    _anchor: Option<SqlitePool>,
    clock: Clock,
    is_in_memory: bool,
}

/// A transaction that writes, and the time it all happens at.
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

    /// Brings a component's tables up to date. Any number may try at once.
    pub async fn migrate(&self, component: &Component) -> Result<(), Error> {
        super::migrate(begin(&self.writer, DURABLE).await?, component).await
    }

    /// Begins to write. The time is the largest anybody has seen, and is seen from now on. What was acknowledged survives
    /// a power cut.
    pub async fn write(&self) -> Result<Write, sqlx::Error> {
        self.write_as(DURABLE).await
    }

    /// Begins to write what a power cut may undo, though never a crash of this program.
    pub async fn write_relaxed(&self) -> Result<Write, sqlx::Error> {
        self.write_as(RELAXED).await
    }

    async fn write_as(&self, how: &'static str) -> Result<Write, sqlx::Error> {
        let mut tx = begin(&self.writer, how).await?;
        let now = now(&mut tx, &self.clock).await?;
        Ok(Write { tx, now })
    }

    /// The one connection that writes.
    pub const fn writer(&self) -> &SqlitePool {
        &self.writer
    }

    /// The connections that only read.
    pub const fn readers(&self) -> &SqlitePool {
        &self.readers
    }

    /// About what time it is, for those who only read.
    pub fn now(&self) -> i64 {
        self.clock.now()
    }

    /// Whether no other process can see it.
    pub const fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }
}

/// The time inside somebody else's transaction.
pub async fn now_in(tx: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    now(tx, &Clock::new()).await
}

/// SQLite itself would sleep for up to 100 ms at a time: of many processes that write all the time, some would wait
/// for seconds while the file is free.
async fn look_once(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("pragma busy_timeout = 0").execute(connection).await?;
    Ok(())
}

/// Connects as soon as nobody stands in the way. Of several that turn a new file into one with a log at once, SQLite lets
/// all but one fail, whatever its patience.
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

/// Begins to write as soon as nobody else does.
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
    // What was written, not what the clock says by now: the next writer knows only of the former.
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

    /// Each turns the new file into one with a log; SQLite lets all but one fail.
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
