//! Tests of the engines that record waiters, on real files, a real server and a ledger's table, through two independent
//! clients, as two processes would be.

mod contention;
mod crash;
mod sequential;

use std::sync::Arc;
use std::time::Duration;

use holdoff_testbed::Postgres as Server;
use uuid::Uuid;

use crate::engine::ledger::tests::shared_table::SharedTable;
use crate::engine::{postgres, sqlite};
use crate::store::{AcquireOutcome, AcquireRefusal, AcquireRequest, LeaseStore};
use crate::{LockKey, Nonce, Owner, Token};

const LEASE: Duration = Duration::from_secs(30);

/// An empty store of a test.
#[derive(Debug)]
struct TestStore {
    url: String,
    _folder: tempfile::TempDir,
    table: Option<SharedTable>,
}

impl TestStore {
    fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("locks.db").display());
        Self { url, _folder: folder, table: None }
    }

    async fn postgres() -> Self {
        let url = tokio::task::spawn_blocking(|| Server::shared().create_database("locks")).await.unwrap();
        Self { url, _folder: tempfile::tempdir().unwrap(), table: None }
    }

    fn ledger() -> Self {
        let (url, folder) = ("a table in memory".to_owned(), tempfile::tempdir().unwrap());
        Self { url, _folder: folder, table: Some(SharedTable::default()) }
    }

    fn is_postgres(&self) -> bool {
        self.url.starts_with("postgres")
    }

    async fn open(&self) -> Arc<dyn LeaseStore> {
        if let Some(table) = &self.table {
            Arc::new(table.open())
        } else if self.is_postgres() {
            Arc::new(postgres::PostgresStore::open(&self.url).await.unwrap())
        } else {
            Arc::new(sqlite::SqliteStore::open(&self.url).await.unwrap())
        }
    }
}

/// Runs each test on all stores.
macro_rules! on_all {
    ($($test:ident),* $(,)?) => {
        crate::engine::tests::on_sql!($($test),*);
        mod on_a_ledger {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::engine::tests::TestStore::ledger()).await;
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
                super::$test(crate::engine::tests::TestStore::sqlite()).await;
            })*
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::engine::tests::TestStore::postgres().await).await;
            })*
        }
    };
}
pub(crate) use {on_all, on_sql};

fn key(name: &str) -> LockKey {
    LockKey::new("default", name).unwrap()
}

fn nonce(number: u128) -> Nonce {
    Nonce::new(Uuid::from_u128(number))
}

/// Returns a request that does not wait.
fn request(key: &LockKey, number: u128) -> AcquireRequest {
    let owner = Owner { nonce: nonce(number), name: format!("owner {number}") };
    AcquireRequest { key: key.clone(), owner, lease: LEASE, waits_for: None }
}

/// Returns a request that waits for a while.
fn waiting(key: &LockKey, number: u128) -> AcquireRequest {
    AcquireRequest { waits_for: Some(LEASE), ..request(key, number) }
}

fn with_lease(lease: Duration, request: AcquireRequest) -> AcquireRequest {
    AcquireRequest { lease, ..request }
}

async fn granted(store: &dyn LeaseStore, request: &AcquireRequest) -> Token {
    match store.try_acquire(request).await.unwrap() {
        AcquireOutcome::Granted(token) => token,
        AcquireOutcome::Refused(held) => panic!("not granted: {held:?}"),
    }
}

async fn refused(store: &dyn LeaseStore, request: &AcquireRequest) -> AcquireRefusal {
    match store.try_acquire(request).await.unwrap() {
        AcquireOutcome::Granted(token) => panic!("granted with {token}"),
        AcquireOutcome::Refused(held) => held,
    }
}

/// Asks until the lock is granted: time passes in the store.
async fn granted_at_last(store: &dyn LeaseStore, request: &AcquireRequest) -> Token {
    loop {
        match store.try_acquire(request).await.unwrap() {
            AcquireOutcome::Granted(token) => return token,
            AcquireOutcome::Refused(held) => tokio::time::sleep(held.free_in).await,
        }
    }
}
