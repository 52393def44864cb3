//! Stores in Postgres: connections, migrations and notifications.

pub mod backup;
mod pool;

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgNotification, PgPoolOptions};
use sqlx::{Acquire, AssertSqlSafe, Executor, PgConnection};
use tokio_util::task::AbortOnDropHandle;

pub use pool::{Pool, PoolOptions, Session, Transaction};

use crate::{Component, Error};

/// The delay before listening again after a lost connection.
const LISTEN_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The time without a notification after which the listening connection is checked.
const LISTEN_CHECK_EVERY: Duration = Duration::from_secs(5);

/// The advisory lock of all migrations: the migrating process holds it. The bytes spell "holdoff".
const MIGRATION_LOCK: i64 = 0x0068_6f6c_646f_6666;

/// Migrates a component's tables to the newest schema. Any number of processes may call it concurrently.
pub async fn migrate(connection: &mut PgConnection, component: &Component) -> Result<(), Error> {
    let table = component.table;
    let mut tx = connection.begin().await?;
    // Concurrent `create … if not exists` statements can conflict, so the lock comes first.
    // No statement has a name, because the connection may be a pooler's.
    let lock = sqlx::query("select pg_advisory_xact_lock($1)").persistent(false);
    lock.bind(MIGRATION_LOCK).execute(&mut *tx).await?;
    // Suppresses the notices that the objects already exist.
    sqlx::raw_sql("set local client_min_messages = warning").execute(&mut *tx).await?;
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
    let (found, needs): (i32, i32) =
        sqlx::query_as(AssertSqlSafe(query)).persistent(false).fetch_one(&mut *tx).await?;
    for migration in component.missing(found, needs)? {
        sqlx::raw_sql(migration.sql).execute(&mut *tx).await?;
        sqlx::query(AssertSqlSafe(format!("insert into {table} (version, breaks_before) values ($1, $2)")))
            .persistent(false)
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
/// been missed. Through a pooler in transaction mode it returns `None`, because the connection would receive none.
pub fn listen(
    pool: &Pool,
    channel: &'static str,
    notify: impl Fn(Option<&str>) + Send + Sync + 'static,
) -> Option<AbortOnDropHandle<()>> {
    if pool.is_pooled() {
        return None;
    }
    let options = pool.options();
    Some(AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            if let Err(error) = listen_once(options.clone(), channel, &notify).await {
                tracing::debug!(%error, channel, "lost the listening connection; polling continues");
            }
            tokio::time::sleep(LISTEN_RETRY_DELAY).await;
        }
    })))
}

/// The connection is not one of the pool's: a listener that is dropped waits for the server, and would keep one of the
/// pool's connections if the server does not answer.
async fn listen_once(
    options: PgConnectOptions,
    channel: &str,
    notify: &(impl Fn(Option<&str>) + Sync),
) -> Result<(), sqlx::Error> {
    let own = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
    let own = own.acquire_timeout(pool::CONNECT_TIMEOUT).connect_lazy_with(options);
    let mut listener = PgListener::connect_with(&own).await?;
    listener.listen(channel).await?;
    notify(None);
    loop {
        if let Ok(notification) = tokio::time::timeout(LISTEN_CHECK_EVERY, listener.try_recv()).await {
            // `None` means that the connection was lost and re-established.
            notify(notification?.as_ref().map(PgNotification::payload));
        } else {
            // A listener sends nothing, so that it would never notice that the server is gone.
            let answer = tokio::time::timeout(pool::CHECK_TIMEOUT, listener.execute("select")).await;
            answer.map_err(|_| sqlx::Error::PoolTimedOut)??;
        }
    }
}
