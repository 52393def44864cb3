//! Lists of tasks.

use holdoff_work::{
    Fault, Filter, Fingerprint, Payload, Step, StepState, Submitted, Task, TaskId, TaskRecord, TaskState,
    Work,
};

use crate::conformance::place::{HOUR, Place, claim, claimer, filter, on_every_store, submit};

/// Returns all tasks, by pages of this size.
async fn all(work: &Work, filter: &Filter, state: Option<TaskState>, limit: u32) -> Vec<TaskId> {
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let page = work.tasks(filter, state, before, limit).await.unwrap();
        assert!(page.tasks.len() <= limit as usize);
        all.extend(page.tasks.iter().map(|task| task.id));
        before = page.next;
        if before.is_none() {
            return all;
        }
    }
}

async fn tasks_are_listed_once_by_what_their_steps_say(place: Place) {
    let work = place.open().await;
    let claimer = claimer(&work, &["mail"]).await;
    let mut done = Vec::new();
    for _ in 0..7 {
        done.push(submit(&work, Task::new("mail")).await);
        claimer.complete(&claim(&claimer).await, Payload::empty()).await.unwrap();
    }
    let failed = submit(&work, Task::new("mail").namespace("elsewhere")).await;
    claimer.fail(&claim(&claimer).await, Fault::permanent("no")).await.unwrap();
    let graph =
        Task::graph().step("x", Step::new("first").delay(HOUR)).step("y", Step::new("mail").after("x"));
    let running = submit(&work, graph).await;

    let newest_first: Vec<TaskId> = [running, failed].into_iter().chain(done.iter().rev().copied()).collect();
    for limit in [1, 2, 100] {
        assert_eq!(all(&work, &Filter::default(), None, limit).await, newest_first);
        assert_eq!(
            all(&work, &Filter::default(), Some(TaskState::Succeeded), limit).await,
            newest_first[2..]
        );
        assert_eq!(all(&work, &Filter::default(), Some(TaskState::Running), limit).await, [running]);
    }
    let elsewhere = filter(|filter| filter.namespace = Some("elsewhere".to_owned()));
    let page = work.tasks(&elsewhere, None, None, 10).await.unwrap();
    assert_eq!((page.tasks.len(), page.next), (1, None));
    let task = &page.tasks[0];
    assert_eq!(
        (task.id, task.state, &*task.namespace, &*task.operation),
        (failed, TaskState::Failed, "elsewhere", "mail")
    );
    assert!(task.ended_at.is_some_and(|ended| ended >= task.created_at));

    let page = work.tasks(&Filter::task(running), None, None, 10).await.unwrap();
    let task = &page.tasks[0];
    assert_eq!((&*task.operation, task.state, task.ended_at), ("first", TaskState::Running, None));
    assert_eq!(task.steps, [(StepState::Blocked, 1), (StepState::Ready, 1)]);
}

async fn what_was_asked_for_under_a_key_is_known(place: Place) {
    let work = place.open().await;
    let [one, other] = ["one", "other"].map(|body| Fingerprint::of(["key", body]));
    let first = work.submit(Task::new("mail").dedup("key").mark(one)).await.unwrap();
    assert!(matches!(first, Submitted::Created(_)) && first.task().bears(one));
    for (mark, is_same) in [(one, true), (other, false)] {
        let again = work.submit(Task::new("mail").dedup("key").mark(mark)).await.unwrap();
        assert_eq!(again, Submitted::Duplicate(first.task()));
        assert_eq!(again.task().bears(mark), is_same);
    }
}

async fn a_task_is_seen_without_its_payloads(place: Place) {
    let work = place.open().await;
    let graph =
        Task::graph().step("a", Step::new("mail").json(&1)).step("b", Step::new("mail").after("a").json(&2));
    let task = submit(&work, graph).await;
    let claimer = claimer(&work, &["mail"]).await;
    claimer.complete(&claim(&claimer).await, Payload::json(&3).unwrap()).await.unwrap();
    let whole = work.task(task).await.unwrap().unwrap();
    assert!(whole.steps[0].output.is_some() && whole.steps[1].payload.is_some());
    let outline = work.task_outline(task).await.unwrap().unwrap();
    assert!(outline.steps.iter().all(|step| step.output.is_none() && step.payload.is_none()), "{outline:?}");
    let states = |task: &TaskRecord| task.steps.iter().map(|step| step.state).collect::<Vec<_>>();
    assert_eq!((outline.state, states(&outline)), (whole.state, states(&whole)));
    assert!(work.task_outline(TaskId::from_uuid(uuid::Uuid::nil())).await.unwrap().is_none());
}

on_every_store!(
    a_task_is_seen_without_its_payloads,
    tasks_are_listed_once_by_what_their_steps_say,
    what_was_asked_for_under_a_key_is_known
);
