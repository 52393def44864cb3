//! Actions of operators, which affect all matching steps and no others.

use std::collections::BTreeSet;

use holdoff_work::{
    Action, Claimer, Error, Fault, Filter, InvalidTask, Page, Pausable, Payload, Step, StepId, StepState,
    Task, Work,
};

use crate::conformance::place::{
    HOUR, Place, attempts, claim, claim_many, claimer, filter, ids, nothing_is_due, on_every_store, step,
    submit, submit_many,
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

fn queue(name: &str) -> Filter {
    filter(|filter| filter.queue = Some(name.to_owned()))
}

async fn retry_makes_failed_and_conflicted_steps_ready(place: Place) {
    let work = place.open().await;
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
    assert_eq!(attempts(&work, one).await.len(), 1, "what was is still on record");
}

async fn resolve_makes_conflicted_steps_ready_with_another_payload(place: Place) {
    let work = place.open().await;
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
    let refused = work.act(&Filter::default(), &Action::Resolve(Some(large))).await;
    assert!(matches!(refused, Err(Error::Invalid(InvalidTask::PayloadTooLarge { .. }))));
}

async fn discard_gives_failed_and_conflicted_steps_up(place: Place) {
    let work = place.open().await;
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
    assert!(record.ended_at.is_some() && record.message.is_some(), "why is still on record");
}

async fn cancel_ends_whole_tasks_whatever_their_steps_do(place: Place) {
    let work = place.open().await;
    troubled(&work).await;
    let failed = filter(|filter| filter.states = vec![StepState::Failed]);
    assert_eq!(work.act(&failed, &Action::Cancel).await.unwrap(), 20);
    assert_eq!(counts(&work, "a").await, [10, 0, 10, 0, 10]);
    assert_eq!(work.act(&queue("a"), &Action::Cancel).await.unwrap(), 20);
    assert_eq!(counts(&work, "a").await, [0, 0, 0, 0, 30]);
    assert_eq!(counts(&work, "b").await, [10, 0, 10, 0, 10]);
}

async fn a_paused_queue_gives_nothing_out(place: Place) {
    let work = place.open().await;
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
    assert_eq!(claim(&claimer).await.step().task, abroad, "another namespace has queues of its own");
    work.resume("default", Pausable::Queue, "a").await.unwrap();
    let mut left = 3;
    while left > 0 {
        claim(&claimer).await;
        left -= 1;
    }
    assert!(work.stats().await.unwrap().iter().all(|lane| !lane.paused));
}

async fn a_paused_operation_gives_nothing_out(place: Place) {
    let work = place.open().await;
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

async fn what_runs_goes_on_while_its_queue_is_paused(place: Place) {
    let work = place.open().await;
    let claimer = claimer(&work, &["mail"]).await;
    let task = submit(&work, Task::new("mail")).await;
    let claimed = claim(&claimer).await;
    work.pause("default", Pausable::Queue, "default").await.unwrap();
    claimer.heartbeat(&claimed, HOUR).await.unwrap();
    claimer.complete(&claimed, Payload::empty()).await.unwrap();
    assert_eq!(step(&work, task.step(0)).await.state, StepState::Succeeded);
}

async fn what_would_be_done_is_counted(place: Place) {
    let work = place.open().await;
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
    assert_eq!(counts(&work, "a").await, [10, 10, 10, 0, 0], "nothing was done");
    assert_eq!(work.act(&queue("c"), &Action::Cancel).await.unwrap(), 2);
}

async fn a_step_that_moved_since_somebody_looked_is_left_alone(place: Place) {
    let work = place.open().await;
    let claimer = claimer(&work, &["mail"]).await;
    submit(&work, Task::new("mail").json("old")).await;
    let claimed = claim(&claimer).await;
    claimer.fail(&claimed, Fault::conflict("both")).await.unwrap();
    let seen = work.list(&Filter::step(claimed.step()), &Page::first(1)).await.unwrap();
    let unmoved = filter(|filter| (filter.step, filter.token) = (Some(seen[0].id), Some(seen[0].token)));

    assert_eq!(work.act(&Filter::step(claimed.step()), &Action::Resolve(None)).await.unwrap(), 1);
    let again = claim(&claimer).await;
    claimer.fail(&again, Fault::conflict("still")).await.unwrap();
    let new = Action::Resolve(Some(Payload::json("new").unwrap()));
    assert_eq!(work.act(&unmoved, &new).await.unwrap(), 0, "it was resolved by another meanwhile");
    let seen = work.list(&Filter::step(claimed.step()), &Page::first(1)).await.unwrap();
    let unmoved = filter(|filter| (filter.step, filter.token) = (Some(seen[0].id), Some(seen[0].token)));
    assert_eq!(work.act(&unmoved, &new).await.unwrap(), 1);
}

on_every_store!(
    retry_makes_failed_and_conflicted_steps_ready,
    resolve_makes_conflicted_steps_ready_with_another_payload,
    discard_gives_failed_and_conflicted_steps_up,
    cancel_ends_whole_tasks_whatever_their_steps_do,
    a_paused_queue_gives_nothing_out,
    a_paused_operation_gives_nothing_out,
    what_runs_goes_on_while_its_queue_is_paused,
    what_would_be_done_is_counted,
    a_step_that_moved_since_somebody_looked_is_left_alone,
);
