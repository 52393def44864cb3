//! Pruning: the records that are removed, and those that are kept.

use std::time::Duration;

use holdoff_work::{
    Action, Claimer, Error, Fault, InvalidTask, Payload, Settings, Step, StepFilter, StepState, Submitted,
    Task, TaskState, Work,
};

use crate::conformance::test_store::{
    HOUR, TestStore, claim, claim_many, claimer, count, eventually, execute, filter, ids, list,
    on_every_store, on_shared_stores, settings, submit, submit_many,
};

/// Settings with a minimal retention.
fn forgetful() -> Settings {
    let mut settings = settings();
    settings.history.keep = Duration::from_millis(1);
    settings.history.keep_failed = Duration::from_millis(1);
    settings
}

async fn complete(claimer: &Claimer, count: usize) {
    for claimed in claim_many(claimer, count, HOUR).await {
        claimer.complete(&claimed, Payload::json(&7).unwrap()).await.unwrap();
    }
}

/// Prunes after the retention of everything that has ended.
async fn prune(work: &Work) -> u64 {
    tokio::time::sleep(Duration::from_millis(20)).await;
    work.prune().await.unwrap()
}

async fn finished_steps_are_pruned_by_age(store: TestStore) {
    let work = store.open_with(forgetful()).await;
    let claimer = claimer(&work, &["mail"]).await;
    let failing = submit(&work, Task::new("mail").dedup("key").dedup_retention(Duration::ZERO)).await;
    claimer.fail(&claim(&claimer).await, Fault::transient("x")).await.unwrap();
    complete_one(&claimer).await;
    submit_many(&work, 1200, || Task::new("mail")).await;
    complete(&claimer, 1200).await;
    let live = submit(&work, Task::new("mail")).await;
    assert_eq!(prune(&work).await, 1201);
    assert_eq!(ids(&work, &StepFilter::default()).await.into_iter().collect::<Vec<_>>(), [live.step(0)]);
    assert!(work.task(failing).await.unwrap().is_none(), "pruning deletes a task with its attempts");
    assert_eq!(prune(&work).await, 0);
}

async fn complete_one(claimer: &Claimer) {
    claimer.complete(&claim(claimer).await, Payload::empty()).await.unwrap();
}

async fn nothing_is_pruned_before_its_retention(store: TestStore) {
    let work = store.open().await;
    let claimer = claimer(&work, &["mail"]).await;
    submit_many(&work, 3, || Task::new("mail")).await;
    complete_one(&claimer).await;
    claimer.fail(&claim(&claimer).await, Fault::permanent("no")).await.unwrap();
    assert_eq!(prune(&work).await, 0);
    assert_eq!(list(&work, &StepFilter::default()).await.len(), 3);
}

async fn the_row_limit_is_kept(store: TestStore) {
    let mut settings = settings();
    settings.history.max_rows = 500;
    let work = store.open_with(settings).await;
    let claimer = claimer(&work, &["mail"]).await;
    let tasks = submit_many(&work, 1600, || Task::new("mail")).await;
    complete(&claimer, 1600).await;
    // Postgres updates its count of rows with a delay.
    let left = eventually("pruning", || async {
        work.prune().await.unwrap();
        Some(ids(&work, &StepFilter::default()).await).filter(|left| left.len() <= 500)
    })
    .await;
    assert!(left.len() >= 450, "{} steps are left; the limit is 500", left.len());
    assert!(left.contains(&tasks[1599].step(0)), "the latest steps are kept");
    assert!(!left.contains(&tasks[0].step(0)), "the oldest steps are pruned");
    work.prune().await.unwrap();
    assert!(
        ids(&work, &StepFilter::default()).await.len() >= 450,
        "a second prune keeps the remaining tasks"
    );
}

async fn a_live_task_keeps_its_parents_outputs(store: TestStore) {
    let work = store.open_with(forgetful()).await;
    let claimer = claimer(&work, &["mail"]).await;
    let graph = Task::graph()
        .step("a", Step::new("mail"))
        .step("b", Step::new("mail").after("a").delay(Duration::from_millis(200)));
    let task = submit(&work, graph).await;
    claimer.complete(&claim(&claimer).await, Payload::json(&7).unwrap()).await.unwrap();
    assert_eq!(prune(&work).await, 0);
    let child = claim(&claimer).await;
    assert_eq!(child.inputs().values().next().unwrap().read::<i32>().unwrap(), 7);
    claimer.complete(&child, Payload::empty()).await.unwrap();
    assert_eq!(prune(&work).await, 2);
    assert!(work.task(task).await.unwrap().is_none());
}

async fn failed_steps_have_their_own_retention(store: TestStore) {
    let mut settings = forgetful();
    settings.history.keep_failed = HOUR;
    let work = store.open_with(settings).await;
    let claimer = claimer(&work, &["mail", "bad"]).await;
    let graph = Task::graph()
        .step("a", Step::new("mail").priority(0))
        .step("b", Step::new("bad").after("a"))
        .step("c", Step::new("mail").after("b"));
    let task = submit(&work, graph).await;
    complete_one(&claimer).await;
    claimer.fail(&claim(&claimer).await, Fault::permanent("no")).await.unwrap();
    assert_eq!(prune(&work).await, 0);
    assert_eq!(work.task(task).await.unwrap().unwrap().steps.len(), 3);
    assert_eq!(work.act(&StepFilter::task(task), &Action::Retry).await.unwrap(), 1);
    let again = claim(&claimer).await;
    assert_eq!(again.inputs().values().next(), Some(&Payload::empty()));
    claimer.complete(&again, Payload::empty()).await.unwrap();
    complete_one(&claimer).await;
    assert_eq!(work.wait(task).await.unwrap().state, TaskState::Succeeded);
}

async fn abandoned_failures_are_pruned_with_their_dependents(store: TestStore) {
    let work = store.open_with(forgetful()).await;
    let claimer = claimer(&work, &["mail", "bad"]).await;
    let graph = Task::graph()
        .step("a", Step::new("mail").priority(0))
        .step("b", Step::new("bad").after("a"))
        .step("c", Step::new("mail").after("b"));
    let task = submit(&work, graph).await;
    complete_one(&claimer).await;
    claimer.fail(&claim(&claimer).await, Fault::permanent("no")).await.unwrap();
    prune(&work).await;
    prune(&work).await;
    assert!(work.task(task).await.unwrap().is_none());
}

async fn dependents_of_a_discarded_step_are_pruned(store: TestStore) {
    let work = store.open_with(forgetful()).await;
    let claimer = claimer(&work, &["bad"]).await;
    let graph = Task::graph().step("b", Step::new("bad")).step("c", Step::new("mail").after("b"));
    let task = submit(&work, graph).await;
    claimer.fail(&claim(&claimer).await, Fault::permanent("no")).await.unwrap();
    work.act(&StepFilter::task(task), &Action::Discard).await.unwrap();
    prune(&work).await;
    prune(&work).await;
    assert!(
        work.task(task).await.unwrap().is_none(),
        "a task with a discarded step and a blocked dependent is pruned"
    );
    assert!(list(&work, &filter(|filter| filter.states = vec![StepState::Blocked])).await.is_empty());
}

async fn dedup_keys_are_pruned_with_their_tasks(store: TestStore) {
    let work = store.open_with(forgetful()).await;
    let claimer = claimer(&work, &["mail"]).await;
    let short = Task::new("mail").dedup("short").dedup_retention(Duration::from_millis(1));
    let long = Task::new("mail").dedup("long").dedup_retention(HOUR);
    let first = work.submit_all(vec![short.clone(), long.clone()]).await.unwrap();
    complete(&claimer, 2).await;
    assert_eq!(prune(&work).await, 2);
    let second = work.submit_all(vec![short, long]).await.unwrap();
    assert!(matches!(second[0], Submitted::Created(_)));
    assert_eq!(
        second[1],
        Submitted::Duplicate(first[1].task()),
        "a key with a long retention outlives its task"
    );
}

/// Keyed tasks may arrive by the hundred every second, and one call prunes a thousand keys.
async fn all_old_keys_are_pruned(store: TestStore) {
    let work = store.open_with(forgetful()).await;
    let claimer = claimer(&work, &["mail"]).await;
    let keyed = |number| Task::new("mail").dedup(format!("{number}")).dedup_retention(Duration::ZERO);
    work.submit_all((0..2500).map(keyed).collect()).await.unwrap();
    // With little history, only the keys need several calls.
    while !claimer.claim(1000, HOUR).await.unwrap().is_empty() {}
    let all = StepFilter::default();
    assert_eq!(work.act(&all, &Action::Cancel).await.unwrap(), 2500);
    execute(
        &store,
        if store.is_postgres() { "delete from holdoff.done" } else { "delete from holdoff_done" },
    )
    .await;
    prune(&work).await;
    let keys = if store.is_postgres() {
        "select count(*) from holdoff.dedup"
    } else {
        "select count(*) from holdoff_dedup"
    };
    assert_eq!(count(&store, keys).await, 0);
}

/// A namespace may use ever new names, as long as few are in use at once. Another node has cached the old ones.
async fn lanes_without_steps_are_removed(store: TestStore) {
    let mut settings = forgetful();
    settings.max_namespace_lanes = 2;
    let (work, other) = (store.open_with(settings.clone()).await, store.open_with(settings.clone()).await);
    let claimer = claimer(&work, &["a", "b", "c"]).await;
    for operation in ["a", "b"] {
        submit(&other, Task::new(operation)).await;
        complete_one(&claimer).await;
    }
    let refused = work.submit(Task::new("c")).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(InvalidTask::TooManyLanes { limit: 2, .. })), "{refused}");
    prune(&work).await;
    submit(&work, Task::new("c")).await;
    complete_one(&claimer).await;

    // A lane that is used again stays. The others are deleted an hour later.
    submit(&other, Task::new("b")).await;
    let (later, lanes) = if store.is_postgres() {
        (
            "update holdoff.lanes set retired_at = retired_at - interval '2 hours'",
            "select count(*) from holdoff.lanes",
        )
    } else {
        (
            "update holdoff_lanes set retired_at = retired_at - 7200000000",
            "select count(*) from holdoff_lanes",
        )
    };
    execute(&store, later).await;
    prune(&store.open_with(settings).await).await;
    assert_eq!(count(&store, lanes).await, 2, "b is in use, and c was retired just now");
    submit(&other, Task::new("a")).await;
    let mut run = [claim(&claimer).await, claim(&claimer).await].map(|step| step.operation().to_owned());
    run.sort_unstable();
    assert_eq!(run, ["a", "b"], "no step is lost with its lane");
}

mod shared {
    use super::{all_old_keys_are_pruned, lanes_without_steps_are_removed, on_shared_stores};

    on_shared_stores!(all_old_keys_are_pruned, lanes_without_steps_are_removed);
}

on_every_store!(
    finished_steps_are_pruned_by_age,
    nothing_is_pruned_before_its_retention,
    the_row_limit_is_kept,
    a_live_task_keeps_its_parents_outputs,
    failed_steps_have_their_own_retention,
    abandoned_failures_are_pruned_with_their_dependents,
    dependents_of_a_discarded_step_are_pruned,
    dedup_keys_are_pruned_with_their_tasks,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_shrinks_after_pruning() {
    let store = TestStore::sqlite_file();
    let work = store.open_with(forgetful()).await;
    let claimer = claimer(&work, &["mail"]).await;
    submit_many(&work, 60, || Task::new("mail")).await;
    for claimed in claim_many(&claimer, 60, HOUR).await {
        claimer.complete(&claimed, Payload::bytes(vec![7; 200 * 1024])).await.unwrap();
    }
    assert_eq!(prune(&work).await, 60);
    // The file was twelve times as large.
    assert!(store.size() < 1 << 20, "{} bytes", store.size());
}
