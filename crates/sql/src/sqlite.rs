//! Stores in a SQLite file, shared by any number of processes on one machine.
//!
//! Writers begin with `begin immediate`: a transaction that reads first and writes later fails with a locked
//! database, however long its busy timeout is.

pub mod backup;
mod clock;

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, Sqlite, SqliteConnection, SqlitePool, Transaction};

use crate::{Component, Error, SchemaChange, is_transient, jittered};

use clock::{StoreClock, monotonic};

/// The longest time that a writer waits for another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The shortest pause before a writer checks again whether the file is free; the longest is twice that.
const BUSY_RETRY_DELAY: Duration = Duration::from_millis(1);

/// The number of read-only connections.
const READERS: u32 = 4;

/// Begins a transaction that survives a power failure, not only a crash.
const DURABLE: &str = "pragma synchronous = full; begin immediate";

/// Begins a transaction that a power failure may undo. The next durable transaction also makes it durable.
const RELAXED: &str = "pragma synchronous = normal; begin immediate";

/// The table that all components share: the largest time that any component has written.
const CLOCK_TABLE: &str = "create table if not exists holdoff_clock (high integer not null);
    insert into holdoff_clock select 0 where not exists (select 1 from holdoff_clock)";

/// The polling interval. A check reads one number from memory.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// An open file.
#[derive(Debug)]
pub struct Database {
    /// One connection: SQLite allows one writer at a time, and waiting in the pool is cheaper than waiting
    /// for the file.
    writer: SqlitePool,
    readers: SqlitePool,
    /// An unused connection. A cancelled call closes its connection, and a database in memory is lost with
    /// its last connection.
    _anchor: Option<SqlitePool>,
    clock: StoreClock,
    is_in_memory: bool,
}

/// A write transaction and its time.
#[derive(Debug)]
pub struct WriteTransaction {
    /// The transaction.
    pub tx: Transaction<'static, Sqlite>,
    /// Microseconds since 1970, by the store's clock.
    pub now: i64,
}

impl Database {
    /// Opens the file at this address.
    pub async fn open(url: &str) -> Result<Self, Error> {
        let options = SqliteConnectOptions::from_str(url).map_err(|why| Error::invalid_url(url, why))?;
        let is_in_memory = url.contains(":memory:") || url.contains("mode=memory");
        if !is_in_memory {
            create_private_file(options.get_filename());
        }
        let options = options
            .create_if_missing(true)
            .auto_vacuum(SqliteAutoVacuum::Incremental)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_TIMEOUT)
            .foreign_keys(false)
            .pragma("temp_store", "memory")
            .pragma("journal_size_limit", "67108864");
        let one = SqlitePoolOptions::new()
            .max_connections(1)
            .min_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .after_connect(|connection, _| Box::pin(disable_busy_timeout(connection)));
        let writer = connect(&one, &options).await?;
        let anchor = if is_in_memory { Some(connect(&one, &options).await?) } else { None };
        let readers = if is_in_memory {
            writer.clone()
        } else {
            connect(&SqlitePoolOptions::new().max_connections(READERS), &options).await?
        };
        Ok(Self { writer, readers, _anchor: anchor, clock: StoreClock::new(), is_in_memory })
    }

    /// Migrates a component's tables to the newest schema. Any number of processes may call it concurrently.
    pub async fn migrate(&self, component: &Component) -> Result<(), Error> {
        migrate(begin(&self.writer, DURABLE).await?, component).await
    }

    /// Begins a write transaction. Its time is the largest time in the store, and later transactions never
    /// see an earlier time. A committed transaction survives a power failure.
    pub async fn write(&self) -> Result<WriteTransaction, sqlx::Error> {
        self.write_as(DURABLE).await
    }

    /// Begins a write transaction that a power failure may undo. A crash of this program never does.
    pub async fn write_relaxed(&self) -> Result<WriteTransaction, sqlx::Error> {
        self.write_as(RELAXED).await
    }

    async fn write_as(&self, how: &'static str) -> Result<WriteTransaction, sqlx::Error> {
        let mut tx = begin(&self.writer, how).await?;
        let now = now(&mut tx, &self.clock).await?;
        Ok(WriteTransaction { tx, now })
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
    now(tx, &StoreClock::new()).await
}

/// Creates the file, unless it exists, so that only its owner can read it. SQLite gives the files beside it the same mode.
fn create_private_file(path: &Path) {
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    if !path.exists() {
        // SQLite reports a failure, with a code of its own.
        drop(options.open(path));
    }
}

/// Disables SQLite's own busy timeout. SQLite sleeps for up to 100 ms at a time: among many processes that
/// write continuously, some would wait for seconds while the file is free.
async fn disable_busy_timeout(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("pragma busy_timeout = 0").execute(connection).await?;
    Ok(())
}

/// Connects as soon as no other connection is in the way. If several connections switch a new file to WAL
/// mode concurrently, SQLite lets all but one fail, regardless of the busy timeout.
async fn connect(
    pool: &SqlitePoolOptions,
    options: &SqliteConnectOptions,
) -> Result<SqlitePool, sqlx::Error> {
    let until = monotonic() + BUSY_TIMEOUT;
    loop {
        match pool.clone().connect_with(options.clone()).await {
            Err(error) if is_transient(&error) && monotonic() < until => {
                tokio::time::sleep(jittered(BUSY_RETRY_DELAY)).await;
            }
            connected => return connected,
        }
    }
}

/// Begins a write transaction as soon as no other writer is active.
async fn begin(writer: &SqlitePool, how: &'static str) -> Result<Transaction<'static, Sqlite>, sqlx::Error> {
    let until = monotonic() + BUSY_TIMEOUT;
    loop {
        match writer.begin_with(how).await {
            Err(error) if is_transient(&error) && monotonic() < until => {
                tokio::time::sleep(jittered(BUSY_RETRY_DELAY)).await;
            }
            begun => return begun,
        }
    }
}

async fn now(tx: &mut SqliteConnection, clock: &StoreClock) -> Result<i64, sqlx::Error> {
    let high: i64 = sqlx::query_scalar("update holdoff_clock set high = max(high, ?1) returning high")
        .bind(clock.now())
        .fetch_one(tx)
        .await?;
    clock.observe(high);
    // Returns the stored time, not the current time of the clock: the next writer knows only the stored time.
    Ok(high)
}

/// Migrates a component's tables in this write transaction, and commits it.
pub async fn migrate(mut tx: Transaction<'static, Sqlite>, component: &Component) -> Result<(), Error> {
    let table = component.table;
    let versions = format!(
        "create table if not exists {table} (
            version integer primary key, breaks_before integer not null
        ) strict"
    );
    sqlx::query(AssertSqlSafe(versions)).execute(&mut *tx).await?;
    let query = format!("select coalesce(max(version), 0), coalesce(max(breaks_before), 0) from {table}");
    let (found, needs): (i32, i32) = sqlx::query_as(AssertSqlSafe(query)).fetch_one(&mut *tx).await?;
    sqlx::raw_sql(CLOCK_TABLE).execute(&mut *tx).await?;
    for migration in component.missing(found, needs)? {
        let statements = match migration.change {
            SchemaChange::Statements(statements) => statements.to_owned(),
            SchemaChange::Index { name, on } => format!("create index if not exists {name} on {on}"),
        };
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut *tx).await?;
        sqlx::query(AssertSqlSafe(format!("insert into {table} (version, breaks_before) values (?1, ?2)")))
            .bind(migration.version)
            .bind(migration.breaks_before)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(())
}

/// Detects changes of the file.
#[derive(Debug)]
pub struct ChangeDetector {
    readers: SqlitePool,
    /// The connection and its data version, which changes when any other connection has written.
    seen: Option<(PoolConnection<Sqlite>, i64)>,
}

impl ChangeDetector {
    /// Creates a detector for the file that these connections read.
    pub const fn new(readers: SqlitePool) -> Self {
        Self { readers, seen: None }
    }

    /// Returns whether any connection has written since the last check. Returns `true` for the first check,
    /// and whenever the answer is unknown.
    pub async fn has_changed(&mut self) -> bool {
        self.try_has_changed().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "failed to read the data version of the file");
            self.release();
            true
        })
    }

    /// Releases the connection. The next check counts as the first again.
    pub fn release(&mut self) {
        self.seen = None;
    }

    async fn try_has_changed(&mut self) -> Result<bool, sqlx::Error> {
        let (connection, last) = match &mut self.seen {
            Some((connection, last)) => (connection, last),
            none => {
                let (connection, last) = none.insert((self.readers.acquire().await?, 0));
                (connection, last)
            }
        };
        let version = sqlx::query_scalar("pragma data_version").fetch_one(&mut **connection).await?;
        Ok(std::mem::replace(last, version) != version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Component = Component { table: "holdoff_test_migrations", migrations: &[] };

    #[tokio::test]
    async fn a_relaxed_transaction_does_not_sync_and_a_durable_one_does() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("a.db").display());
        let (file, other) = (Database::open(&url).await.unwrap(), Database::open(&url).await.unwrap());
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
            assert!(refused.is_err_and(|error| is_transient(&error)), "SQLite allows one writer at a time");
            assert!(std::mem::replace(&mut last, write.now) <= write.now);
            write.tx.commit().await.unwrap();
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn only_the_owner_can_read_the_file_and_those_beside_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("a.db").display());
        let file = Database::open(&url).await.unwrap();
        file.migrate(&EMPTY).await.unwrap();
        let mode = |name: &str| folder.path().join(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(["a.db", "a.db-wal", "a.db-shm"].map(mode), [0o600; 3]);
    }

    /// Each connection switches the new file to WAL mode; SQLite lets all but one fail.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_connections_open_a_new_file_concurrently() {
        for round in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let url = format!("sqlite:{}", folder.path().join("a.db").display());
            let mut opening = tokio::task::JoinSet::new();
            for _ in 0..16 {
                let url = url.clone();
                opening.spawn(async move { Database::open(&url).await.map(drop) });
            }
            for opened in opening.join_all().await {
                opened.unwrap_or_else(|error| panic!("round {round}: {error}"));
            }
        }
    }
}
