//! Names: how many a store accepts, and which it removes.

use std::time::Duration;

use holdoff_work::{Error, Fault, InvalidTask, Payload, Settings, Task, Work};

use crate::conformance::place::{
    Place, attempts, claim, claimer, count, execute, on_shared_stores, settings, submit,
};

fn few_lanes() -> Settings {
    let mut settings = settings();
    (settings.max_lanes, settings.max_namespace_lanes) = (5, 3);
    settings
}

async fn refused(work: &Work, task: Task) -> (&'static str, u64) {
    match work.submit(task).await {
        Err(error @ Error::Invalid(InvalidTask::TooManyLanes { .. })) => {
            assert!(!error.is_transient(), "to come back later does not help");
            let Error::Invalid(InvalidTask::TooManyLanes { setting, limit, .. }) = error else { panic!() };
            (setting, limit)
        }
        other => panic!("{other:?}"),
    }
}

async fn lanes_have_a_limit_in_a_namespace_and_in_all(place: Place) {
    let work = place.open_with(few_lanes()).await;
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
    submit(&place.open_with(few_lanes()).await, Task::new("c")).await;
    // A node with a higher limit creates further lanes.
    submit(&place.open().await, Task::new("d")).await;
}

async fn many_who_make_lanes_at_once_keep_to_the_limit(place: Place) {
    let mut submitting = Vec::new();
    for node in 0..8 {
        let work = place.open_with(few_lanes()).await;
        submitting.push(tokio::spawn(async move { work.submit(Task::new(format!("{node}"))).await.is_ok() }));
    }
    let mut taken_in = 0;
    for submitted in submitting {
        taken_in += usize::from(submitted.await.unwrap());
    }
    assert_eq!(taken_in, 3);
}

fn workers(place: &Place) -> &'static str {
    if place.is_postgres() {
        "select count(*) from holdoff.workers"
    } else {
        "select count(*) from holdoff_workers"
    }
}

async fn a_worker_that_comes_again_has_one_row(place: Place) {
    let work = place.open().await;
    // Rows that an earlier release leaves behind.
    execute(
        &place,
        if place.is_postgres() {
            "insert into holdoff.workers (name) values ('tester'), ('tester')"
        } else {
            "insert into holdoff_workers (name, started_at) values ('tester', 1), ('tester', 2)"
        },
    )
    .await;
    for _ in 0..5 {
        claimer(&work, &["mail"]).await;
        claimer(&place.open().await, &["mail"]).await;
    }
    assert_eq!(count(&place, workers(&place)).await, 2);
    let mut starting = Vec::new();
    for _ in 0..8 {
        let work = work.clone();
        starting.push(tokio::spawn(async move { work.claimer("new", &["mail"], &[]).await.map(drop) }));
    }
    for started in starting {
        started.await.unwrap().unwrap();
    }
    assert_eq!(count(&place, workers(&place)).await, 3);
}

async fn workers_that_nothing_mentions_are_forgotten(place: Place) {
    let mut settings = settings();
    settings.history.keep = Duration::from_millis(1);
    let work = place.open_with(settings).await;
    let task = submit(&work, Task::new("mail").policy("quick")).await;
    let failing = work.claimer("failing", &["mail"], &[]).await.unwrap();
    failing.fail(&claim(&failing).await, Fault::transient("x")).await.unwrap();
    for name in ["idle", "gone", "here"] {
        work.claimer(name, &["mail"], &[]).await.unwrap();
    }
    work.prune().await.unwrap();
    assert_eq!(count(&place, workers(&place)).await, 4, "all were here just now");

    let hours_ago = if place.is_postgres() {
        "update holdoff.workers set seen_at = clock_timestamp() - interval '3 hours' where name <> 'here'"
    } else {
        "update holdoff_workers set seen_at = seen_at - 3 * 3600000000 where name <> 'here'"
    };
    execute(&place, hours_ago).await;
    work.prune().await.unwrap();
    assert_eq!(count(&place, workers(&place)).await, 2);
    let attempt = attempts(&work, task.step(0)).await.remove(0);
    assert_eq!(attempt.worker, "failing", "its attempt is still told");

    // When the attempt is removed, its worker's name is removed too.
    let again = claimer(&work, &["mail"]).await;
    again.complete(&claim(&again).await, Payload::empty()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    execute(&place, hours_ago).await;
    work.prune().await.unwrap();
    let named = if place.is_postgres() {
        "select count(*) from holdoff.workers where name = 'failing'"
    } else {
        "select count(*) from holdoff_workers where name = 'failing'"
    };
    assert_eq!(count(&place, named).await, 0);
}

on_shared_stores!(
    lanes_have_a_limit_in_a_namespace_and_in_all,
    many_who_make_lanes_at_once_keep_to_the_limit,
    a_worker_that_comes_again_has_one_row,
    workers_that_nothing_mentions_are_forgotten,
);
