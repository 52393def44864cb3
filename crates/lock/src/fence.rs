//! Fencing at the resource: rejects the writes of a holder that does not know that its lease has expired.
//!
//! A lock alone cannot stop a process that was paused and resumes after its lease. The resource can: it stores the
//! highest token it has seen and rejects lower tokens. A row of the caller's own table needs nothing from this module,
//! only a column for the token and a condition:
//!
//! ```sql
//! update accounts set balance = $1, token = $2 where id = $3 and token <= $2
//! ```
//!
//! If no row was changed, the token is stale: stop, and write nothing else. If there is no such row (the caller writes
//! files, or changes several tables), use a fence, which is such a row in the database that the caller writes to. Call
//! `fence` in the same transaction, before the writes.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use holdoff_policy::{Class, ClassMap, Classify, Failure};
use parking_lot::Mutex;

use crate::Token;

/// The resource has seen a higher token, so the lock of the rejected token is lost. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "token {token} is stale, because the resource has seen token {highest}: the lock is lost, and nothing was changed"
)]
pub struct StaleToken {
    /// The rejected token.
    pub token: Token,
    /// The highest token seen.
    pub highest: Token,
}

/// An error of a fence.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// The fence has seen a higher token. Roll back, and stop the work that the lock protects.
    #[error("{0}; roll back the transaction")]
    Stale(#[from] StaleToken),
    /// The database could not be reached, or it rejected the statement. Roll back. The fence has accepted no token.
    #[error("the database of the fence failed ({}): {source}", if *.transient { "transient: retry" } else { "permanent: a retry will not help" })]
    Store {
        /// Whether a later call may succeed.
        transient: bool,
        /// The database's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl Classify for FenceError {
    fn classify(&self, _: &ClassMap) -> Failure {
        match self {
            Self::Stale(_) => Failure::new(Class::Superseded).not_repeatable(),
            Self::Store { transient: true, .. } => Failure::transient(),
            Self::Store { .. } => Failure::permanent(),
        }
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl From<sqlx::Error> for FenceError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store { transient: holdoff_sql::is_transient(&error), source: Box::new(error) }
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl From<holdoff_sql::Error> for FenceError {
    fn from(error: holdoff_sql::Error) -> Self {
        match error {
            holdoff_sql::Error::Sql(error) => error.into(),
            other => Self::Store { transient: false, source: Box::new(other) },
        }
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
/// Converts a token to a column value. Tokens do not use the sign bit.
fn number(token: Token) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn check_token(token: Token, highest: i64) -> Result<(), FenceError> {
    let highest = Token::new(u64::try_from(highest).unwrap_or_default());
    if highest > token { Err(StaleToken { token, highest }.into()) } else { Ok(()) }
}

/// A value in memory that rejects updates with a lower token than the highest it has seen.
///
/// Every protected resource has to do the same: store the highest token, and reject lower tokens.
///
/// ```
/// use holdoff_lock::{FencedCell, Token};
///
/// let balance = FencedCell::new(10);
/// let (paused, successor) = (Token::new(1), Token::new(2));
/// assert_eq!(balance.update(successor, |value| *value += 1), Ok(()));
/// assert!(balance.update(paused, |value| *value = 0).is_err(), "its lease has expired");
/// assert_eq!(balance.read(|value| *value), 11);
/// ```
#[derive(Debug)]
pub struct FencedCell<T> {
    inside: Mutex<(Token, T)>,
}

impl<T> FencedCell<T> {
    /// Returns a cell that has seen no token.
    pub const fn new(value: T) -> Self {
        Self { inside: Mutex::new((Token::new(0), value)) }
    }

    /// Changes the value, unless the cell has seen a higher token.
    pub fn update<R>(&self, token: Token, change: impl FnOnce(&mut T) -> R) -> Result<R, StaleToken> {
        let mut inside = self.inside.lock();
        let (highest, value) = &mut *inside;
        if token < *highest {
            return Err(StaleToken { token, highest: *highest });
        }
        *highest = token;
        Ok(change(value))
    }

    /// Reads the value. A read needs no lock and no token.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.inside.lock().1)
    }

    /// Returns the highest token seen.
    pub fn highest_token(&self) -> Token {
        self.inside.lock().0
    }
}

#[cfg(feature = "postgres")]
pub mod postgres {
    //! A fence in the caller's own Postgres database.
    //!
    //! ```no_run
    //! use holdoff_lock::{LockKey, Token, postgres};
    //!
    //! # async fn pay(pool: &sqlx::PgPool, key: &LockKey, token: Token) -> Result<(), Box<dyn std::error::Error>> {
    //! postgres::prepare(&mut *pool.acquire().await?).await?; // once, when the program starts
    //!
    //! let mut tx = pool.begin().await?;
    //! postgres::fence(&mut *tx, key, token).await?;
    //! sqlx::query("insert into payments (id) values (7)").execute(&mut *tx).await?;
    //! tx.commit().await?;
    //! # Ok(()) }
    //! ```

    use holdoff_sql::{Component, Migration, SchemaChange};
    use sqlx::PgConnection;

    use super::{FenceError, check_token, number};
    use crate::{LockKey, Token};

    const COMPONENT: Component = Component {
        table: "holdoff.fence_migrations",
        migrations: &[Migration {
            version: 1,
            breaks_before: 1,
            change: SchemaChange::Statements(
                "create table holdoff.fences (
                digest bytea primary key,
                token bigint not null,
                passed_at timestamptz not null
            ) with (fillfactor = 50)",
            ),
        }],
    };

    /// Creates the table of the fences if it does not exist. Any number of processes may call it at the same time.
    pub async fn prepare(connection: &mut PgConnection) -> Result<(), FenceError> {
        Ok(holdoff_sql::postgres::migrate(connection, &COMPONENT).await?)
    }

    /// Accepts a token that is at least as high as the highest token so far, and rejects a lower one. The row stays locked
    /// until the transaction ends, so no higher token can be accepted between this call and the commit.
    pub async fn fence(connection: &mut PgConnection, key: &LockKey, token: Token) -> Result<(), FenceError> {
        let query =
            "insert into holdoff.fences as f (digest, token, passed_at) values ($1, $2, clock_timestamp())
            on conflict (digest) do update set token = greatest(f.token, excluded.token),
                passed_at = case when f.token <= excluded.token then excluded.passed_at else f.passed_at end
            returning token";
        // The caller's connection may be a pooler's, so the statement has no name.
        let highest: i64 = sqlx::query_scalar(query)
            .persistent(false)
            .bind(key.digest().as_slice())
            .bind(number(token))
            .fetch_one(connection)
            .await?;
        check_token(token, highest)
    }
}

#[cfg(feature = "sqlite")]
pub mod sqlite {
    //! A fence in the caller's own SQLite file.
    //!
    //! Begin the transaction with `begin immediate`. A transaction that reads first fails with a locked database at its
    //! first write.
    //!
    //! ```no_run
    //! use holdoff_lock::{LockKey, Token, sqlite};
    //!
    //! # async fn pay(pool: &sqlx::SqlitePool, key: &LockKey, token: Token) -> Result<(), Box<dyn std::error::Error>> {
    //! sqlite::prepare(pool).await?; // once, when the program starts
    //!
    //! let mut tx = pool.begin_with("begin immediate").await?;
    //! sqlite::fence(&mut *tx, key, token).await?;
    //! sqlx::query("insert into payments (id) values (7)").execute(&mut *tx).await?;
    //! tx.commit().await?;
    //! # Ok(()) }
    //! ```

    use holdoff_sql::{Component, Migration, SchemaChange};
    use sqlx::{SqliteConnection, SqlitePool};

    use super::{FenceError, check_token, number};
    use crate::{LockKey, Token};

    const COMPONENT: Component = Component {
        table: "holdoff_fence_migrations",
        migrations: &[Migration {
            version: 1,
            breaks_before: 1,
            change: SchemaChange::Statements(
                "create table holdoff_fences (digest blob primary key, token integer not null) strict, without rowid",
            ),
        }],
    };

    /// Creates the table of the fences if it does not exist. Any number of processes may call it at the same time.
    pub async fn prepare(pool: &SqlitePool) -> Result<(), FenceError> {
        Ok(holdoff_sql::sqlite::migrate(pool.begin_with("begin immediate").await?, &COMPONENT).await?)
    }

    /// Accepts a token that is at least as high as the highest token so far, and rejects a lower one. The transaction
    /// excludes all other writers until it ends, so no higher token can be accepted between this call and the commit.
    pub async fn fence(
        connection: &mut SqliteConnection,
        key: &LockKey,
        token: Token,
    ) -> Result<(), FenceError> {
        let query = "insert into holdoff_fences (digest, token) values (?1, ?2)
            on conflict (digest) do update set token = max(token, excluded.token) returning token";
        let highest: i64 = sqlx::query_scalar(query)
            .bind(key.digest().as_slice())
            .bind(number(token))
            .fetch_one(connection)
            .await?;
        check_token(token, highest)
    }
}

#[cfg(test)]
mod cell_tests {
    use super::*;

    #[test]
    fn a_cell_rejects_a_stale_token() {
        let cell = FencedCell::new(String::new());
        assert!(cell.update(Token::new(5), |text| text.push('a')).is_ok());
        assert!(cell.update(Token::new(5), |text| text.push('b')).is_ok(), "one holder may write repeatedly");
        let stale = cell.update(Token::new(4), String::clear).unwrap_err();
        assert_eq!(stale, StaleToken { token: Token::new(4), highest: Token::new(5) });
        assert_eq!((cell.read(String::clone), cell.highest_token()), ("ab".to_owned(), Token::new(5)));
    }
}

#[cfg(all(feature = "postgres", feature = "sqlite"))]
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdoff_testbed::Postgres as Server;
    use sqlx::{PgPool, SqlitePool};

    use super::*;
    use crate::LockKey;

    fn is_stale(passed: &Result<(), FenceError>, highest: u64) -> bool {
        matches!(passed, Err(FenceError::Stale(stale)) if stale.highest.get() == highest)
    }

    #[tokio::test]
    async fn a_fence_in_a_file_rejects_a_stale_token() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}?mode=rwc", folder.path().join("own.db").display());
        let pool = SqlitePool::connect(&url).await.unwrap();
        for _ in 0..2 {
            sqlite::prepare(&pool).await.unwrap();
        }
        let [one, other] = ["a", "b"].map(|name| LockKey::new("default", name).unwrap());
        let pass = async |key: &LockKey, token| {
            let mut tx = pool.begin_with("begin immediate").await.unwrap();
            sqlite::fence(&mut tx, key, Token::new(token)).await?;
            tx.commit().await.unwrap();
            Ok(())
        };
        pass(&one, 5).await.unwrap();
        pass(&one, 5).await.unwrap();
        assert!(is_stale(&pass(&one, 4).await, 5));
        pass(&other, 1).await.unwrap();
        pass(&one, 6).await.unwrap();
        assert!(is_stale(&pass(&one, 5).await, 6));
        let mut given_up = pool.begin_with("begin immediate").await.unwrap();
        sqlite::fence(&mut given_up, &one, Token::new(9)).await.unwrap();
        given_up.rollback().await.unwrap();
        pass(&one, 7).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_fence_in_postgres_blocks_other_tokens_until_the_commit() {
        let url = tokio::task::spawn_blocking(|| Server::shared().create_database("own")).await.unwrap();
        let pool = PgPool::connect(&url).await.unwrap();
        let prepare = async || postgres::prepare(&mut pool.acquire().await.unwrap()).await.unwrap();
        tokio::join!(prepare(), prepare());
        let key = LockKey::new("default", "a").unwrap();
        let pass = |token: u64| {
            let (pool, key) = (pool.clone(), key.clone());
            tokio::spawn(async move {
                let mut tx = pool.begin().await.unwrap();
                postgres::fence(&mut tx, &key, Token::new(token)).await?;
                tx.commit().await.unwrap();
                Ok(())
            })
        };
        pass(5).await.unwrap().unwrap();
        assert!(is_stale(&pass(4).await.unwrap(), 5));

        let mut tx = pool.begin().await.unwrap();
        postgres::fence(&mut tx, &key, Token::new(6)).await.unwrap();
        let (lower, higher) = (pass(5), pass(7));
        let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
        while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&pool).await.unwrap() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(!lower.is_finished() && !higher.is_finished());
        tx.commit().await.unwrap();
        assert!(lower.await.unwrap().is_err());
        higher.await.unwrap().unwrap();
        assert!(is_stale(&pass(6).await.unwrap(), 7));
    }
}
