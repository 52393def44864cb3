//! A backup taken under load and restored elsewhere. The tasks are complete and finish, and fencing tokens only grow.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use holdoff_lock::{Locks, Settings, Token};
use holdoff_testbed::Postgres;

use crate::cluster::node::{HOLDOFF, Node, Target, send_load};
use crate::cluster::{FILE, TURN, all_succeed};

fn admin(arguments: &[&str], file: &Path, store: &str) -> Output {
    let mut command = Command::new(HOLDOFF);
    command
        .arg("admin")
        .args(arguments)
        .arg(file)
        .args(["--store", store])
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

async fn token(store: &str) -> u64 {
    let short = Settings::default().with_lease(Duration::from_secs(1)).with_wait(Duration::from_secs(60));
    let locks = Locks::open(store).await.unwrap().with_settings(short).unwrap();
    let guard = locks.acquire("the one").await.unwrap();
    let token = guard.token().get();
    guard.release().await.unwrap();
    token
}

async fn check_backup_under_load(store: &str, elsewhere: &str) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("holdoff.toml");
    std::fs::write(&config, FILE).unwrap();
    let target = Target::start().await;
    target.close(true);
    let node = Node::start(store, &config);
    let url = node.url.clone();
    let before = send_load(100, 200, &target.url, |_| url.clone()).await;
    assert_eq!(before.accepted.len(), 100, "{}", before.summary());
    let first = token(store).await;

    let file = folder.path().join("backup");
    let (copy, from) = (file.clone(), store.to_owned());
    let backing_up = tokio::task::spawn_blocking(move || admin(&["backup"], &copy, &from));
    let (during, backup) = tokio::join!(send_load(200, 200, &target.url, |_| url.clone()), backing_up);
    let backup = backup.unwrap();
    assert!(backup.status.success(), "{}", text(&backup));
    assert_eq!(during.accepted.len(), 200, "a backup blocks no request: {}", during.summary());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let again = admin(&["backup"], &file, store);
    assert!(!again.status.success() && text(&again).contains("already exists"), "{}", text(&again));
    // The store grants this token after the backup, which does not contain it.
    let second = token(store).await;
    assert!(first < second);

    let onto_itself = admin(&["restore"], &file, store);
    assert!(text(&onto_itself).contains("is not empty, and nothing was changed"), "{}", text(&onto_itself));
    let in_use = admin(&["restore", "--force"], &file, store);
    assert!(text(&in_use).contains("stop every holdoff process that uses it"), "{}", text(&in_use));
    drop(node);

    let restored = admin(&["restore"], &file, elsewhere);
    assert!(restored.status.success(), "{}", text(&restored));
    let third = token(elsewhere).await;
    assert!(text(&restored).contains("new fencing tokens are above "), "{}", text(&restored));
    assert!(second < third, "{second} < {third}");
    target.close(false);
    let node = Node::start(elsewhere, &config);
    all_succeed(elsewhere, &before.accepted).await;
    println!("restored: tokens {first}, {second}, {third}; {}", target.assert_once(&before.accepted));
    assert_eq!(node.terminate(), Some(0));

    // With `--force`, the restore replaces a store that is not empty and keeps the previous one under another name.
    let locks = Locks::open(elsewhere).await.unwrap();
    // Far ahead of the clock: only the floor keeps later tokens above it.
    locks.raise_floor(Token::new(1 << 60)).await.unwrap();
    drop(locks);
    let latest = token(elsewhere).await;
    let forced = eventually_free(|| admin(&["restore", "--force"], &file, elsewhere)).await;
    assert!(
        forced.status.success() && text(&forced).contains("kept the previous store as"),
        "{}",
        text(&forced)
    );
    let fourth = token(elsewhere).await;
    assert!(
        latest > third && fourth > latest,
        "each token is above all granted tokens: {third}, {latest}, {fourth}"
    );
    assert_eq!(fourth, latest + 1, "the tokens continue above those of the previous store");
    assert!(text(&forced).contains(&format!("new fencing tokens are above {latest}")), "{}", text(&forced));
}

/// Retries the restore until the closed connections to the store are gone.
async fn eventually_free(restore: impl Fn() -> Output) -> Output {
    loop {
        let output = restore();
        if !text(&output).contains("stop every holdoff process that uses it") {
            return output;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_backup_under_load_is_restored() {
    let _turn = TURN.lock().await;
    let postgres = Postgres::shared();
    let (store, elsewhere) = (postgres.create_database("backup"), postgres.create_database("restore"));
    check_backup_under_load(&store, &elsewhere).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sqlite_backup_under_load_is_restored() {
    let _turn = TURN.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    check_backup_under_load(&url("one.db"), &url("other.db")).await;
    let broken = folder.path().join("broken");
    std::fs::write(&broken, "no backup").unwrap();
    let refused = admin(&["restore"], &broken, &url("third.db"));
    assert!(!refused.status.success() && !folder.path().join("third.db").exists(), "{}", text(&refused));
}
