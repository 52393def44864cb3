//! Rescue of the steps of lost workers.

use std::collections::BTreeSet;
use std::time::Duration;

use holdoff_work::{
    Action, AttemptOutcome, Context, Error, FailureReason, Fault, Payload, Receipt, Settings, Step,
    StepFilter, StepRecord, StepState, Task, TaskId, TaskState, Work, Worker,
};

use crate::conformance::test_store::{
    HOUR, MINUTE, SECOND, TestStore, attempts, claim, claim_many, claimer, ends, eventually, execute, filter,
    list, nothing_is_due, on_every_store, on_shared_stores, settings, step, submit, submit_many,
};

/// A lease that is short, so that tests do not wait long for a rescue.
const LEASE: Duration = Duration::from_millis(300);

fn hasty() -> Settings {
    let mut settings = settings();
    settings.lease = LEASE;
    settings.requeue.rescue = Duration::from_millis(50);
    settings.max_rescues = 2;
    settings
}

/// Starts a worker that only does maintenance.
async fn janitor(work: &Work) -> Worker {
    work.worker().name("janitor").start().await.unwrap()
}

async fn rescued(work: &Work, task: TaskId, times: u32) -> StepRecord {
    let look = || async {
        let record = step(work, task.step(0)).await;
        (record.rescues >= times).then_some(record)
    };
    eventually("the step is rescued", look).await
}

/// The start-by times of all steps are moved into the past, so that nothing here depends on the time.
async fn no_attempt_begins_after_the_start_by_time(store: TestStore) {
    let work = store.open_with(hasty()).await;
    let claimer = claimer(&work, &["mail", "print"]).await;
    let mail = || Step::new("mail").policy("hourly").expires_in(HOUR);
    let retried = submit(&work, Task::of(mail())).await;
    claimer.fail(&claim(&claimer).await, Fault::transient("busy")).await.unwrap();
    let behind = Task::graph().step("first", Step::new("print")).step("behind", mail().after("first"));
    let behind = submit(&work, behind).await;
    let fresh = submit(&work, Task::of(mail())).await;
    let times = list(&work, &filter(|filter| filter.task = Some(fresh))).await.remove(0);
    assert_eq!(times.expires_at.unwrap().since(times.created_at), HOUR);
    let later = if store.is_postgres() {
        "update holdoff.steps set expires_at = expires_at - interval '2 hours'"
    } else {
        "update holdoff_steps set expires_at = expires_at - 7200000000"
    };
    execute(&store, later).await;

    let first = claim(&claimer).await;
    assert_eq!(first.operation(), "print", "an expired step is not claimed");
    nothing_is_due(&claimer).await;
    assert_eq!(step(&work, behind.step(1)).await.state, StepState::Blocked);
    claimer.complete(&first, Payload::empty()).await.unwrap();
    let janitor = janitor(&work).await;
    for (task, last, failures) in [(retried, 0, 1), (fresh, 0, 0), (behind, 1, 0)] {
        ends(&work, task, TaskState::Failed).await;
        let record = step(&work, task.step(last)).await;
        assert_eq!((record.state, record.failures), (StepState::Failed, failures));
        let why = (record.class.as_deref(), record.message.as_deref());
        assert_eq!(why, (Some("timeout"), Some("the step was not started by its start-by time")));
    }
    janitor.shutdown().await;

    // An operator who retries the step wants it to run.
    assert_eq!(work.act(&StepFilter::task(fresh), &Action::Retry).await.unwrap(), 1);
    claimer.complete(&claim(&claimer).await, Payload::empty()).await.unwrap();
    ends(&work, fresh, TaskState::Succeeded).await;
}

async fn a_step_of_a_lost_worker_is_requeued(store: TestStore) {
    let work = store.open_with(hasty()).await;
    let claimer = work.claimer("the lost one", &["mail"], &[]).await.unwrap();
    let task = submit(&work, Task::new("mail").policy("hourly")).await;
    claimer.claim(1, LEASE).await.unwrap();
    let janitor = janitor(&work).await;
    let record = rescued(&work, task, 1).await;
    assert_eq!((record.state, record.failures, record.snoozes, record.rescues), (StepState::Ready, 0, 0, 1));
    // The step's own policy determines the wait.
    let wait = record.due_at.unwrap().since(record.last_attempted_at.unwrap());
    assert!(wait >= 60 * MINUTE && wait < 62 * MINUTE, "{wait:?}");
    let kept = attempts(&work, task.step(0)).await;
    assert_eq!((kept.len(), kept[0].outcome, kept[0].token), (1, AttemptOutcome::Rescued, 1));
    assert_eq!((kept[0].worker.as_str(), kept[0].class.as_deref()), ("the lost one", Some("timeout")));
    assert!(kept[0].took >= LEASE);
    let delay = kept[0].delay.expect("the attempt records its delay");
    assert!(delay <= 60 * MINUTE && delay > 59 * MINUTE, "{delay:?}");
    janitor.shutdown().await;
}

async fn a_rescued_step_waits_at_least_the_configured_minimum(store: TestStore) {
    let mut settings = hasty();
    settings.requeue.rescue = MINUTE;
    let work = store.open_with(settings).await;
    let claimer = claimer(&work, &["mail"]).await;
    let task = submit(&work, Task::new("mail").policy("quick")).await;
    claimer.claim(1, LEASE).await.unwrap();
    let janitor = janitor(&work).await;
    let record = rescued(&work, task, 1).await;
    let wait = record.due_at.unwrap().since(record.last_attempted_at.unwrap());
    assert!(wait >= MINUTE && wait < 2 * MINUTE, "{wait:?}");
    janitor.shutdown().await;
}

async fn a_late_report_of_a_stale_worker_is_fenced(store: TestStore) {
    let work = store.open_with(hasty()).await;
    let claimer = claimer(&work, &["mail"]).await;
    let task = submit(&work, Task::new("mail")).await;
    let zombie = claimer.claim(1, LEASE).await.unwrap().pop().unwrap();
    let janitor = janitor(&work).await;
    rescued(&work, task, 1).await;
    let owner = claim(&claimer).await;
    assert!(owner.token() >= zombie.token() + 2);
    assert_eq!(owner.attempt(), 1, "a rescue does not count as a failure");
    assert_eq!(claimer.complete(&zombie, Payload::empty()).await.unwrap(), Receipt::Fenced);
    assert_eq!(claimer.fail(&zombie, Fault::permanent("late")).await.unwrap(), Receipt::Fenced);
    assert!(matches!(claimer.heartbeat(&zombie, MINUTE).await, Err(Error::Fenced { .. })));
    let record = step(&work, task.step(0)).await;
    assert_eq!((record.state, record.failures), (StepState::Running, 0));
    assert_eq!(claimer.complete(&owner, Payload::empty()).await.unwrap(), Receipt::Accepted);
    janitor.shutdown().await;
}

async fn a_step_fails_after_too_many_rescues(store: TestStore) {
    let work = store.open_with(hasty()).await;
    let claimer = claimer(&work, &["mail"]).await;
    let task = submit(&work, Task::new("mail")).await;
    let janitor = janitor(&work).await;
    for round in 1..=3 {
        eventually("a step to claim", || async { claimer.claim(1, LEASE).await.unwrap().pop() }).await;
        let record = rescued(&work, task, round).await;
        let expected = if round <= 2 { StepState::Ready } else { StepState::Failed };
        assert_eq!((record.state, record.failures), (expected, 0), "rescue {round}");
    }
    let record = step(&work, task.step(0)).await;
    assert!(record.message.unwrap().contains("its worker was lost too often"));
    assert_eq!(record.reason, Some(FailureReason::TooManyRescues));
    assert!(record.ended_at.is_some());
    let outcomes: Vec<_> =
        attempts(&work, task.step(0)).await.iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(outcomes, [AttemptOutcome::Rescued, AttemptOutcome::Rescued, AttemptOutcome::Rescued]);
    janitor.shutdown().await;
}

async fn rescued_steps_are_spread_out(store: TestStore) {
    let work = store.open_with(hasty()).await;
    let c = claimer(&work, &["mail"]).await;
    submit_many(&work, 3000, || Task::new("mail").policy("spread")).await;
    claim_many(&c, 3000, LEASE).await;
    let janitor = janitor(&work).await;
    let ready = filter(|filter| filter.states = vec![StepState::Ready]);
    let back = eventually("all steps are ready again", || async {
        let back = list(&work, &ready).await;
        (back.len() == 3000).then_some(back)
    })
    .await;
    assert!(back.iter().all(|record| record.rescues == 1 && record.failures == 0));
    let due: BTreeSet<i64> = back.iter().map(|record| record.due_at.unwrap().as_micros()).collect();
    assert!(due.len() > 2900, "{} different due times", due.len());
    let width = Duration::from_micros(due.last().unwrap().abs_diff(*due.first().unwrap()));
    assert!(width > 50 * SECOND, "{width:?}");
    janitor.shutdown().await;
}

async fn a_worker_with_heartbeats_is_not_rescued(store: TestStore) {
    // A busy machine may stall a worker for the whole of a short lease, and then its rescue is right.
    const RENEWABLE: Duration = Duration::from_secs(4);
    let mut settings = hasty();
    settings.lease = RENEWABLE;
    let work = store.open_with(settings).await;
    let slow = |_: Context, (): ()| async {
        tokio::time::sleep(RENEWABLE + SECOND).await;
        Ok::<_, Fault>(())
    };
    let worker = work.worker().handle("slow", slow).start().await.unwrap();
    let task = submit(&work, Task::new("slow")).await;
    ends(&work, task, TaskState::Succeeded).await;
    let record = work.task(task).await.unwrap().unwrap();
    assert_eq!((record.steps[0].rescues, record.attempts.len()), (0, 0));
    worker.shutdown().await;
}

async fn concurrent_nodes_rescue_each_step_once(store: TestStore) {
    let nodes =
        [store.open_with(hasty()).await, store.open_with(hasty()).await, store.open_with(hasty()).await];
    let c = claimer(&nodes[0], &["mail"]).await;
    submit_many(&nodes[0], 1500, || Task::new("mail").policy("hourly")).await;
    claim_many(&c, 1500, LEASE).await;
    let janitors = [janitor(&nodes[0]).await, janitor(&nodes[1]).await, janitor(&nodes[2]).await];
    let ready = filter(|filter| filter.states = vec![StepState::Ready]);
    let back = eventually("all steps are ready again", || async {
        let back = list(&nodes[0], &ready).await;
        (back.len() == 1500).then_some(back)
    })
    .await;
    assert!(back.iter().all(|record| record.rescues == 1));
    for record in back.iter().step_by(100) {
        assert_eq!(attempts(&nodes[0], record.id).await.len(), 1);
    }
    for janitor in janitors {
        janitor.shutdown().await;
    }
}

on_every_store!(
    a_step_of_a_lost_worker_is_requeued,
    a_rescued_step_waits_at_least_the_configured_minimum,
    a_late_report_of_a_stale_worker_is_fenced,
    a_step_fails_after_too_many_rescues,
    rescued_steps_are_spread_out,
    a_worker_with_heartbeats_is_not_rescued,
);

mod shared {
    use super::{
        concurrent_nodes_rescue_each_step_once, no_attempt_begins_after_the_start_by_time, on_shared_stores,
    };

    on_shared_stores!(concurrent_nodes_rescue_each_step_once, no_attempt_begins_after_the_start_by_time);
}
