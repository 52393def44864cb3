//! A backup taken under load and restored elsewhere. The tasks are complete and finish, and fencing tokens only grow.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use holdoff_lock::{Locks, Settings};
use holdoff_testbed::Postgres;

use crate::cluster::node::{HOLDOFF, Node};
use crate::cluster::target::Target;
use crate::cluster::{FILE, TURN, all_succeed, load};

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

fn said(output: &Output) -> String {
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

async fn a_backup_under_load_comes_back(store: &str, elsewhere: &str) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("holdoff.toml");
    std::fs::write(&config, FILE).unwrap();
    let target = Target::start().await;
    target.close(true);
    let node = Node::start(store, &config);
    let url = node.url.clone();
    let before = load::send(100, 200, &target.url, |_| url.clone()).await;
    assert_eq!(before.accepted.len(), 100, "{}", before.said());
    let first = token(store).await;

    let file = folder.path().join("backup");
    let (copy, from) = (file.clone(), store.to_owned());
    let backing_up = tokio::task::spawn_blocking(move || admin(&["backup"], &copy, &from));
    let (during, backup) = tokio::join!(load::send(200, 200, &target.url, |_| url.clone()), backing_up);
    let backup = backup.unwrap();
    assert!(backup.status.success(), "{}", said(&backup));
    assert_eq!(during.accepted.len(), 200, "nobody waits for a backup: {}", during.said());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let again = admin(&["backup"], &file, store);
    assert!(!again.status.success() && said(&again).contains("there already"), "{}", said(&again));
    // The store grants this token after the backup, which does not contain it.
    let second = token(store).await;
    assert!(first < second);

    let onto_itself = admin(&["restore"], &file, store);
    assert!(said(&onto_itself).contains("is not empty, and nothing was changed"), "{}", said(&onto_itself));
    let in_use = admin(&["restore", "--force"], &file, store);
    assert!(said(&in_use).contains("stop every daemon on it first"), "{}", said(&in_use));
    drop(node);

    let restored = admin(&["restore"], &file, elsewhere);
    assert!(restored.status.success(), "{}", said(&restored));
    let third = token(elsewhere).await;
    let era = format!("era {} begins", third >> 40);
    assert!(said(&restored).contains(&era), "{era}: {}", said(&restored));
    assert!(second < third, "{second} < {third}");
    target.close(false);
    let node = Node::start(elsewhere, &config);
    all_succeed(elsewhere, &before.accepted).await;
    println!("restored: tokens {first}, {second}, {third}; {}", target.assert_once(&before.accepted));
    assert_eq!(node.terminate(), Some(0));

    // With `--force`, the restore replaces a store that is not empty and keeps the previous one under another name.
    let locks = Locks::open(elsewhere).await.unwrap();
    locks.raise_era().await.unwrap();
    drop(locks);
    let latest = token(elsewhere).await;
    let forced = eventually_free(|| admin(&["restore", "--force"], &file, elsewhere)).await;
    assert!(forced.status.success() && said(&forced).contains("is put aside as"), "{}", said(&forced));
    let fourth = token(elsewhere).await;
    assert!(latest > third && fourth > latest, "above all that were given out: {third}, {latest}, {fourth}");
    assert_eq!(fourth >> 40, (latest >> 40) + 1, "the era after that which was put aside");
    assert!(said(&forced).contains(&format!("era {} begins", fourth >> 40)), "{}", said(&forced));
}

/// Retries the restore until the closed connections to the store are gone.
async fn eventually_free(restore: impl Fn() -> Output) -> Output {
    loop {
        let output = restore();
        if !said(&output).contains("stop every daemon on it first") {
            return output;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_least_the_era_that_is_asked_for_begins() {
    let _turn = TURN.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    let first = token(&url("one.db")).await;
    let file = folder.path().join("backup");
    let backup = admin(&["backup"], &file, &url("one.db"));
    assert!(backup.status.success(), "{}", said(&backup));
    let restored = admin(&["restore", "--era", "7"], &file, &url("other.db"));
    assert!(said(&restored).contains("era 7 begins"), "{}", said(&restored));
    let second = token(&url("other.db")).await;
    assert_eq!((first >> 40, second >> 40), (0, 7));
    // A requested fencing epoch below the current one does not lower it.
    let again = admin(&["restore", "--force", "--era", "3"], &file, &url("other.db"));
    assert!(said(&again).contains("era 8 begins"), "{}", said(&again));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_postgres_under_load_comes_back() {
    let _turn = TURN.lock().await;
    let postgres = Postgres::shared();
    let (store, elsewhere) = (postgres.create_database("backup"), postgres.create_database("restore"));
    a_backup_under_load_comes_back(&store, &elsewhere).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_sqlite_under_load_comes_back() {
    let _turn = TURN.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    a_backup_under_load_comes_back(&url("one.db"), &url("other.db")).await;
    let broken = folder.path().join("broken");
    std::fs::write(&broken, "no backup").unwrap();
    let refused = admin(&["restore"], &broken, &url("third.db"));
    assert!(!refused.status.success() && !folder.path().join("third.db").exists(), "{}", said(&refused));
}
