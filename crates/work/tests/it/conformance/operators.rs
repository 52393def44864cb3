//! The actions of operators, alone and concurrently with workers.

use std::collections::BTreeSet;
use std::time::Duration;

use holdoff_work::{
    Action, Claimer, Context, Error, Fault, InvalidTask, PageRequest, Pausable, Payload, Step, StepFilter,
    StepId, StepState, Task, TaskState, Work,
};

use crate::conformance::test_store::{
    HOUR, TestStore, attempts, claim, claim_many, claimer, eventually, filter, ids, list, nothing_is_due,
    on_every_store, step, submit, submit_many,
};

/// Creates ten failed, ten conflicted and ten ready steps in each of two queues.
async fn troubled(work: &Work) -> Claimer {
    let claimer = claimer(work, &["mail"]).await;
    for queue in ["a", "b"] {
        for fault in [Fault::permanent("no"), Fault::conflict("both")] {
            submit_many(work, 10, || Task::new("mail").queue(queue).json("old")).await;
            for claimed in claim_many(&claimer, 10, HOUR).await {
                claimer.fail(&claimed, fault.clone()).await.unwrap();
            }
        }
    }
    for queue in ["a", "b"] {
        submit_many(work, 10, || Task::new("mail").queue(queue).delay(HOUR)).await;
    }
    claimer
}

async fn states(work: &Work, queue: &str, state: StepState) -> BTreeSet<StepId> {
    let matching = filter(|filter| (filter.queue, filter.states) = (Some(queue.to_owned()), vec![state]));
    ids(work, &matching).await
}

async fn counts(work: &Work, queue: &str) -> Vec<usize> {
    let mut counts = Vec::new();
    for state in [
        StepState::Ready,
        StepState::Failed,
        StepState::Conflicted,
        StepState::Discarded,
        StepState::Cancelled,
    ] {
        counts.push(states(work, queue, state).await.len());
    }
    counts
}

fn queue(name: &str) -> StepFilter {
    filter(|filter| filter.queue = Some(name.to_owned()))
}

async fn retry_makes_failed_and_conflicted_steps_ready(store: TestStore) {
    let work = store.open().await;
    let claimer = troubled(&work).await;
    let failed = states(&work, "a", StepState::Failed).await;
    assert_eq!(work.act(&queue("a"), &Action::Retry).await.unwrap(), 20);
    assert_eq!(counts(&work, "a").await, [30, 0, 0, 0, 0]);
    assert_eq!(counts(&work, "b").await, [10, 10, 10, 0, 0]);
    for claimed in claim_many(&claimer, 20, HOUR).await {
        assert_eq!((claimed.attempt(), claimed.payload().read::<String>().unwrap()), (1, "old".to_owned()));
    }
    let one = failed.first().copied().unwrap();
    let record = step(&work, one).await;
    assert_eq!((record.failures, record.rescues, record.ended_at), (0, 0, None));
    assert_eq!(attempts(&work, one).await.len(), 1, "the retried step keeps its earlier attempts");
}

async fn resolve_makes_conflicted_steps_ready_with_another_payload(store: TestStore) {
    let work = store.open().await;
    let claimer = troubled(&work).await;
    let new = Payload::json("new").unwrap();
    assert_eq!(work.act(&queue("a"), &Action::Resolve(Some(new))).await.unwrap(), 10);
    assert_eq!(counts(&work, "a").await, [20, 10, 0, 0, 0]);
    assert_eq!(counts(&work, "b").await, [10, 10, 10, 0, 0]);
    for claimed in claim_many(&claimer, 10, HOUR).await {
        assert_eq!(claimed.payload().read::<String>().unwrap(), "new");
    }
    assert_eq!(work.act(&queue("b"), &Action::Resolve(None)).await.unwrap(), 10);
    for claimed in claim_many(&claimer, 10, HOUR).await {
        assert_eq!(claimed.payload().read::<String>().unwrap(), "old");
    }
    let large = Payload::bytes(vec![0; work.settings().max_payload + 1]);
    let refused = work.act(&StepFilter::default(), &Action::Resolve(Some(large))).await;
    assert!(matches!(refused, Err(Error::Invalid(InvalidTask::PayloadTooLarge { .. }))));
}

async fn discard_ends_failed_and_conflicted_steps(store: TestStore) {
    let work = store.open().await;
    let claimer = troubled(&work).await;
    let only_failed = filter(|filter| {
        (filter.queue, filter.states) = (Some("a".to_owned()), vec![StepState::Failed]);
    });
    assert_eq!(work.act(&only_failed, &Action::Discard).await.unwrap(), 10);
    assert_eq!(counts(&work, "a").await, [10, 0, 10, 10, 0]);
    assert_eq!(work.act(&queue("a"), &Action::Discard).await.unwrap(), 10);
    assert_eq!(counts(&work, "a").await, [10, 0, 0, 20, 0]);
    assert_eq!(counts(&work, "b").await, [10, 10, 10, 0, 0]);
    assert_eq!(work.act(&queue("a"), &Action::Retry).await.unwrap(), 0);
    nothing_is_due(&claimer).await;
    let one = states(&work, "a", StepState::Discarded).await.into_iter().next().unwrap();
    let record = step(&work, one).await;
    assert!(record.ended_at.is_some() && record.message.is_some(), "a discarded step keeps its message");
}

async fn cancel_ends_whole_tasks_in_any_state(store: TestStore) {
    let work = store.open().await;
    troubled(&work).await;
    let failed = filter(|filter| filter.states = vec![StepState::Failed]);
    assert_eq!(work.act(&failed, &Action::Cancel).await.unwrap(), 20);
    assert_eq!(counts(&work, "a").await, [10, 0, 10, 0, 10]);
    assert_eq!(work.act(&queue("a"), &Action::Cancel).await.unwrap(), 20);
    assert_eq!(counts(&work, "a").await, [0, 0, 0, 0, 30]);
    assert_eq!(counts(&work, "b").await, [10, 0, 10, 0, 10]);
}

async fn steps_of_a_paused_queue_are_not_claimed(store: TestStore) {
    let work = store.open().await;
    let claimer = claimer(&work, &["mail", "print"]).await;
    submit(&work, Task::new("mail").queue("a")).await;
    work.pause("default", Pausable::Queue, "a").await.unwrap();
    nothing_is_due(&claimer).await;
    // The pause also applies to lanes that are created after it.
    submit(&work, Task::new("print").queue("a")).await;
    submit(&work, Task::new("mail").queue("a").priority(0)).await;
    nothing_is_due(&claimer).await;
    assert!(work.stats().await.unwrap().iter().all(|lane| lane.paused));
    let other = submit(&work, Task::new("mail").queue("b")).await;
    assert_eq!(claim(&claimer).await.step().task, other);
    let abroad = submit(&work, Task::new("mail").queue("a").namespace("eu")).await;
    assert_eq!(
        claim(&claimer).await.step().task,
        abroad,
        "a paused queue does not affect the queue of another namespace"
    );
    work.resume("default", Pausable::Queue, "a").await.unwrap();
    let mut left = 3;
    while left > 0 {
        claim(&claimer).await;
        left -= 1;
    }
    assert!(work.stats().await.unwrap().iter().all(|lane| !lane.paused));
}

async fn steps_of_a_paused_operation_are_not_claimed(store: TestStore) {
    let work = store.open().await;
    let claimer = claimer(&work, &["mail", "print"]).await;
    // The operation is paused twice before it has a lane, and a queue of the same name is paused too.
    for what in [Pausable::Operation, Pausable::Operation, Pausable::Queue] {
        work.pause("default", what, "mail").await.unwrap();
    }
    submit(&work, Task::new("mail").queue("a")).await;
    submit(&work, Task::new("mail").queue("mail")).await;
    nothing_is_due(&claimer).await;
    work.resume("default", Pausable::Operation, "mail").await.unwrap();
    claim(&claimer).await;
    nothing_is_due(&claimer).await;
    work.resume("default", Pausable::Queue, "mail").await.unwrap();
    claim(&claimer).await;
}

async fn running_steps_continue_in_a_paused_queue(store: TestStore) {
    let work = store.open().await;
    let claimer = claimer(&work, &["mail"]).await;
    let task = submit(&work, Task::new("mail")).await;
    let claimed = claim(&claimer).await;
    work.pause("default", Pausable::Queue, "default").await.unwrap();
    claimer.heartbeat(&claimed, HOUR).await.unwrap();
    claimer.complete(&claimed, Payload::empty()).await.unwrap();
    assert_eq!(step(&work, task.step(0)).await.state, StepState::Succeeded);
}

async fn affected_steps_are_counted_without_a_change(store: TestStore) {
    let work = store.open().await;
    let _claimer = troubled(&work).await;
    let graph = Task::graph()
        .step("x", Step::new("other").delay(HOUR))
        .step("y", Step::new("mail").queue("c").after("x"));
    work.submit(graph).await.unwrap();
    let actions = [Action::Retry, Action::Discard, Action::Resolve(None), Action::Cancel];
    for (name, counts) in [("a", [20, 20, 10, 30]), ("c", [0, 0, 0, 2])] {
        for (action, count) in actions.iter().zip(counts) {
            assert_eq!(work.affected(&queue(name), action).await.unwrap(), count, "{name} {action:?}");
        }
    }
    assert_eq!(counts(&work, "a").await, [10, 10, 10, 0, 0], "counting the affected steps changes no step");
    assert_eq!(work.act(&queue("c"), &Action::Cancel).await.unwrap(), 2);
}

async fn a_step_with_another_token_is_not_changed(store: TestStore) {
    let work = store.open().await;
    let claimer = claimer(&work, &["mail"]).await;
    submit(&work, Task::new("mail").json("old")).await;
    let claimed = claim(&claimer).await;
    claimer.fail(&claimed, Fault::conflict("both")).await.unwrap();
    let seen = work.list(&StepFilter::step(claimed.step()), &PageRequest::first(1)).await.unwrap();
    let unmoved = filter(|filter| (filter.step, filter.token) = (Some(seen[0].id), Some(seen[0].token)));

    assert_eq!(work.act(&StepFilter::step(claimed.step()), &Action::Resolve(None)).await.unwrap(), 1);
    let again = claim(&claimer).await;
    claimer.fail(&again, Fault::conflict("still")).await.unwrap();
    let new = Action::Resolve(Some(Payload::json("new").unwrap()));
    assert_eq!(
        work.act(&unmoved, &new).await.unwrap(),
        0,
        "a step that was resolved in the meantime is not resolved again"
    );
    let seen = work.list(&StepFilter::step(claimed.step()), &PageRequest::first(1)).await.unwrap();
    let unmoved = filter(|filter| (filter.step, filter.token) = (Some(seen[0].id), Some(seen[0].token)));
    assert_eq!(work.act(&unmoved, &new).await.unwrap(), 1);
}

/// Creates a task whose child has the lower number. Writers that lock from parent to child and writers that lock by
/// number therefore meet in opposite order.
fn pair() -> Task {
    Task::graph().step("child", Step::new("mail").after("parent")).step("parent", Step::new("mail"))
}

/// Every task either succeeds or is cancelled, and no step is left over.
async fn concurrent_operators_and_workers_lose_no_step(store: TestStore) {
    let work = store.open().await;
    let tasks = submit_many(&work, 300, pair).await;
    let mut workers = Vec::new();
    for _ in 0..2 {
        let worker = work.worker().concurrency(20).handle("mail", |context: Context, (): ()| async move {
            match context.token() {
                1 => Err(Fault::permanent("not at once")),
                _ => Ok(()),
            }
        });
        workers.push(worker.start().await.unwrap());
    }
    let mut doomed = tasks.iter().step_by(4);
    let failed = StepFilter::states([StepState::Failed]);
    let live = filter(|filter| {
        filter.states = vec![StepState::Blocked, StepState::Ready, StepState::Running, StepState::Failed];
    });
    eventually("all tasks have ended", || {
        let victim = doomed.next().copied();
        let (work, failed, live) = (&work, &failed, &live);
        async move {
            if let Some(task) = victim {
                work.act(&StepFilter::task(task), &Action::Cancel).await.unwrap();
            }
            work.act(failed, &Action::Retry).await.unwrap();
            list(work, live).await.is_empty().then_some(())
        }
    })
    .await;
    let mut cancelled = 0;
    for task in tasks {
        let record = work.task(task).await.unwrap().unwrap();
        assert_eq!(record.steps.len(), 2);
        assert!(matches!(record.state, TaskState::Succeeded | TaskState::Cancelled), "{record:?}");
        cancelled += usize::from(record.state == TaskState::Cancelled);
    }
    assert!(cancelled > 0, "at least one task was cancelled while running");
    for worker in workers {
        worker.shutdown_within(Duration::from_secs(5)).await;
    }
}

/// A caller may drop a call at any moment, whatever its connection is doing.
async fn a_dropped_call_loses_no_step(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail")).await;
    for patience in (0..300).map(|number| Duration::from_micros(number * 10)) {
        let _ = tokio::time::timeout(patience, work.submit(Task::new("mail"))).await;
        let _ = tokio::time::timeout(patience, work.stats()).await;
        let _ = tokio::time::timeout(patience, work.task(task)).await;
    }
    assert!(work.task(task).await.unwrap().is_some());
    claim(&claimer(&work, &["mail"]).await).await;
}

on_every_store!(
    retry_makes_failed_and_conflicted_steps_ready,
    resolve_makes_conflicted_steps_ready_with_another_payload,
    discard_ends_failed_and_conflicted_steps,
    cancel_ends_whole_tasks_in_any_state,
    steps_of_a_paused_queue_are_not_claimed,
    steps_of_a_paused_operation_are_not_claimed,
    running_steps_continue_in_a_paused_queue,
    affected_steps_are_counted_without_a_change,
    a_step_with_another_token_is_not_changed,
    concurrent_operators_and_workers_lose_no_step,
    a_dropped_call_loses_no_step,
);
