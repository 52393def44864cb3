//! Tokens only grow: over every kind of release, and over a restore from a backup, without an action of the operator.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdoff_lock::{Error, Locks, Settings, Token};
use holdoff_testbed::{Options, Postgres};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use sqlx::Connection as _;

use crate::chaos::resource::now_us;
use crate::conformance::test_store::{
    CONDITION_TIMEOUT, SECOND, TestStore, acquire, count_tokens, in_time, inspect, on_every_store, pass,
    until,
};

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

    tokens.push(count_tokens(&locks).await);
    tokens.push(pass(&locks, "ledger").await);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

/// The holder keeps its lock, with the lower token.
async fn a_raised_floor_does_not_release_held_locks(test_store: TestStore) {
    let (locks, other) = (test_store.node().await, test_store.node().await);
    let guard = acquire(&locks, "ledger").await;
    let floor = count_tokens(&other).await;
    assert_eq!(inspect(&other, "ledger").await.holder.map(|holder| holder.token), Some(guard.token()));
    guard.release().await.unwrap();
    assert!(pass(&other, "ledger").await > floor);
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

/// Grants locks, lets the store lose them, and grants again, twice. A number that the store counts up after a loss would
/// have the same value both times. Every token of a key is above all earlier ones.
async fn check_history(mut locks: Locks, mut lose: impl AsyncFnMut() -> Locks) {
    let (mut known, mut fresh) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        for _ in 0..3 {
            known.push(pass(&locks, "ledger").await);
        }
        fresh.extend(known.last());
        locks = lose().await;
        fresh.push(pass(&locks, "never seen before").await);
        known.push(pass(&locks, "ledger").await);
    }
    println!("tokens: {known:?}");
    assert!(known.is_sorted_by(|earlier, later| earlier < later), "{known:?}");
    let is_above = |pair: &[Token]| pair[0] < pair[1];
    assert!(
        fresh.chunks(2).all(is_above) && fresh[1] < fresh[3],
        "a new key starts above all tokens: {fresh:?}"
    );
}

/// Returns a node of the database at this URL. Its leases are short, because the server waits for them after a crash.
async fn node_at(test_store: &TestStore, url: &str) -> Locks {
    let settings = Settings::default().with_namespace(&test_store.namespace);
    let short = settings.with_lease(Duration::from_millis(300)).with_wait(CONDITION_TIMEOUT);
    test_store.node_at(url).await.with_settings(short).unwrap()
}

#[tokio::test]
async fn tokens_grow_after_the_process_has_ended() {
    let test_store = TestStore::memory();
    in_time(check_history(test_store.node().await, async || Locks::memory())).await;
}

/// A hot copy, and a copy of the files that no process has open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_after_a_sqlite_file_was_restored() {
    for is_cold in [false, true] {
        let test_store = TestStore::sqlite();
        let locks = test_store.node().await;
        pass(&locks, "ledger").await;
        let backup = test_store.folder.path().join("backup.db");
        let mut connection = sqlx::SqliteConnection::connect(&test_store.store).await.unwrap();
        let locks = if is_cold {
            drop(locks);
            let merge = "pragma journal_mode = delete";
            let is_closed = async || sqlx::query(merge).execute(&mut connection).await.is_ok();
            until("the file is closed", is_closed).await;
            std::fs::copy(test_store.folder.path().join("locks.db"), &backup).unwrap();
            test_store.node().await
        } else {
            let copy = sqlx::query("vacuum into ?1").bind(backup.display().to_string());
            copy.execute(&mut connection).await.unwrap();
            locks
        };
        let mut restored = 0;
        let restore = async || {
            restored += 1;
            let name = format!("restored-{restored}.db");
            std::fs::copy(&backup, test_store.folder.path().join(&name)).unwrap();
            test_store.node_at(&test_store.file(&name)).await
        };
        in_time(check_history(locks, restore)).await;
    }
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
    let restore = async || {
        let restored = server.create_database("restored");
        run("psql", &restored, "--file");
        test_store.node_at(&restored).await
    };
    in_time(check_history(locks, restore)).await;
}

/// The server crashes, grants again, and then the files of a base backup are restored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_after_a_crash_and_a_restore_of_the_files_of_postgres() {
    let test_store = TestStore::sqlite();
    let server = on_server(|| Postgres::start_with(&Options::default())).await;
    let server = Arc::new(server);
    let url = server.create_database("restored");
    let locks = node_at(&test_store, &url).await;
    let last = Mutex::new(pass(&locks, "ledger").await);
    let saved = Arc::clone(&server);
    on_server(move || saved.back_up()).await;
    let crash_and_restore = async || {
        let crashed = Arc::clone(&server);
        on_server(move || crashed.restart_immediately()).await;
        let after_the_crash = pass(&node_at(&test_store, &url).await, "ledger").await;
        assert!(after_the_crash > *last.lock().unwrap());
        let restored = Arc::clone(&server);
        on_server(move || restored.restore_backup()).await;
        let locks = node_at(&test_store, &url).await;
        let after_the_restore = pass(&locks, "ledger").await;
        assert!(after_the_restore > after_the_crash, "{after_the_restore} after {after_the_crash}");
        *last.lock().unwrap() = after_the_restore;
        locks
    };
    in_time(check_history(locks.clone(), crash_and_restore)).await;
}

/// The standby has not received the last grants, and its unlogged tables are empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_after_a_failover_to_a_lagging_standby() {
    let test_store = TestStore::sqlite();
    let mut primary = on_server(|| Postgres::start_with(&Options::default())).await;
    let url = primary.create_database("failover");
    let database = url.rsplit('/').next().unwrap().to_owned();
    let locks = node_at(&test_store, &url).await;
    pass(&locks, "ledger").await;
    // A standby never connects to its primary again: it lags by everything that follows.
    let copy = move || (primary.start_lagging_standby(&Options::default()), primary);
    let (first, old) = on_server(copy).await;
    primary = old;
    let copy = move || (primary.start_lagging_standby(&Options::default()), primary);
    let (second, old) = on_server(copy).await;
    let mut servers = vec![second, first];
    let mut running = Some(old);
    let fail_over = async || {
        let (failed, standby) = (running.take(), servers.pop().unwrap());
        let promote = move || {
            drop(failed);
            standby.promote();
            standby
        };
        let standby = on_server(promote).await;
        let locks = node_at(&test_store, &standby.url(&database)).await;
        running = Some(standby);
        locks
    };
    in_time(check_history(locks, fail_over)).await;
}

/// Runs a function that starts or stops a server.
async fn on_server<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(call).await.unwrap()
}

/// All Leases are deleted, or the cluster is new: it has no state, and its versions start again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_after_all_lease_objects_were_deleted_or_the_cluster_was_replaced() {
    let (test_store, mut anew) = (TestStore::stand_in().await, Vec::new());
    let leases: Api<Lease> = Api::namespaced(test_store.stand_in.as_ref().unwrap().client(), "default");
    let delete = async || {
        for lease in leases.list(&ListParams::default()).await.unwrap() {
            leases.delete(&lease.metadata.name.unwrap(), &DeleteParams::default()).await.unwrap();
        }
        test_store.node().await
    };
    in_time(check_history(test_store.node().await, delete)).await;
    let replace = async || {
        // An API server reports its time in whole seconds.
        let second = now_us() / 1_000_000;
        until("the next second begins", async || now_us() / 1_000_000 > second).await;
        anew.push(TestStore::stand_in().await);
        test_store.node_at(&anew.last().unwrap().store).await
    };
    in_time(check_history(test_store.node().await, replace)).await;
}

/// The new ledger has no state of the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_in_a_new_ledger() {
    let (test_store, mut anew) = (TestStore::ledger().await, Vec::new());
    let replace = async || {
        anew.push(TestStore::ledger().await);
        anew.last().unwrap().node().await
    };
    in_time(check_history(test_store.node().await, replace)).await;
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
    in_time(guard.lost()).await;
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
}

on_every_store!(tokens_grow_over_every_kind_of_release, a_raised_floor_does_not_release_held_locks,);
