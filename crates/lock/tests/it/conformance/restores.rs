//! A store that is restored from a backup has lost grants. Once its fencing epoch is raised, its tokens are above them.

use std::process::Command;

use holdoff_lock::{Error, Locks, Token};
use holdoff_testbed::Postgres;
use sqlx::Connection as _;

use crate::conformance::place::{Place, SECOND, in_time, pass};

/// Makes grants that the backup does not contain.
async fn grant_after_the_backup(locks: &Locks) -> Token {
    let mut last = Token::new(0);
    for _ in 0..5 {
        last = pass(locks, "ledger").await;
    }
    last
}

async fn goes_on_above(restored: &Locks, last: Token) {
    restored.raise_era().await.unwrap();
    assert!(pass(restored, "ledger").await > last);
    assert!(pass(restored, "never seen before").await > last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_file_goes_on_above() {
    let place = Place::sqlite();
    let locks = place.node().await;
    pass(&locks, "ledger").await;
    let backup = place.folder.path().join("backup.db");
    let mut connection = sqlx::SqliteConnection::connect(&place.store).await.unwrap();
    sqlx::query("vacuum into ?1").bind(backup.display().to_string()).execute(&mut connection).await.unwrap();
    let last = grant_after_the_backup(&locks).await;
    let restored = place.node_at(&place.file("backup.db")).await;
    in_time(goes_on_above(&restored, last)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_database_goes_on_above() {
    let place = Place::postgres().await;
    let locks = place.node().await;
    pass(&locks, "ledger").await;
    let (server, dump) = (Postgres::shared(), place.folder.path().join("dump.sql"));
    let run = |program: &str, url: &str, file: &str| {
        let mut command = Command::new(server.bin(program));
        let output = command.args(["--dbname", url, file]).arg(&dump).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run("pg_dump", &place.store, "--file");
    let last = grant_after_the_backup(&locks).await;
    let restored = server.create_database("restored");
    run("psql", &restored, "--file");
    in_time(goes_on_above(&place.node_at(&restored).await, last)).await;
}

/// The new cluster has no state, and its versions start again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_was_made_anew_goes_on_above() {
    let (place, anew) = (Place::stand_in().await, Place::stand_in().await);
    let locks = place.node().await;
    let last = grant_after_the_backup(&locks).await;
    in_time(goes_on_above(&place.node_at(&anew.store).await, last)).await;
}

/// The new ledger has no state of the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_was_made_anew_goes_on_above() {
    let (place, anew) = (Place::ledger().await, Place::ledger().await);
    let last = grant_after_the_backup(&place.node().await).await;
    in_time(goes_on_above(&anew.node().await, last)).await;
}

/// A grant made before the restore is lost: its holder learns of it at its next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_the_backup_does_not_know_is_told() {
    let place = Place::sqlite();
    let locks = place.node().await;
    let guard = locks.acquire("ledger").lease(2 * SECOND).await.unwrap();
    let mut stranger = sqlx::SqliteConnection::connect(&place.store).await.unwrap();
    let forget = "update holdoff_locks set nonce = null, owner = null, token = 0";
    sqlx::query(forget).execute(&mut stranger).await.unwrap();
    locks.raise_era().await.unwrap();
    in_time(guard.lost()).await;
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
}
