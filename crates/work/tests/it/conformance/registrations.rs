//! Names: how many a store accepts, and which it removes.

use std::time::Duration;

use holdoff_work::{Error, Fault, InvalidTask, Payload, Settings, Task, Work};

use crate::conformance::test_store::{
    TestStore, attempts, claim, claimer, count, execute, on_shared_stores, settings, submit,
};

fn few_lanes() -> Settings {
    let mut settings = settings();
    (settings.max_lanes, settings.max_namespace_lanes) = (5, 3);
    settings
}

async fn refused(work: &Work, task: Task) -> (&'static str, u64) {
    match work.submit(task).await {
        Err(error @ Error::Invalid(InvalidTask::TooManyLanes { .. })) => {
            assert!(!error.is_transient(), "the error is not transient");
            let Error::Invalid(InvalidTask::TooManyLanes { setting, limit, .. }) = error else { panic!() };
            (setting, limit)
        }
        other => panic!("{other:?}"),
    }
}

async fn lanes_are_limited_per_namespace_and_in_total(store: TestStore) {
    let work = store.open_with(few_lanes()).await;
    for operation in ["a", "b", "c"] {
        submit(&work, Task::new(operation)).await;
    }
    assert_eq!(refused(&work, Task::new("d")).await, ("work.max_namespace_lanes", 3));
    assert_eq!(refused(&work, Task::new("a").queue("other")).await, ("work.max_namespace_lanes", 3));
    assert_eq!(refused(&work, Task::new("a").priority(9)).await, ("work.max_namespace_lanes", 3));
    submit(&work, Task::new("a").namespace("eu")).await;
    submit(&work, Task::new("b").namespace("eu")).await;
    assert_eq!(refused(&work, Task::new("c").namespace("eu")).await, ("work.max_lanes", 5));
    // Existing lanes are accepted as before, also by nodes that have never used them.
    submit(&work, Task::new("a")).await;
    submit(&store.open_with(few_lanes()).await, Task::new("c")).await;
    // A node with a higher limit creates further lanes.
    submit(&store.open().await, Task::new("d")).await;
}

async fn concurrent_callers_do_not_exceed_the_lane_limit(store: TestStore) {
    let mut submitting = Vec::new();
    for node in 0..8 {
        let work = store.open_with(few_lanes()).await;
        submitting.push(tokio::spawn(async move { work.submit(Task::new(format!("{node}"))).await.is_ok() }));
    }
    let mut taken_in = 0;
    for submitted in submitting {
        taken_in += usize::from(submitted.await.unwrap());
    }
    assert_eq!(taken_in, 3);
}

fn workers(store: &TestStore) -> &'static str {
    if store.is_postgres() {
        "select count(*) from holdoff.workers"
    } else {
        "select count(*) from holdoff_workers"
    }
}

async fn a_worker_name_has_one_row(store: TestStore) {
    let work = store.open().await;
    for _ in 0..5 {
        claimer(&work, &["mail"]).await;
        claimer(&store.open().await, &["mail"]).await;
    }
    assert_eq!(count(&store, workers(&store)).await, 1);
    let mut starting = Vec::new();
    for _ in 0..8 {
        let work = work.clone();
        starting.push(tokio::spawn(async move { work.claimer("new", &["mail"], &[]).await.map(drop) }));
    }
    for started in starting {
        started.await.unwrap().unwrap();
    }
    assert_eq!(count(&store, workers(&store)).await, 2);
}

async fn unreferenced_workers_are_pruned(store: TestStore) {
    let mut settings = settings();
    settings.history.keep = Duration::from_millis(1);
    let work = store.open_with(settings).await;
    let task = submit(&work, Task::new("mail").policy("quick")).await;
    let failing = work.claimer("failing", &["mail"], &[]).await.unwrap();
    failing.fail(&claim(&failing).await, Fault::transient("x")).await.unwrap();
    for name in ["idle", "gone", "here"] {
        work.claimer(name, &["mail"], &[]).await.unwrap();
    }
    work.prune().await.unwrap();
    assert_eq!(count(&store, workers(&store)).await, 4, "a prune keeps recently seen workers");

    let hours_ago = if store.is_postgres() {
        "update holdoff.workers set seen_at = clock_timestamp() - interval '3 hours' where name <> 'here'"
    } else {
        "update holdoff_workers set seen_at = seen_at - 3 * 3600000000 where name <> 'here'"
    };
    execute(&store, hours_ago).await;
    work.prune().await.unwrap();
    assert_eq!(count(&store, workers(&store)).await, 2);
    let attempt = attempts(&work, task.step(0)).await.remove(0);
    assert_eq!(attempt.worker, "failing", "the attempt still names its pruned worker");

    // When the attempt is removed, its worker's name is removed too.
    let again = claimer(&work, &["mail"]).await;
    again.complete(&claim(&again).await, Payload::empty()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    execute(&store, hours_ago).await;
    work.prune().await.unwrap();
    let named = if store.is_postgres() {
        "select count(*) from holdoff.workers where name = 'failing'"
    } else {
        "select count(*) from holdoff_workers where name = 'failing'"
    };
    assert_eq!(count(&store, named).await, 0);
}

on_shared_stores!(
    lanes_are_limited_per_namespace_and_in_total,
    concurrent_callers_do_not_exceed_the_lane_limit,
    a_worker_name_has_one_row,
    unreferenced_workers_are_pruned,
);
