//! The stores of the tests.

use std::sync::Arc;
use std::time::Duration;

use holdoff_testbed::Postgres as Server;
use uuid::Uuid;

use crate::engine::ledger::tests::world::World;
use crate::engine::{postgres, sqlite};
use crate::store::{Answer, Bid, Held, LeaseStore};
use crate::{Key, Nonce, Owner, Token};

pub(super) const LEASE: Duration = Duration::from_secs(30);

/// An empty store of a test.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) url: String,
    pub(super) folder: tempfile::TempDir,
    table: Option<World>,
}

impl Place {
    pub(super) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("locks.db").display());
        Self { url, folder, table: None }
    }

    pub(super) async fn postgres() -> Self {
        let url = tokio::task::spawn_blocking(|| Server::shared().create_database("locks")).await.unwrap();
        Self { url, folder: tempfile::tempdir().unwrap(), table: None }
    }

    pub(super) fn ledger() -> Self {
        let (url, folder) = ("a table in memory".to_owned(), tempfile::tempdir().unwrap());
        Self { url, folder, table: Some(World::default()) }
    }

    pub(super) fn is_postgres(&self) -> bool {
        self.url.starts_with("postgres")
    }

    pub(super) async fn open(&self) -> Arc<dyn LeaseStore> {
        if let Some(table) = &self.table {
            Arc::new(table.open())
        } else if self.is_postgres() {
            Arc::new(postgres::Postgres::open(&self.url).await.unwrap())
        } else {
            Arc::new(sqlite::Sqlite::open(&self.url).await.unwrap())
        }
    }
}

/// Runs each test on all stores.
macro_rules! on_all {
    ($($test:ident),* $(,)?) => {
        crate::engine::tests::place::on_sql!($($test),*);
        mod on_a_ledger {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::engine::tests::place::Place::ledger()).await;
            })*
        }
    };
}

/// Runs each test on the SQL stores.
macro_rules! on_sql {
    ($($test:ident),* $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::engine::tests::place::Place::sqlite()).await;
            })*
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::engine::tests::place::Place::postgres().await).await;
            })*
        }
    };
}
pub(super) use {on_all, on_sql};

pub(super) fn key(name: &str) -> Key {
    Key::new("default", name).unwrap()
}

pub(super) fn nonce(number: u128) -> Nonce {
    Nonce::new(Uuid::from_u128(number))
}

/// Returns a bid that does not wait.
pub(super) fn bid(key: &Key, number: u128) -> Bid {
    let owner = Owner { nonce: nonce(number), name: format!("owner {number}") };
    Bid { key: key.clone(), owner, lease: LEASE, waits: None }
}

/// Returns a bid that waits for a while.
pub(super) fn waiting(key: &Key, number: u128) -> Bid {
    Bid { waits: Some(LEASE), ..bid(key, number) }
}

pub(super) fn with_lease(lease: Duration, bid: Bid) -> Bid {
    Bid { lease, ..bid }
}

pub(super) async fn granted(store: &dyn LeaseStore, bid: &Bid) -> Token {
    match store.try_acquire(bid).await.unwrap() {
        Answer::Granted(token) => token,
        Answer::Held(held) => panic!("not granted: {held:?}"),
    }
}

pub(super) async fn held(store: &dyn LeaseStore, bid: &Bid) -> Held {
    match store.try_acquire(bid).await.unwrap() {
        Answer::Granted(token) => panic!("granted with {token}"),
        Answer::Held(held) => held,
    }
}

/// Asks until the lock is granted: time passes in the store.
pub(super) async fn granted_at_last(store: &dyn LeaseStore, bid: &Bid) -> Token {
    loop {
        match store.try_acquire(bid).await.unwrap() {
            Answer::Granted(token) => return token,
            Answer::Held(held) => tokio::time::sleep(held.free_in).await,
        }
    }
}
