//! Another transaction has locked the row of a step.

use std::time::Duration;

use holdoff_work::{Error, Fault, Payload, Receipt, StepId, StepState, Task};
use sqlx::{Connection, Executor, PgConnection};
use tokio::time::Instant;

use crate::conformance::test_store::{
    HOUR, SECOND, TestStore, attempts, claim, claim_many, claimer, step, submit, submit_many,
};

/// Locks a step's row, as `psql` would, until the connection is closed or the transaction ends.
async fn lock(store: &TestStore, step: StepId) -> PgConnection {
    let mut stranger = PgConnection::connect(&store.url).await.unwrap();
    stranger.execute("begin").await.unwrap();
    let lock = "select from holdoff.steps where task = $1 and step = $2 for update";
    let locked = sqlx::query(lock).bind(step.task.as_uuid()).bind(step.number).execute(&mut stranger).await;
    assert_eq!(locked.unwrap().rows_affected(), 1);
    stranger
}

/// The lock is held for longer than one attempt waits for it, so that a second attempt is needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_blocked_by_a_lock_is_retried() {
    let store = TestStore::postgres();
    let work = store.open().await;
    submit_many(&work, 2, || Task::new("mail").policy("hourly")).await;
    let claimer = claimer(&work, &["mail"]).await;
    let claims = claim_many(&claimer, 2, HOUR).await;
    let (failing, completing) = (&claims[0], &claims[1]);
    let strangers = [lock(&store, failing.step()).await, lock(&store, completing.step()).await];
    let release = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(5500)).await;
        for mut stranger in strangers {
            stranger.execute("rollback").await.unwrap();
        }
    });
    let begun = Instant::now();
    let (failed, completed) = tokio::join!(
        claimer.fail(failing, Fault::transient("busy")),
        claimer.complete(completing, Payload::empty())
    );
    assert!(begun.elapsed() > 5 * SECOND, "the reports waited for the lock");
    assert_eq!((failed.unwrap(), completed.unwrap()), (Receipt::Accepted, Receipt::Accepted));
    release.await.unwrap();
    let record = step(&work, failing.step()).await;
    assert_eq!((record.state, record.failures), (StepState::Ready, 1));
    assert_eq!(attempts(&work, failing.step()).await.len(), 1);
    assert_eq!(step(&work, completing.step()).await.state, StepState::Succeeded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permanent_lock_causes_an_error_in_bounded_time() {
    let store = TestStore::postgres();
    let work = store.open().await;
    let task = submit(&work, Task::new("mail").policy("hourly")).await;
    let claimer = claimer(&work, &["mail"]).await;
    let claimed = claim(&claimer).await;
    let before = step(&work, task.step(0)).await;
    let stranger = lock(&store, claimed.step()).await;
    let begun = Instant::now();
    let (failed, completed) = tokio::join!(
        claimer.fail(&claimed, Fault::transient("busy")),
        claimer.complete(&claimed, Payload::empty())
    );
    let took = begun.elapsed();
    assert!(took > 5 * SECOND, "{took:?}");
    for refused in [failed, completed] {
        assert!(matches!(refused, Err(Error::Store { transient: true, .. })), "{refused:?}");
    }
    // The server still executes the abandoned statements, until its own lock timeout.
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    let mut watcher = PgConnection::connect(&store.url).await.unwrap();
    while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut watcher).await.unwrap() > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(format!("{:?}", step(&work, task.step(0)).await), format!("{before:?}"));
    assert!(attempts(&work, task.step(0)).await.is_empty());
    stranger.close().await.unwrap();
    assert_eq!(claimer.fail(&claimed, Fault::transient("busy")).await.unwrap(), Receipt::Accepted);
}

/// A claim skips a step that another transaction has locked, and its lane if it has no other step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_step_does_not_block_other_steps() {
    let store = TestStore::postgres();
    let work = store.open().await;
    let locked = submit(&work, Task::new("mail").priority(0)).await;
    let _stranger = lock(&store, locked.step(0)).await;
    let claimer = claimer(&work, &["mail", "print"]).await;
    let same_lane = submit(&work, Task::new("mail").priority(0)).await;
    assert_eq!(claim(&claimer).await.step().task, same_lane);
    let other_lane = submit(&work, Task::new("print")).await;
    assert_eq!(claim(&claimer).await.step().task, other_lane);
}
