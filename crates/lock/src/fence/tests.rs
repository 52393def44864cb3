use std::time::Duration;

use holdoff_testbed::Postgres as Server;
use sqlx::{PgPool, SqlitePool};

use super::{FenceError, postgres, sqlite};
use crate::{Key, Token};

fn is_stale(passed: &Result<(), FenceError>, seen: u64) -> bool {
    matches!(passed, Err(FenceError::Stale(stale)) if stale.seen.get() == seen)
}

#[tokio::test]
async fn a_stale_token_does_not_pass_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}?mode=rwc", folder.path().join("own.db").display());
    let pool = SqlitePool::connect(&url).await.unwrap();
    for _ in 0..2 {
        sqlite::prepare(&pool).await.unwrap();
    }
    let [one, other] = ["a", "b"].map(|name| Key::new("default", name).unwrap());
    let pass = async |key: &Key, token| {
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
async fn a_fence_stays_in_the_way_until_the_commit() {
    let url = tokio::task::spawn_blocking(|| Server::shared().create_database("own")).await.unwrap();
    let pool = PgPool::connect(&url).await.unwrap();
    let prepare = async || postgres::prepare(&mut pool.acquire().await.unwrap()).await.unwrap();
    tokio::join!(prepare(), prepare());
    let key = Key::new("default", "a").unwrap();
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
