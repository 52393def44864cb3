//! Stores in Postgres: connections, migrations and notifications.

pub mod backup;

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgNotification, PgPoolOptions};
use sqlx::{Acquire, AssertSqlSafe, Executor, PgConnection, PgPool};
use tokio_util::task::AbortOnDropHandle;

use crate::{Component, Error};

/// The longest time that a call waits for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time that a connection which is released may take to answer.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The delay before listening again after a lost connection.
const LISTEN_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The advisory lock of all migrations: the migrating process holds it. The bytes spell "holdoff".
const MIGRATION_LOCK: i64 = 0x0068_6f6c_646f_6666;

/// The options of a component's connections.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// The statements that every new connection runs first.
    pub session: &'static str,
    /// The smallest number of open connections.
    pub min: u32,
    /// The largest number of open connections.
    pub max: u32,
}

impl PoolOptions {
    /// Opens the database at this URL.
    pub async fn open(self, url: &str) -> Result<PgPool, Error> {
        let options: PgConnectOptions = url.parse().map_err(|why| Error::invalid_url(url, why))?;
        let pool = PgPoolOptions::new()
            .max_connections(self.max)
            .min_connections(self.min)
            .acquire_timeout(CONNECT_TIMEOUT)
            .after_release(|connection, _| Box::pin(check_released(connection)))
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    connection.execute(self.session).await?;
                    Ok(())
                })
            })
            .connect_with(options.application_name("holdoff"))
            .await?;
        Ok(pool)
    }
}

/// Returns an error if a connection that is released does not answer soon; the pool then closes it. A call that was
/// dropped because its time was over leaves such a connection, and the pool would wait for its answer for as long as the
/// network retransmits.
async fn check_released(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let answer = tokio::time::timeout(RELEASE_TIMEOUT, sqlx::Connection::ping(connection)).await;
    answer.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map(|()| true)
}

/// Migrates a component's tables to the newest schema. Any number of processes may call it concurrently.
pub async fn migrate(connection: &mut PgConnection, component: &Component) -> Result<(), Error> {
    let table = component.table;
    let mut tx = connection.begin().await?;
    // Concurrent `create … if not exists` statements can conflict, so the lock comes first.
    sqlx::query("select pg_advisory_xact_lock($1)").bind(MIGRATION_LOCK).execute(&mut *tx).await?;
    // Suppresses the notices that the objects already exist.
    sqlx::query("set local client_min_messages = warning").execute(&mut *tx).await?;
    let tables = format!(
        "create schema if not exists holdoff;
        create table if not exists {table} (
            version integer primary key,
            breaks_before integer not null,
            applied_at timestamptz not null default clock_timestamp()
        )"
    );
    sqlx::raw_sql(AssertSqlSafe(tables)).execute(&mut *tx).await?;
    let query = format!("select coalesce(max(version), 0), coalesce(max(breaks_before), 0) from {table}");
    let (found, needs): (i32, i32) = sqlx::query_as(AssertSqlSafe(query)).fetch_one(&mut *tx).await?;
    for migration in component.missing(found, needs)? {
        sqlx::raw_sql(migration.sql).execute(&mut *tx).await?;
        sqlx::query(AssertSqlSafe(format!("insert into {table} (version, breaks_before) values ($1, $2)")))
            .bind(migration.version)
            .bind(migration.breaks_before)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(())
}

/// Listens on one connection until the handle is dropped. Calls back with the payload of each notification,
/// and with `None` whenever listening starts, for the first time or again, because notifications may have
/// been missed.
pub fn listen(
    pool: PgPool,
    channel: &'static str,
    notify: impl Fn(Option<&str>) + Send + Sync + 'static,
) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            if let Err(error) = listen_once(&pool, channel, &notify).await {
                tracing::debug!(%error, channel, "lost the listening connection; polling continues");
            }
            tokio::time::sleep(LISTEN_RETRY_DELAY).await;
        }
    }))
}

async fn listen_once(
    pool: &PgPool,
    channel: &str,
    notify: &(impl Fn(Option<&str>) + Sync),
) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(channel).await?;
    notify(None);
    loop {
        // `None` means that the connection was lost and re-established.
        let notification = listener.try_recv().await?;
        notify(notification.as_ref().map(PgNotification::payload));
    }
}
