//! Connections to the server itself, or to a pooler in transaction mode.
//!
//! A pooler in transaction mode, such as `PgBouncer` with `pool_mode = transaction`, gives its client a connection of the
//! server for one transaction at a time. So nothing may outlast a transaction: no settings of a session, no named
//! statements, no LISTEN, no lock of a session. Through such a pooler every statement runs in a transaction, which begins
//! with the settings, and has no name. A statement without a name outside a transaction would not do: its text and its
//! arguments travel apart, and could reach two connections of the server.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{
    PgArguments, PgConnectOptions, PgPoolOptions, PgQueryResult, PgRow, PgStatement, PgTypeInfo,
};
use sqlx::{AssertSqlSafe, Either, Execute, Executor, PgConnection, PgPool, Postgres, SqlStr};

use super::migrate;
use crate::{Component, Error};

/// The longest time that a call waits for a connection.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time that an idle connection may take to answer.
pub(super) const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// The parameter of a store's URL that names the mode of the pooler, with `PgBouncer`'s word and values.
const POOL_MODE: &str = "pool_mode=";

/// The options of a component's connections.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// The settings of every connection, each as in `set …`.
    pub settings: &'static [&'static str],
    /// The smallest number of open connections.
    pub min: u32,
    /// The largest number of open connections.
    pub max: u32,
}

impl PoolOptions {
    /// Opens the database at this URL. With `pool_mode=transaction` among its parameters, the connections are those of a
    /// pooler in transaction mode.
    pub async fn open(self, url: &str) -> Result<Pool, Error> {
        let (options, is_pooled) = connect_options(url)?;
        let options = options.application_name("holdoff");
        let set =
            |word: &str| self.settings.iter().fold(String::new(), |all, setting| all + "; " + word + setting);
        let session: Arc<str> = if is_pooled { "".into() } else { set("set ").into() };
        let pool = PgPoolOptions::new()
            .max_connections(self.max)
            .min_connections(self.min)
            .acquire_timeout(CONNECT_TIMEOUT)
            .test_before_acquire(false)
            .before_acquire(|connection, _| Box::pin(check(connection)))
            .after_release(|connection, _| Box::pin(check(connection)))
            .after_connect(move |connection, _| {
                let session = AssertSqlSafe(session.to_string());
                Box::pin(async move { connection.execute(session).await.map(drop) })
            })
            .connect_with(options)
            .await?;
        Ok(Pool { pool, local: is_pooled.then(|| set("set local ").into()) })
    }
}

/// Returns the options of a URL, and whether it names a pooler in transaction mode.
pub(super) fn connect_options(url: &str) -> Result<(PgConnectOptions, bool), Error> {
    let (address, parameters) = url.split_once('?').unwrap_or((url, ""));
    let (modes, others): (Vec<&str>, Vec<&str>) =
        parameters.split('&').partition(|parameter| parameter.starts_with(POOL_MODE));
    let is_pooled = match modes.last().map(|mode| mode.trim_start_matches(POOL_MODE)) {
        None | Some("session") => false,
        Some("transaction") => true,
        Some(other) => {
            let why = format!("pool_mode is `{other}`, expected `session` or `transaction`");
            return Err(Error::invalid_url(url, sqlx::Error::Configuration(why.into())));
        }
    };
    let rest = format!("{address}?{}", others.join("&"));
    let options: PgConnectOptions = rest.parse().map_err(|why| Error::invalid_url(url, why))?;
    // PgBouncer refuses this parameter. It affects the text of numbers only, and results are binary.
    Ok((if is_pooled { options.extra_float_digits(None) } else { options }, is_pooled))
}

/// Returns an error if a connection does not answer soon; the pool then closes it. A call that was dropped because its
/// time was over leaves such a connection, and so does a network that drops packets: the pool would wait for an answer
/// for as long as the network retransmits.
async fn check(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let answer = tokio::time::timeout(CHECK_TIMEOUT, sqlx::Connection::ping(connection)).await;
    answer.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map(|()| true)
}

/// The connections of a component. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pool {
    pool: PgPool,
    /// The settings of every transaction, if there is a pooler in transaction mode.
    local: Option<Arc<str>>,
}

impl Pool {
    /// Returns whether the connections are those of a pooler in transaction mode.
    pub const fn is_pooled(&self) -> bool {
        self.local.is_some()
    }

    /// Begins a transaction. Dropping it rolls it back.
    pub async fn begin(&self) -> Result<Transaction, sqlx::Error> {
        self.begin_with("begin").await
    }

    /// Begins a transaction with this statement.
    pub async fn begin_with(&self, statement: &str) -> Result<Transaction, sqlx::Error> {
        let statement = format!("{statement}{}", self.local.as_deref().unwrap_or_default());
        let transaction = self.pool.begin_with(AssertSqlSafe(statement)).await?;
        Ok(Transaction(Session { link: Link::Transaction(transaction), is_named: !self.is_pooled() }))
    }

    /// Returns a connection for statements that may commit one by one. Through a pooler they are one transaction.
    pub async fn acquire(&self) -> Result<Transaction, sqlx::Error> {
        if self.is_pooled() {
            return self.begin().await;
        }
        Ok(Transaction(Session { link: Link::Single(self.pool.acquire().await?), is_named: true }))
    }

    /// Migrates a component's tables to the newest schema. Any number of processes may call it concurrently.
    pub async fn migrate(&self, component: &Component) -> Result<(), Error> {
        migrate(&mut *self.pool.acquire().await?, component).await
    }

    /// Returns how to open a connection that is not one of the pool's.
    pub(super) fn options(&self) -> PgConnectOptions {
        (*self.pool.connect_options()).clone()
    }
}

/// A transaction. Dropping it rolls it back.
#[derive(Debug)]
pub struct Transaction(Session<'static>);

impl Transaction {
    /// Commits it. Statements that may commit one by one may have done so already.
    pub async fn commit(self) -> Result<(), sqlx::Error> {
        match self.0.link {
            Link::Transaction(transaction) => transaction.commit().await,
            Link::Single(_) | Link::Callers(_) => Ok(()),
        }
    }

    /// Checks that the server still answers.
    pub async fn ping(&mut self) -> Result<(), sqlx::Error> {
        sqlx::Connection::ping(self.connection()).await
    }
}

impl Deref for Transaction {
    type Target = Session<'static>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// A connection during a transaction: the pool's, or that of a caller who commits.
#[derive(Debug)]
pub struct Session<'c> {
    link: Link<'c>,
    /// Whether its statements have names, so that the server parses and plans each only once.
    is_named: bool,
}

#[derive(Debug)]
enum Link<'c> {
    Transaction(sqlx::Transaction<'static, Postgres>),
    Single(PoolConnection<Postgres>),
    Callers(&'c mut PgConnection),
}

impl<'c> Session<'c> {
    /// Returns the session of a caller's transaction. Its statements have no names, because the caller's connection may
    /// be a pooler's.
    pub const fn of(connection: &'c mut PgConnection) -> Self {
        Self { link: Link::Callers(connection), is_named: false }
    }

    fn connection(&mut self) -> &mut PgConnection {
        match &mut self.link {
            Link::Transaction(transaction) => transaction,
            Link::Single(connection) => connection,
            Link::Callers(connection) => connection,
        }
    }
}

type Step = Either<PgQueryResult, PgRow>;

impl<'s> Executor<'s> for &'s mut Session<'_> {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Step, sqlx::Error>>
    where
        's: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let query = Query { query, is_named: self.is_named };
        self.connection().fetch_many(query)
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        's: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let query = Query { query, is_named: self.is_named };
        self.connection().fetch_optional(query)
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        's: 'e,
    {
        self.connection().prepare_with(sql, parameters)
    }
}

/// Each statement is a transaction.
impl<'p> Executor<'p> for &'p Pool {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Step, sqlx::Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        if !self.is_pooled() {
            return (&self.pool).fetch_many(query);
        }
        let steps = async move {
            let mut session = self.begin().await?;
            let steps: Vec<Step> = session.fetch_many(query).try_collect().await?;
            session.commit().await?;
            Ok::<_, sqlx::Error>(stream::iter(steps.into_iter().map(Ok)))
        };
        stream::once(steps).try_flatten().boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        if !self.is_pooled() {
            return (&self.pool).fetch_optional(query);
        }
        let found = async move {
            let mut session = self.begin().await?;
            let found = session.fetch_optional(query).await?;
            session.commit().await?;
            Ok(found)
        };
        found.boxed()
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        'p: 'e,
    {
        (&self.pool).prepare_with(sql, parameters)
    }
}

/// A query whose statement may have no name.
struct Query<E> {
    query: E,
    is_named: bool,
}

impl<'q, E: Execute<'q, Postgres>> Execute<'q, Postgres> for Query<E> {
    fn sql(self) -> SqlStr {
        self.query.sql()
    }

    fn statement(&self) -> Option<&PgStatement> {
        self.query.statement()
    }

    fn take_arguments(&mut self) -> Result<Option<PgArguments>, sqlx::error::BoxDynError> {
        self.query.take_arguments()
    }

    fn persistent(&self) -> bool {
        self.is_named && self.query.persistent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_of_the_pooler_is_a_parameter_of_the_url() {
        let is_pooled =
            |url: &str| connect_options(url).map(|(_, is_pooled)| is_pooled).map_err(|why| why.to_string());
        assert_eq!(is_pooled("postgres://me@db/x"), Ok(false));
        assert_eq!(is_pooled("postgres://me@db/x?sslmode=require&pool_mode=session"), Ok(false));
        assert_eq!(is_pooled("postgres://me@db/x?pool_mode=transaction&sslmode=require"), Ok(true));
        let refused = is_pooled("postgres://me:secret@db/x?pool_mode=statement").unwrap_err();
        assert!(refused.starts_with("invalid store URL `postgres://me@db/x`: "), "{refused}");
        assert!(
            refused.contains("pool_mode is `statement`, expected `session` or `transaction`"),
            "{refused}"
        );
    }
}
