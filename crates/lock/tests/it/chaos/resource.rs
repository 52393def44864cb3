//! The protected resource: a table behind a fence. It records every accepted write. A trigger in the store
//! records every grant, in the transaction of the grant; a witness records those of a ledger.

use std::str::FromStr as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use holdoff_ledger::Slot;
use holdoff_ledger::machine::{Either, Key, RowChange, Value};
use holdoff_ledger::runtime::{DefaultMachine, Node};
use holdoff_lock::{FenceError, LockKey, Token, postgres, sqlite};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection as _, PgConnection, PgPool, SqliteConnection, SqlitePool};

/// The outcome of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteOutcome {
    Accepted,
    Stale,
}

pub(crate) enum Resource {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

/// An accepted write, in order.
#[derive(Debug)]
pub(crate) struct AcceptedWrite {
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
    create function record_grant() returns trigger language plpgsql as $$ begin
        insert into public.grants (digest, token, at)
            values (new.digest, new.token, (extract(epoch from clock_timestamp()) * 1000000)::bigint);
        return null;
    end $$;
    create trigger record_first after insert on holdoff.locks for each row execute function record_grant();
    create trigger record_next after update on holdoff.locks for each row
        when (new.nonce is distinct from old.nonce and new.nonce is not null) execute function record_grant()";
const SQLITE_GRANTS: &str =
    "create table grants (id integer primary key, key text, token integer, at integer) strict;
    create trigger record_first after insert on holdoff_locks begin
        insert into grants (key, token, at)
            values (new.key, new.token, cast(unixepoch('subsec') * 1000000 as integer));
    end;
    create trigger record_next after update on holdoff_locks
        when new.nonce is not old.nonce and new.nonce is not null begin
        insert into grants (key, token, at)
            values (new.key, new.token, cast(unixepoch('subsec') * 1000000 as integer));
    end";

/// Makes the store record its grants.
pub(crate) async fn record_grants(store: &str) {
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

    pub(crate) async fn prepare(&self) {
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
    pub(crate) async fn write(
        &self,
        key: &LockKey,
        token: Token,
        what: &str,
    ) -> Result<WriteOutcome, FenceError> {
        let (number, process) = (i64::try_from(token.get()).unwrap(), i64::from(std::process::id()));
        match self {
            Self::Postgres(pool) => {
                let mut tx = pool.begin().await?;
                if let Err(FenceError::Stale(_)) = separate_stale(postgres::fence(&mut tx, key, token).await)?
                {
                    return Ok(WriteOutcome::Stale);
                }
                let insert = "insert into events (key, token, process, what) values ($1, $2, $3, $4)";
                let insert = sqlx::query(insert).bind(key.readable()).bind(number).bind(process).bind(what);
                insert.execute(&mut *tx).await?;
                tx.commit().await?;
            }
            Self::Sqlite(pool) => {
                let mut tx = pool.begin_with("begin immediate").await?;
                if let Err(FenceError::Stale(_)) = separate_stale(sqlite::fence(&mut tx, key, token).await)? {
                    return Ok(WriteOutcome::Stale);
                }
                let insert = "insert into events (key, token, process, what) values (?1, ?2, ?3, ?4)";
                let insert = sqlx::query(insert).bind(key.readable()).bind(number).bind(process).bind(what);
                insert.execute(&mut *tx).await?;
                tx.commit().await?;
            }
        }
        Ok(WriteOutcome::Accepted)
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
    pub(crate) async fn events(&self) -> Vec<AcceptedWrite> {
        let query = "select key, token, process from events order by id";
        let rows: Vec<(String, i64, i64)> = match self {
            Self::Postgres(pool) => sqlx::query_as(query).fetch_all(pool).await.unwrap(),
            Self::Sqlite(pool) => sqlx::query_as(query).fetch_all(pool).await.unwrap(),
        };
        rows.into_iter().map(|(key, token, process)| AcceptedWrite { key, token, process }).collect()
    }
}

/// Separates a stale token, which is a result, from all other errors.
fn separate_stale(checked: Result<(), FenceError>) -> Result<Result<(), FenceError>, FenceError> {
    match checked {
        Err(FenceError::Stale(stale)) => Ok(Err(FenceError::Stale(stale))),
        other => other.map(Ok),
    }
}

/// The prefix of the names of locks' rows.
const LOCKS: &str = "holdoff/lock/";

/// A witness that reads a ledger's history as it is applied, and records every grant.
pub(crate) struct LedgerWitness {
    node: Node<DefaultMachine>,
    seen: Arc<Mutex<Witnessed>>,
}

#[derive(Default)]
struct Witnessed {
    up_to: Slot,
    grants: Vec<Grant>,
}

impl LedgerWitness {
    /// Follows the history of this node from now on.
    pub(crate) fn new(node: Node<DefaultMachine>) -> Self {
        let seen = Arc::new(Mutex::new(Witnessed::default()));
        let (witnessed, mut entries) =
            (Arc::clone(&seen), node.subscribe(node.watch_status().borrow().head.index));
        tokio::spawn(async move {
            while let Ok(entry) = entries.next().await {
                let entry = entry.expect("the history is complete");
                let mut seen = witnessed.lock().unwrap();
                if let Some(Either::Second(diff)) = entry.diff() {
                    seen.grants.extend(diff.iter().filter_map(grant));
                }
                seen.up_to = entry.index;
            }
        });
        Self { node, seen }
    }

    /// Waits until it has read the whole history, and returns all grants in their order.
    pub(crate) async fn grants(&self) -> Vec<Grant> {
        let head = self.node.watch_status().borrow().head.index;
        while self.seen.lock().unwrap().up_to < head {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        std::mem::take(&mut self.seen.lock().unwrap().grants)
    }
}

/// Returns the grant, if the change is one. Its time is after the grant, so a holder notified after that time was
/// notified too late.
fn grant(change: &RowChange<Key, Value>) -> Option<Grant> {
    change.key.as_str().strip_prefix(LOCKS)?;
    let read = |value: &Option<Value>| match value {
        Some(Value::Text(text)) => serde_json::from_str::<serde_json::Value>(text.as_str()).ok(),
        _ => None,
    };
    let nonce = |row: &serde_json::Value| row["holder"]["owner"]["nonce"].as_str().map(str::to_owned);
    let after = read(&change.after)?;
    let holder = nonce(&after)?;
    if read(&change.before).as_ref().and_then(nonce) == Some(holder) {
        return None;
    }
    Some(Grant {
        key: after["key"].as_str().unwrap().to_owned(),
        token: after["holder"]["token"].as_str().unwrap().parse().unwrap(),
        at: now_us(),
    })
}

/// Returns the time in microseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "it is compared with the notes of the processes")]
pub(crate) fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_micros()).unwrap()
}
