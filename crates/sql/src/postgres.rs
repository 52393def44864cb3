//! Stores in Postgres: connections, migrations and notifications.

pub mod backup;
mod pool;

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgNotification, PgPoolOptions};
use sqlx::{Acquire, AssertSqlSafe, Executor, PgConnection, Row};
use tokio_util::task::AbortOnDropHandle;

pub use pool::{Pool, PoolOptions, Session, Transaction};

use crate::{Component, Error, Migration, SchemaChange, jittered};

/// The delay before listening again after a lost connection.
const LISTEN_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The time without a notification after which the listening connection is checked.
const LISTEN_CHECK_EVERY: Duration = Duration::from_secs(5);

/// The advisory lock of all migrations: the migrating process holds it. The bytes spell "holdoff".
const MIGRATION_LOCK: i64 = 0x0068_6f6c_646f_6666;

/// The settings of a transaction that migrates: a statement may take as long as it needs, but waits for a lock so long
/// only, because every later statement on the same table waits behind it. Notices that objects exist are suppressed.
const MIGRATION_SETTINGS: &str = "set local statement_timeout = 0;
    set local lock_timeout = '250ms';
    set local client_min_messages = warning";

/// The SQLSTATEs of a lock that was not taken: a timeout, and a deadlock.
const LOCK_NOT_TAKEN: [&str; 2] = ["55P03", "40P01"];

/// The pause before a migration tries again to lock its table, in which the other transactions go on.
const LOCK_RETRY_DELAY: Duration = Duration::from_secs(2);

/// The pause before a look whether another process has ended its migration.
const OTHER_PROCESS_DELAY: Duration = Duration::from_millis(50);

/// The longest time that a migration waits for locks and other processes.
const MAX_WAITED: Duration = Duration::from_secs(3600);

/// Migrates a component's tables to the newest schema. Any number of processes may call it concurrently.
///
/// A statement may take as long as it needs, and other transactions go on meanwhile (see [`SchemaChange`]). No process
/// waits inside a transaction for the migration of another, because the build of an index waits for old transactions.
///
/// If the future is dropped, the next call continues with the migration that has not ended.
pub async fn migrate(connection: &mut PgConnection, component: &Component) -> Result<(), Error> {
    let mut waited = Duration::ZERO;
    loop {
        // A store that hangs is no reason to wait without end.
        let outstanding =
            tokio::time::timeout(pool::CONNECT_TIMEOUT, outstanding(connection, component)).await;
        let outstanding = outstanding.unwrap_or(Err(sqlx::Error::PoolTimedOut.into()))?;
        let Some(migration) = outstanding else { return Ok(()) };
        let applied = match migration.change {
            SchemaChange::Statements(statements) => apply(connection, component, migration, statements).await,
            SchemaChange::Index { name, on } => match build_index(connection, name, on).await {
                Ok(Progress::Ended) => apply(connection, component, migration, "").await,
                other => other,
            },
        };
        let pause = match applied {
            Ok(Progress::Ended) => {
                waited = Duration::ZERO;
                continue;
            }
            Ok(Progress::Elsewhere) => OTHER_PROCESS_DELAY,
            Err(sqlx::Error::Database(error))
                if error.code().is_some_and(|code| LOCK_NOT_TAKEN.contains(&&*code)) =>
            {
                let (table, version) = (component.table, migration.version);
                tracing::warn!(table, version, %error, "failed to lock a table; trying again");
                LOCK_RETRY_DELAY
            }
            Err(error) => return Err(error.into()),
        };
        if waited >= MAX_WAITED {
            return Err(Error::MigrationBlocked { version: migration.version, waited });
        }
        let pause = jittered(pause);
        waited += pause;
        tokio::time::sleep(pause).await;
    }
}

/// The progress of a migration.
enum Progress {
    Ended,
    /// Another process migrates.
    Elsewhere,
}

/// Returns the next migration, if there is one. Takes no lock and writes nothing: usually there is none.
async fn outstanding(
    connection: &mut PgConnection,
    component: &Component,
) -> Result<Option<&'static Migration>, Error> {
    let table = component.table;
    let mut tx = connection.begin().await?;
    let exists = sqlx::query_scalar("select to_regclass($1) is not null").bind(table).persistent(false);
    let mut versions = (0, 0);
    if exists.fetch_one(&mut *tx).await? {
        let query = format!("select coalesce(max(version), 0), coalesce(max(breaks_before), 0) from {table}");
        versions = sqlx::query_as(AssertSqlSafe(query)).persistent(false).fetch_one(&mut *tx).await?;
    }
    tx.rollback().await?;
    Ok(component.missing(versions.0, versions.1)?.next())
}

/// Executes statements and records the version, in one transaction, unless another process has done so.
async fn apply(
    connection: &mut PgConnection,
    component: &Component,
    migration: &Migration,
    statements: &'static str,
) -> Result<Progress, sqlx::Error> {
    let table = component.table;
    let mut tx = connection.begin().await?;
    sqlx::raw_sql(MIGRATION_SETTINGS).execute(&mut *tx).await?;
    // Concurrent `create … if not exists` statements can conflict, so the lock comes first.
    // No statement of a migration has a name, because the connection may be a pooler's.
    let lock = sqlx::query_scalar("select pg_try_advisory_xact_lock($1)").bind(MIGRATION_LOCK);
    if !lock.persistent(false).fetch_one(&mut *tx).await? {
        tx.rollback().await?;
        return Ok(Progress::Elsewhere);
    }
    let tables = format!(
        "create schema if not exists holdoff;
        create table if not exists {table} (
            version integer primary key,
            breaks_before integer not null,
            applied_at timestamptz not null default clock_timestamp()
        )"
    );
    sqlx::raw_sql(AssertSqlSafe(tables)).execute(&mut *tx).await?;
    let record =
        format!("insert into {table} (version, breaks_before) values ($1, $2) on conflict do nothing");
    let record = sqlx::query(AssertSqlSafe(record)).bind(migration.version).bind(migration.breaks_before);
    if record.persistent(false).execute(&mut *tx).await?.rows_affected() > 0 {
        sqlx::raw_sql(statements).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(Progress::Ended)
}

/// Builds an index while other transactions write. An interrupted build leaves an index that is not valid; it is built
/// anew.
async fn build_index(connection: &mut PgConnection, name: &str, on: &str) -> Result<Progress, sqlx::Error> {
    match index_state(connection, name).await? {
        Some((true, _)) => return Ok(Progress::Ended),
        Some((false, true)) => return Ok(Progress::Elsewhere),
        Some((false, false)) => {
            unlimited(connection, &format!("drop index concurrently if exists holdoff.{name}")).await?;
        }
        None => {}
    }
    tracing::info!(index = name, "started to build an index");
    unlimited(connection, &format!("create index concurrently if not exists {name} on {on}")).await?;
    // If another process has begun at the same moment, this one has skipped the statement.
    let is_valid = index_state(connection, name).await?.is_some_and(|(is_valid, _)| is_valid);
    Ok(if is_valid { Progress::Ended } else { Progress::Elsewhere })
}

/// Returns whether an index is valid, and whether any process builds an index of its table; `None` if it does not exist.
async fn index_state(connection: &mut PgConnection, name: &str) -> Result<Option<(bool, bool)>, sqlx::Error> {
    let query = "select i.indisvalid,
            exists (select from pg_stat_progress_create_index p where p.relid = i.indrelid)
        from pg_index i where i.indexrelid = to_regclass('holdoff.' || $1)";
    let mut tx = connection.begin().await?;
    let state = sqlx::query_as(query).bind(name).persistent(false).fetch_optional(&mut *tx).await?;
    tx.rollback().await?;
    Ok(state)
}

/// Executes one statement outside any transaction and without timeouts. Restores them, because the connection may belong
/// to a pool. Does not set them where there are none, because a transaction pooler would set them for another client.
async fn unlimited(connection: &mut PgConnection, statement: &str) -> Result<(), sqlx::Error> {
    let query = "select current_setting('statement_timeout'), current_setting('lock_timeout')";
    let settings = sqlx::raw_sql(query).fetch_one(&mut *connection).await?;
    let (statement_timeout, lock_timeout): (String, String) = (settings.try_get(0)?, settings.try_get(1)?);
    if (&*statement_timeout, &*lock_timeout) == ("0", "0") {
        return sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(connection).await.map(drop);
    }
    sqlx::raw_sql("set statement_timeout = 0; set lock_timeout = 0").execute(&mut *connection).await?;
    let executed = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut *connection).await;
    let restore =
        format!("set statement_timeout = '{statement_timeout}'; set lock_timeout = '{lock_timeout}'");
    sqlx::raw_sql(AssertSqlSafe(restore)).execute(connection).await?;
    executed.map(drop)
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
            tokio::time::sleep(jittered(LISTEN_RETRY_DELAY)).await;
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
