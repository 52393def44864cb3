//! The protected resource: a file that checks tokens and records every accepted write.

use std::str::FromStr;
use std::time::Duration;

use holdoff_lock::{FenceError, Key, Token, sqlite};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

pub(crate) struct Resource {
    pool: SqlitePool,
}

/// The outcome of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Write {
    Done,
    Stale,
}

impl Resource {
    /// Opens the file. It must survive its processes, not the machine.
    pub(crate) async fn open(url: &str) -> Self {
        let options = SqliteConnectOptions::from_str(url)
            .unwrap()
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Off)
            .busy_timeout(Duration::from_secs(20));
        // If several processes switch a new file to a write-ahead log at once, SQLite fails all but one, without
        // waiting.
        let pool = loop {
            let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options.clone()).await;
            match pool {
                Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("5") => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                pool => break pool.unwrap(),
            }
        };
        sqlite::prepare(&pool).await.unwrap();
        let create = "create table if not exists events (
            id integer primary key, token integer not null, what text not null) strict";
        sqlx::query(create).execute(&pool).await.unwrap();
        Self { pool }
    }

    pub(crate) async fn write(&self, key: &Key, token: Token, what: &str) -> Write {
        let mut tx = self.pool.begin_with("begin immediate").await.unwrap();
        match sqlite::fence(&mut tx, key, token).await {
            Ok(()) => {}
            Err(FenceError::Stale(_)) => return Write::Stale,
            Err(error) => panic!("{error}"),
        }
        let insert = "insert into events (token, what) values (?1, ?2)";
        let token = i64::try_from(token.get()).unwrap();
        sqlx::query(insert).bind(token).bind(what).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        Write::Done
    }

    /// Returns the number of turns that have begun.
    pub(crate) async fn turns(&self) -> usize {
        let count = "select count(*) from events where what = 'enter'";
        let turns: i64 = sqlx::query_scalar(count).fetch_one(&self.pool).await.unwrap();
        usize::try_from(turns).unwrap()
    }

    /// Returns all accepted writes, in order.
    pub(crate) async fn events(&self) -> Vec<(u64, String)> {
        let events: Vec<(i64, String)> =
            sqlx::query_as("select token, what from events order by id").fetch_all(&self.pool).await.unwrap();
        events.into_iter().map(|(token, what)| (u64::try_from(token).unwrap(), what)).collect()
    }
}

/// Checks that each holder left before the next one entered, and that the next one had a higher token. Returns the
/// number of turns.
pub(crate) fn one_at_a_time(events: &[(u64, String)]) -> usize {
    let mut last = 0;
    for pair in events.chunks(2) {
        let [(entered, enter), (left, leave)] = pair else { panic!("somebody did not leave: {pair:?}") };
        assert_eq!((enter.as_str(), leave.as_str()), ("enter", "leave"), "two at once: {pair:?}");
        assert_eq!(entered, left, "two at once");
        assert!(*entered > last, "token {entered} after {last}");
        last = *entered;
    }
    events.len() / 2
}
