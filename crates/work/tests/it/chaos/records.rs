//! The records of the store and of the resource, read with plain SQL.

use std::str::FromStr;

use sqlx::types::Uuid;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

/// A finished step. Times are microseconds since 1970, by the store's clock.
pub(crate) struct Done {
    pub(crate) task: Uuid,
    pub(crate) step: i32,
    pub(crate) state: i16,
    pub(crate) lease: i64,
    pub(crate) created: i64,
    pub(crate) claimed: i64,
    pub(crate) ended: i64,
    pub(crate) failures: i32,
    pub(crate) rescues: i32,
    pub(crate) snoozes: i32,
    pub(crate) output: Option<Vec<u8>>,
}

/// A run that did not succeed.
pub(crate) struct Attempt {
    pub(crate) task: Uuid,
    pub(crate) step: i32,
    pub(crate) lease: i64,
    pub(crate) outcome: i16,
    pub(crate) started: i64,
    pub(crate) message: Option<String>,
}

pub(crate) struct Edge {
    pub(crate) task: Uuid,
    pub(crate) parent: i32,
    pub(crate) child: i32,
}

/// The resource's record of a step.
pub(crate) struct Effect {
    pub(crate) step: String,
    pub(crate) token: i64,
    pub(crate) applied: i32,
}

type DoneRow = (Uuid, i32, i16, i64, i64, i64, i64, i32, i32, i32, Option<Vec<u8>>);
type AttemptRow = (Uuid, i32, i64, i16, i64, Option<String>);

impl From<DoneRow> for Done {
    fn from(row: DoneRow) -> Self {
        let (task, step, state, lease, created, claimed, ended, failures, rescues, snoozes, output) = row;
        Self { task, step, state, lease, created, claimed, ended, failures, rescues, snoozes, output }
    }
}

impl From<AttemptRow> for Attempt {
    fn from((task, step, lease, outcome, started, message): AttemptRow) -> Self {
        Self { task, step, lease, outcome, started, message }
    }
}

impl From<(Uuid, i32, i32)> for Edge {
    fn from((task, parent, child): (Uuid, i32, i32)) -> Self {
        Self { task, parent, child }
    }
}

impl From<(String, i64, i32)> for Effect {
    fn from((step, token, applied): (String, i64, i32)) -> Self {
        Self { step, token, applied }
    }
}

fn all<R, T: From<R>>(rows: Vec<R>) -> Vec<T> {
    rows.into_iter().map(T::from).collect()
}

/// All records, in the order in which they were written if there is one.
pub(crate) struct Records {
    /// The number of unfinished steps.
    pub(crate) live: i64,
    pub(crate) done: Vec<Done>,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) effects: Vec<Effect>,
    /// Steps and tokens, in the order in which they were applied.
    pub(crate) applications: Vec<(String, i64)>,
    pub(crate) refusals: i64,
    pub(crate) violations: Vec<String>,
    /// The store's clock.
    pub(crate) now: i64,
}

macro_rules! read_all {
    ($store:expr, $effects:expr, $schema:expr, $resource:expr, $micros:expr, $now:expr, $order:expr) => {{
        let (schema, resource) = ($schema, $resource);
        let micros = |column: &str| $micros.replace("{}", column);
        let sql = |text: String| AssertSqlSafe(text);
        let done = format!(
            "select task, step, state, lease, {} as created, {} as claimed, {} as ended, failures, rescues, snoozes,
                output from {schema}done order by {}",
            micros("created_at"),
            micros("claimed_at"),
            micros("ended_at"),
            $order
        );
        let attempts = format!(
            "select task, step, lease, outcome, {} as started, message from {schema}attempts",
            micros("started_at")
        );
        let edges = format!("select task, parent, child from {schema}edges");
        let effects = format!("select step, token, applied from {resource}effects");
        let applications = format!("select step, token from {resource}applications order by id");
        Records {
            live: sqlx::query_scalar(sql(format!("select count(*) from {schema}steps"))).fetch_one(&mut $store).await?,
            done: all::<DoneRow, _>(sqlx::query_as(sql(done)).fetch_all(&mut $store).await?),
            attempts: all::<AttemptRow, _>(sqlx::query_as(sql(attempts)).fetch_all(&mut $store).await?),
            edges: all::<(Uuid, i32, i32), _>(sqlx::query_as(sql(edges)).fetch_all(&mut $store).await?),
            effects: all::<(String, i64, i32), _>(sqlx::query_as(sql(effects)).fetch_all(&mut $effects).await?),
            applications: sqlx::query_as(sql(applications)).fetch_all(&mut $effects).await?,
            refusals: sqlx::query_scalar(sql(format!("select count(*) from {resource}refusals")))
                .fetch_one(&mut $effects)
                .await?,
            violations: sqlx::query_scalar(sql(format!("select what from {resource}violations")))
                .fetch_all(&mut $effects)
                .await?,
            now: sqlx::query_scalar(sql($now.to_owned())).fetch_one(&mut $store).await?,
        }
    }};
}

impl Records {
    pub(crate) async fn read(store: &str, effects: &str) -> Result<Self, sqlx::Error> {
        if store.starts_with("postgres") {
            let (mut steps, mut resource) =
                (PgConnection::connect(store).await?, PgConnection::connect(effects).await?);
            // A reader in another time zone must read the same times.
            sqlx::query("set time zone 'Pacific/Auckland'").execute(&mut steps).await?;
            let now = "select holdoff.micros(clock_timestamp())";
            return Ok(read_all!(
                steps,
                resource,
                "holdoff.",
                "chaos.",
                "holdoff.micros({})",
                now,
                "ended_at"
            ));
        }
        let (mut steps, mut resource) = (open(store).await?, open(effects).await?);
        let now = "select high from holdoff_clock";
        Ok(read_all!(steps, resource, "holdoff_", "", "{}", now, "id"))
    }

    /// Describes some of the unfinished steps.
    pub(crate) async fn live(store: &str) -> Result<Vec<String>, sqlx::Error> {
        let words =
            "'state ' || state || ', lease ' || lease || ', waiting ' || waiting || ', parents ' || parents
            || ', due ' || due_at || ', ' || coalesce(message, '')";
        if store.starts_with("postgres") {
            let mut connection = PgConnection::connect(store).await?;
            let query = format!("select task || '/' || step || ': ' || {words} from holdoff.steps limit 20");
            return sqlx::query_scalar(AssertSqlSafe(query)).fetch_all(&mut connection).await;
        }
        let query = format!("select hex(task) || '/' || step || ': ' || {words} from holdoff_steps limit 20");
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_all(&mut open(store).await?).await
    }

    /// Returns the number of finished steps, as far as the store can be read.
    pub(crate) async fn count_done(store: &str) -> Result<u64, sqlx::Error> {
        let count: i64 = if store.starts_with("postgres") {
            let mut connection = PgConnection::connect(store).await?;
            sqlx::query_scalar("select count(*) from holdoff.done").fetch_one(&mut connection).await?
        } else {
            let mut connection = open(store).await?;
            sqlx::query_scalar("select count(*) from holdoff_done").fetch_one(&mut connection).await?
        };
        Ok(u64::try_from(count).unwrap_or(0))
    }
}

async fn open(url: &str) -> Result<SqliteConnection, sqlx::Error> {
    let options =
        sqlx::sqlite::SqliteConnectOptions::from_str(url)?.busy_timeout(std::time::Duration::from_secs(20));
    SqliteConnection::connect_with(&options).await
}
