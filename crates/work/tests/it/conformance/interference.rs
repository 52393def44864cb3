//! Operators act on steps that workers are running.

use std::time::Duration;

use holdoff_work::{Action, Context, Fault, Filter, Step, StepState, Task, TaskState};

use crate::conformance::place::{
    Place, claim, claimer, eventually, filter, list, on_every_store, submit, submit_many,
};

/// Creates a task whose child has the lower number. Writers that lock from parent to child and writers that lock by
/// number therefore meet in opposite order.
fn pair() -> Task {
    Task::graph().step("child", Step::new("mail").after("parent")).step("parent", Step::new("mail"))
}

/// Every task either succeeds or is cancelled, and no step is left over.
async fn operators_and_workers_meet_and_nothing_is_lost(place: Place) {
    let work = place.open().await;
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
    let failed = Filter::states([StepState::Failed]);
    let live = filter(|filter| {
        filter.states = vec![StepState::Blocked, StepState::Ready, StepState::Running, StepState::Failed];
    });
    eventually("the end of all tasks", || {
        let victim = doomed.next().copied();
        let (work, failed, live) = (&work, &failed, &live);
        async move {
            if let Some(task) = victim {
                work.act(&Filter::task(task), &Action::Cancel).await.unwrap();
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
    assert!(cancelled > 0, "some were caught");
    for worker in workers {
        worker.shutdown_within(Duration::from_secs(5)).await;
    }
}

/// A caller may drop a call at any moment, whatever its connection is doing.
async fn a_call_that_is_given_up_loses_nothing(place: Place) {
    let work = place.open().await;
    let task = submit(&work, Task::new("mail")).await;
    for patience in (0..300).map(|number| Duration::from_micros(number * 10)) {
        let _ = tokio::time::timeout(patience, work.submit(Task::new("mail"))).await;
        let _ = tokio::time::timeout(patience, work.stats()).await;
        let _ = tokio::time::timeout(patience, work.task(task)).await;
    }
    assert!(work.task(task).await.unwrap().is_some());
    claim(&claimer(&work, &["mail"]).await).await;
}

on_every_store!(operators_and_workers_meet_and_nothing_is_lost, a_call_that_is_given_up_loses_nothing);
