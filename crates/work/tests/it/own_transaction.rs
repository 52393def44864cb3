//! Submission and completion inside the caller's own transaction: both take effect, or neither.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdoff_policy::PolicySet;
use holdoff_testbed::Postgres;
use holdoff_work::{
    Context, Error, Fault, PageRequest, Payload, StepFilter, StepState, Task, TaskState, Work, postgres,
    sqlite,
};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{PgPool, SqlitePool};

async fn on_postgres() -> (PgPool, Work) {
    let url = Postgres::shared().create_database("own");
    let work = Work::open(&url, PolicySet::default()).await.unwrap();
    let pool = PgPool::connect(&url).await.unwrap();
    sqlx::query("create table orders (id int primary key)").execute(&pool).await.unwrap();
    (pool, work)
}

async fn on_sqlite() -> (tempfile::TempDir, SqlitePool, Work) {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", dir.path().join("work.db").display());
    let work = Work::open(&url, PolicySet::default()).await.unwrap();
    let pool = SqlitePoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    sqlx::query("create table orders (id int primary key)").execute(&pool).await.unwrap();
    (dir, pool, work)
}

async fn count(work: &Work) -> usize {
    work.list(&StepFilter::default(), &PageRequest::default()).await.unwrap().len()
}

#[tokio::test]
async fn on_postgres_a_task_exists_if_and_only_if_the_transaction_commits() {
    let (pool, work) = on_postgres().await;
    let x = work.prepare(vec![Task::new("x")]).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    postgres::submit_in(&work, &mut tx, &x).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(count(&work).await, 0);
    let mut tx = pool.begin().await.unwrap();
    postgres::submit_in(&work, &mut tx, &x).await.unwrap();
    assert_eq!(count(&work).await, 0);
    tx.commit().await.unwrap();
    assert_eq!(count(&work).await, 1);
}

#[tokio::test]
async fn on_sqlite_a_task_exists_if_and_only_if_the_transaction_commits() {
    let (_dir, pool, work) = on_sqlite().await;
    let x = work.prepare(vec![Task::new("x")]).await.unwrap();
    let mut tx = pool.begin_with("begin immediate").await.unwrap();
    sqlite::submit_in(&work, &mut tx, &x).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(count(&work).await, 0);
    let mut tx = pool.begin_with("begin immediate").await.unwrap();
    sqlite::submit_in(&work, &mut tx, &x).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(count(&work).await, 1);
}

#[tokio::test]
async fn a_handler_completes_its_step_with_its_effect() {
    let (pool, work) = on_postgres().await;
    let runs = Arc::new(AtomicU32::new(0));
    let (seen, effects) = (Arc::clone(&runs), pool.clone());
    let worker = work
        .worker()
        .handle("order", move |cx: Context, id: i32| {
            let (runs, effects) = (Arc::clone(&seen), effects.clone());
            async move {
                runs.fetch_add(1, Ordering::Relaxed);
                let failed = |error: sqlx::Error| Fault::transient(error.to_string());
                let mut tx = effects.begin().await.map_err(failed)?;
                sqlx::query("insert into orders values ($1)")
                    .bind(id)
                    .execute(&mut *tx)
                    .await
                    .map_err(failed)?;
                let done = postgres::complete_in(&mut tx, &cx, id)
                    .await
                    .map_err(|error| Fault::transient(error.to_string()))?;
                tx.commit().await.map_err(failed)?;
                Ok(done)
            }
        })
        .start()
        .await
        .unwrap();
    let task = work.submit(Task::new("order").json(&7)).await.unwrap().task();
    let done = work.wait(task).await.unwrap();
    assert_eq!(done.state, TaskState::Succeeded);
    assert_eq!(done.steps[0].output.as_ref().unwrap().read::<i32>().unwrap(), 7);
    worker.shutdown().await;
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    let orders: i64 = sqlx::query_scalar("select count(*) from orders").fetch_one(&pool).await.unwrap();
    assert_eq!(orders, 1);
}

#[tokio::test]
async fn a_stale_worker_cannot_complete_in_its_transaction() {
    let (_dir, pool, work) = on_sqlite().await;
    let claimer = work.claimer("test", &["x"], &[]).await.unwrap();
    work.submit(Task::new("x")).await.unwrap();
    let claim = claimer.claim(1, Duration::from_secs(60)).await.unwrap().remove(0);
    claimer.snooze(&claim, Duration::ZERO, "another worker claims it").await.unwrap();
    let mut tx = pool.begin_with("begin immediate").await.unwrap();
    sqlx::query("insert into orders values (1)").execute(&mut *tx).await.unwrap();
    let fenced = sqlite::complete_in(&mut tx, &claim, Payload::empty()).await;
    assert!(matches!(fenced, Err(Error::Fenced { .. })), "{fenced:?}");
    drop(tx);
    let orders: i64 = sqlx::query_scalar("select count(*) from orders").fetch_one(&pool).await.unwrap();
    assert_eq!(orders, 0);
    let step = &work.list(&StepFilter::default(), &PageRequest::default()).await.unwrap()[0];
    assert_eq!(step.state, StepState::Ready);
}
