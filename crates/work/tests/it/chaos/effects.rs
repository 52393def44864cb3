//! The resource that the steps change: a table that rejects tokens lower than the highest it has seen.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{PgPool, SqliteConnection, SqlitePool};

use crate::chaos::inbox::Inbox;

/// The result of an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Applied,
    /// A later claim has already acted.
    Refused,
}

/// The resource. It also logs everything it accepts, in order.
pub(crate) enum Effects {
    Postgres(PgPool),
    Sqlite(SqlitePool, Inbox),
}

const POSTGRES: &str = "create schema chaos;
    create table chaos.effects (step text primary key, token bigint not null, run bigint not null, applied int not null);
    create table chaos.applications (id bigserial primary key, step text not null, token bigint not null);
    create table chaos.refusals (step text not null, token bigint not null);
    create table chaos.violations (what text not null)";

const SQLITE: &str = "create table effects (step text primary key, token integer not null, run integer not null, applied integer not null) strict;
    create table applications (id integer primary key, step text not null, token integer not null) strict;
    create table refusals (step text not null, token integer not null) strict;
    create table violations (what text not null) strict";

/// The maximum wait for the file's lock if a stopped process holds it.
const BUSY: Duration = Duration::from_secs(20);

impl Effects {
    pub(crate) fn open(url: &str) -> Result<Self, sqlx::Error> {
        if url.starts_with("postgres") {
            let options = PgConnectOptions::from_str(url)?.application_name("effects");
            let pool = PgPoolOptions::new().max_connections(6).connect_lazy_with(options);
            return Ok(Self::Postgres(pool));
        }
        // The file must survive its processes, but not the machine.
        let options = SqliteConnectOptions::from_str(url)?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Off)
            .busy_timeout(BUSY);
        let pool =
            SqlitePoolOptions::new().max_connections(1).acquire_timeout(BUSY).connect_lazy_with(options);
        Ok(Self::Sqlite(pool.clone(), Inbox::new(pool)))
    }

    pub(crate) async fn make(&self) -> Result<(), sqlx::Error> {
        match self {
            Self::Postgres(pool) => sqlx::raw_sql(POSTGRES).execute(pool).await.map(drop),
            Self::Sqlite(pool, _) => sqlx::raw_sql(SQLITE).execute(pool).await.map(drop),
        }
    }

    /// Applies an effect unless a later claim has acted. `run` is the number of this run, which distinguishes a
    /// repetition by one run from two runs with the same token.
    pub(crate) async fn apply(&self, step: &str, token: i64, run: i64) -> Result<Fate, sqlx::Error> {
        let (fate, seen) = match self {
            Self::Postgres(pool) => apply_postgres(pool, step, token, run).await?,
            Self::Sqlite(_, inbox) => inbox.apply(step, token, run).await?,
        };
        if seen == token && fate == Fate::Refused {
            self.violation(&format!("{step}: two runs have token {token}")).await?;
        }
        Ok(fate)
    }

    pub(crate) async fn violation(&self, what: &str) -> Result<(), sqlx::Error> {
        match self {
            Self::Postgres(pool) => {
                let insert = "insert into chaos.violations values ($1)";
                sqlx::query(insert).bind(what).execute(pool).await.map(drop)
            }
            Self::Sqlite(pool, _) => {
                sqlx::query("insert into violations values (?1)").bind(what).execute(pool).await.map(drop)
            }
        }
    }
}

/// Returns the result, and the highest token that is now known.
async fn apply_postgres(pool: &PgPool, step: &str, token: i64, run: i64) -> Result<(Fate, i64), sqlx::Error> {
    // The row is locked when the application gets its number, so that the numbers show the order.
    let put = "with put as (
            insert into chaos.effects as e (step, token, run, applied) values ($1, $2, $3, 1)
            on conflict (step) do update set token = excluded.token, run = excluded.run, applied = e.applied + 1
            where e.token < excluded.token returning step
        ), logged as (insert into chaos.applications (step, token) select step, $2 from put)
        select count(*) from put";
    let put: i64 = sqlx::query_scalar(put).bind(step).bind(token).bind(run).fetch_one(pool).await?;
    if put > 0 {
        return Ok((Fate::Applied, token));
    }
    let look = "select token, run from chaos.effects where step = $1";
    let (seen, by): (i64, i64) = sqlx::query_as(look).bind(step).fetch_one(pool).await?;
    if (seen, by) == (token, run) {
        return Ok((Fate::Applied, token));
    }
    let note = "insert into chaos.refusals values ($1, $2)";
    sqlx::query(note).bind(step).bind(token).execute(pool).await?;
    Ok((Fate::Refused, seen))
}

/// Applies an effect in a transaction that holds the file's lock, and returns the same.
pub(crate) async fn apply_sqlite(
    tx: &mut SqliteConnection,
    step: &str,
    token: i64,
    run: i64,
) -> Result<(Fate, i64), sqlx::Error> {
    let put = "insert into effects as e (step, token, run, applied) values (?1, ?2, ?3, 1)
        on conflict (step) do update set token = excluded.token, run = excluded.run, applied = e.applied + 1
        where e.token < excluded.token";
    let put = sqlx::query(put).bind(step).bind(token).bind(run).execute(&mut *tx).await?.rows_affected();
    let (table, fate, seen) = if put > 0 {
        ("insert into applications (step, token) values (?1, ?2)", Fate::Applied, token)
    } else {
        let look = "select token, run from effects where step = ?1";
        let (seen, by): (i64, i64) = sqlx::query_as(look).bind(step).fetch_one(&mut *tx).await?;
        if (seen, by) == (token, run) {
            return Ok((Fate::Applied, token));
        }
        ("insert into refusals (step, token) values (?1, ?2)", Fate::Refused, seen)
    };
    sqlx::query(table).bind(step).bind(token).execute(tx).await?;
    Ok((fate, seen))
}
