//! Tokens only grow: over every kind of release, and over a restore from a backup after which the fencing epoch is raised.

use std::process::Command;
use std::time::Duration;

use holdoff_lock::{Error, Locks, Token};
use holdoff_testbed::Postgres;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::DeleteParams;
use sqlx::Connection as _;

use crate::conformance::test_store::{SECOND, TestStore, acquire, in_time, inspect, on_every_store, pass};

/// Lets a holder vanish with its runtime, without a release.
fn vanish(test_store: &TestStore) -> Token {
    let holding = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let guard = runtime.block_on(async {
            let locks = test_store.node().await;
            locks.acquire("ledger").lease(Duration::from_millis(500)).await.unwrap()
        });
        runtime.shutdown_background();
        guard.token()
    };
    tokio::task::block_in_place(|| std::thread::scope(|scope| scope.spawn(holding).join().unwrap()))
}

async fn tokens_grow_over_every_kind_of_release(test_store: TestStore) {
    let locks = test_store.node().await;
    let mut tokens = vec![pass(&locks, "ledger").await, pass(&locks, "ledger").await];

    drop(acquire(&locks, "ledger").await);
    tokens.push(pass(&locks, "ledger").await);

    let taken = acquire(&locks, "ledger").await;
    assert!(locks.force_release("ledger").await.unwrap().is_some());
    tokens.extend([taken.token(), inspect(&locks, "ledger").await.token]);
    drop(taken);

    tokens.push(pass(&locks, "ledger").await);
    tokens.push(vanish(&test_store));
    tokens.push(pass(&locks, "ledger").await);

    assert!(locks.prune(Duration::ZERO, 10_000).await.unwrap() > 0);
    assert_eq!(locks.inspect("ledger").await.unwrap(), None, "the lock is pruned");
    tokens.push(pass(&locks, "ledger").await);

    let epoch = locks.bump_epoch().await.unwrap();
    tokens.push(pass(&locks, "ledger").await);
    assert_eq!(tokens.last().unwrap().epoch(), epoch);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

/// The holder keeps its lock, with the lower token.
async fn a_new_epoch_does_not_release_held_locks(test_store: TestStore) {
    let (locks, other) = (test_store.node().await, test_store.node().await);
    let guard = acquire(&locks, "ledger").await;
    other.bump_epoch().await.unwrap();
    assert_eq!(inspect(&other, "ledger").await.holder.map(|holder| holder.token), Some(guard.token()));
    let token = guard.token();
    guard.release().await.unwrap();
    assert!(pass(&other, "ledger").await.epoch() > token.epoch());
}

/// Promised on Kubernetes, where any client may delete a Lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_after_a_lease_object_was_deleted() {
    let test_store = TestStore::stand_in().await;
    let (locks, other) = (test_store.node().await, test_store.node().await);
    let leases: Api<Lease> = Api::namespaced(test_store.stand_in.as_ref().unwrap().client(), "default");
    let delete = async || {
        let name = format!("holdoff-{}", inspect(&locks, "ledger").await.digest);
        leases.delete(&name, &DeleteParams::default()).await.unwrap();
    };
    let first = pass(&locks, "ledger").await;
    delete().await;
    let guard = acquire(&locks, "ledger").await;
    assert!(guard.token() > first);
    delete().await;
    let next = acquire(&other, "ledger").await;
    assert!(next.token() > guard.token());
    assert!(guard.release().await.is_err(), "another client holds the lock");
    assert_eq!(inspect(&other, "ledger").await.holder.map(|holder| holder.token), Some(next.token()));
}

/// Makes grants that the backup does not contain.
async fn grant_after_the_backup(locks: &Locks) -> Token {
    let mut last = Token::new(0);
    for _ in 0..5 {
        last = pass(locks, "ledger").await;
    }
    last
}

async fn assert_tokens_grow(restored: &Locks, last: Token) {
    restored.bump_epoch().await.unwrap();
    assert!(pass(restored, "ledger").await > last);
    assert!(pass(restored, "never seen before").await > last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_after_a_sqlite_file_was_restored() {
    let test_store = TestStore::sqlite();
    let locks = test_store.node().await;
    pass(&locks, "ledger").await;
    let backup = test_store.folder.path().join("backup.db");
    let mut connection = sqlx::SqliteConnection::connect(&test_store.store).await.unwrap();
    sqlx::query("vacuum into ?1").bind(backup.display().to_string()).execute(&mut connection).await.unwrap();
    let last = grant_after_the_backup(&locks).await;
    let restored = test_store.node_at(&test_store.file("backup.db")).await;
    in_time(assert_tokens_grow(&restored, last)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_after_a_database_was_restored() {
    let test_store = TestStore::postgres().await;
    let locks = test_store.node().await;
    pass(&locks, "ledger").await;
    let (server, dump) = (Postgres::shared(), test_store.folder.path().join("dump.sql"));
    let run = |program: &str, url: &str, file: &str| {
        let mut command = Command::new(server.bin(program));
        let output = command.args(["--dbname", url, file]).arg(&dump).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run("pg_dump", &test_store.store, "--file");
    let last = grant_after_the_backup(&locks).await;
    let restored = server.create_database("restored");
    run("psql", &restored, "--file");
    in_time(assert_tokens_grow(&test_store.node_at(&restored).await, last)).await;
}

/// The new cluster has no state, and its versions start again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_in_a_new_kubernetes_cluster() {
    let (test_store, anew) = (TestStore::stand_in().await, TestStore::stand_in().await);
    let locks = test_store.node().await;
    let last = grant_after_the_backup(&locks).await;
    in_time(assert_tokens_grow(&test_store.node_at(&anew.store).await, last)).await;
}

/// The new ledger has no state of the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_in_a_new_ledger() {
    let (test_store, anew) = (TestStore::ledger().await, TestStore::ledger().await);
    let last = grant_after_the_backup(&test_store.node().await).await;
    in_time(assert_tokens_grow(&anew.node().await, last)).await;
}

/// A grant made before the restore is lost: its holder learns of it at its next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_the_backup_lacks_is_notified() {
    let test_store = TestStore::sqlite();
    let locks = test_store.node().await;
    let guard = locks.acquire("ledger").lease(2 * SECOND).await.unwrap();
    let mut stranger = sqlx::SqliteConnection::connect(&test_store.store).await.unwrap();
    let forget = "update holdoff_locks set nonce = null, owner = null, token = 0";
    sqlx::query(forget).execute(&mut stranger).await.unwrap();
    locks.bump_epoch().await.unwrap();
    in_time(guard.lost()).await;
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
}

on_every_store!(tokens_grow_over_every_kind_of_release, a_new_epoch_does_not_release_held_locks,);
