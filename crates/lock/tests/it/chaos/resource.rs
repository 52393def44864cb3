//! The protected resource: a table behind a fence. It records every accepted write. A trigger in the store
//! records every grant, in the transaction of the grant.

use std::str::FromStr;
use std::time::Duration;

use holdoff_lock::{FenceError, Key, Token, postgres, sqlite};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection as _, PgConnection, PgPool, SqliteConnection, SqlitePool};

/// The outcome of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Taken,
    Stale,
}

pub(crate) enum Resource {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

/// An accepted write, in order.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) key: String,
    pub(crate) token: i64,
    /// The id of the process.
    pub(crate) process: i64,
}

/// A grant, as the store recorded it.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) key: String,
    pub(crate) token: i64,
    /// The time in microseconds since 1970, by the store's clock.
    pub(crate) at: i64,
}

const POSTGRES: &str = "create table events (
        id bigserial primary key, key text not null, token bigint not null, process bigint not null, what text not null)";
const SQLITE: &str = "create table events (
        id integer primary key, key text not null, token integer not null, process integer not null, what text not null
    ) strict";

const POSTGRES_GRANTS: &str =
    "create table grants (id bigserial primary key, digest bytea, token bigint, at bigint);
    create function note_grant() returns trigger language plpgsql as $$ begin
        insert into public.grants (digest, token, at)
            values (new.digest, new.token, (extract(epoch from clock_timestamp()) * 1000000)::bigint);
        return null;
    end $$;
    create trigger note_first after insert on holdoff.locks for each row execute function note_grant();
    create trigger note_next after update on holdoff.locks for each row
        when (new.nonce is distinct from old.nonce and new.nonce is not null) execute function note_grant()";
const SQLITE_GRANTS: &str =
    "create table grants (id integer primary key, key text, token integer, at integer) strict;
    create trigger note_first after insert on holdoff_locks begin
        insert into grants (key, token, at)
            values (new.key, new.token, cast(unixepoch('subsec') * 1000000 as integer));
    end;
    create trigger note_next after update on holdoff_locks
        when new.nonce is not old.nonce and new.nonce is not null begin
        insert into grants (key, token, at)
            values (new.key, new.token, cast(unixepoch('subsec') * 1000000 as integer));
    end";

/// Makes the store record its grants.
pub(crate) async fn note_grants(store: &str) {
    if store.starts_with("postgres") {
        let mut store = PgConnection::connect(store).await.unwrap();
        sqlx::raw_sql(POSTGRES_GRANTS).execute(&mut store).await.unwrap();
    } else {
        let mut store = SqliteConnection::connect(store).await.unwrap();
        sqlx::raw_sql(SQLITE_GRANTS).execute(&mut store).await.unwrap();
    }
}

pub(crate) async fn grants(store: &str) -> Vec<Grant> {
    let rows: Vec<(String, i64, i64)> = if store.starts_with("postgres") {
        let query = "select n.key, g.token, g.at
            from grants g join holdoff.lock_names n on n.digest = g.digest order by g.id";
        sqlx::query_as(query).fetch_all(&mut PgConnection::connect(store).await.unwrap()).await.unwrap()
    } else {
        let query = "select key, token, at from grants order by id";
        sqlx::query_as(query).fetch_all(&mut SqliteConnection::connect(store).await.unwrap()).await.unwrap()
    };
    rows.into_iter().map(|(key, token, at)| Grant { key, token, at }).collect()
}

impl Resource {
    pub(crate) async fn open(url: &str) -> Self {
        if url.starts_with("postgres") {
            return Self::Postgres(PgPool::connect_lazy(url).unwrap());
        }
        // The file must survive its processes, not the machine.
        let options = SqliteConnectOptions::from_str(url)
            .unwrap()
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Off)
            .busy_timeout(Duration::from_secs(20));
        Self::Sqlite(SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap())
    }

    pub(crate) async fn make(&self) {
        match self {
            Self::Postgres(pool) => {
                postgres::prepare(&mut pool.acquire().await.unwrap()).await.unwrap();
                sqlx::raw_sql(POSTGRES).execute(pool).await.unwrap();
            }
            Self::Sqlite(pool) => {
                sqlite::prepare(pool).await.unwrap();
                sqlx::raw_sql(SQLITE).execute(pool).await.unwrap();
            }
        }
    }

    /// Writes, unless the fence has seen a higher token.
    pub(crate) async fn write(&self, key: &Key, token: Token, what: &str) -> Result<Fate, FenceError> {
        let (number, process) = (i64::try_from(token.get()).unwrap(), i64::from(std::process::id()));
        match self {
            Self::Postgres(pool) => {
                let mut tx = pool.begin().await?;
                if let Err(FenceError::Stale(_)) = passed(postgres::fence(&mut tx, key, token).await)? {
                    return Ok(Fate::Stale);
                }
                let insert = "insert into events (key, token, process, what) values ($1, $2, $3, $4)";
                let insert = sqlx::query(insert).bind(key.readable()).bind(number).bind(process).bind(what);
                insert.execute(&mut *tx).await?;
                tx.commit().await?;
            }
            Self::Sqlite(pool) => {
                let mut tx = pool.begin_with("begin immediate").await?;
                if let Err(FenceError::Stale(_)) = passed(sqlite::fence(&mut tx, key, token).await)? {
                    return Ok(Fate::Stale);
                }
                let insert = "insert into events (key, token, process, what) values (?1, ?2, ?3, ?4)";
                let insert = sqlx::query(insert).bind(key.readable()).bind(number).bind(process).bind(what);
                insert.execute(&mut *tx).await?;
                tx.commit().await?;
            }
        }
        Ok(Fate::Taken)
    }

    /// Returns the highest token of all writes; `None` if there is none, or the resource cannot be reached.
    pub(crate) async fn highest(&self, key: &str) -> Option<i64> {
        let query = "select max(token) from events where key = $1";
        let found: Result<Option<i64>, sqlx::Error> = match self {
            Self::Postgres(pool) => sqlx::query_scalar(query).bind(key).fetch_one(pool).await,
            Self::Sqlite(pool) => sqlx::query_scalar(query).bind(key).fetch_one(pool).await,
        };
        found.ok().flatten()
    }

    /// Returns all accepted writes, in order.
    pub(crate) async fn events(&self) -> Vec<Event> {
        let query = "select key, token, process from events order by id";
        let rows: Vec<(String, i64, i64)> = match self {
            Self::Postgres(pool) => sqlx::query_as(query).fetch_all(pool).await.unwrap(),
            Self::Sqlite(pool) => sqlx::query_as(query).fetch_all(pool).await.unwrap(),
        };
        rows.into_iter().map(|(key, token, process)| Event { key, token, process }).collect()
    }
}

/// Separates a stale token, which is a result, from all other errors.
fn passed(passed: Result<(), FenceError>) -> Result<Result<(), FenceError>, FenceError> {
    match passed {
        Err(FenceError::Stale(stale)) => Ok(Err(FenceError::Stale(stale))),
        other => other.map(Ok),
    }
}
