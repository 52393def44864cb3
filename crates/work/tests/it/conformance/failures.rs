//! Steps that did not succeed: their next state, and the records that are kept.

use std::time::Duration;

use holdoff_policy::{Class, Failure};
use holdoff_work::{
    Action, AttemptOutcome, DelaySource, FailureReason, Fault, Payload, Receipt, StepFilter, StepState, Task,
    TaskState,
};

use crate::conformance::test_store::{
    HOUR, MINUTE, SECOND, TestStore, attempts, claim, claimer, nothing_is_due, on_every_store, step, submit,
};

async fn a_failed_attempt_waits_by_its_policy(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail").policy("hourly")).await;
    let claimer = claimer(&work, &["mail"]).await;
    claimer.fail(&claim(&claimer).await, Fault::transient("busy")).await.unwrap();
    let record = step(&work, task.step(0)).await;
    assert_eq!((record.state, record.failures, record.snoozes), (StepState::Ready, 1, 0));
    assert_eq!((record.class.as_deref(), record.message.as_deref()), (Some("transient"), Some("busy")));
    assert!(record.due_at.unwrap().since(record.last_attempted_at.unwrap()) >= HOUR);
    assert_eq!(attempts(&work, task.step(0)).await[0].delay, Some(HOUR));
    nothing_is_due(&claimer).await;
}

async fn retry_after_is_a_floor_of_the_wait(store: TestStore) {
    let work = store.open().await;
    let claimer = claimer(&work, &["mail"]).await;
    for (policy, hint, wait, source) in [
        ("hourly", MINUTE, HOUR, DelaySource::Policy),
        ("hourly", 3 * HOUR, 3 * HOUR, DelaySource::Server),
        ("quick", HOUR, HOUR, DelaySource::Server),
    ] {
        let task = submit(&work, Task::new("mail").policy(policy)).await;
        claimer.fail(&claim(&claimer).await, Fault::transient("x").retry_after(hint)).await.unwrap();
        let attempt = &attempts(&work, task.step(0)).await[0];
        assert_eq!((attempt.delay, attempt.retry_after), (Some(wait), Some(hint)), "{policy}, {hint:?}");
        assert_eq!(attempt.delay_source, Some(source), "{policy}, {hint:?}");
    }
}

async fn a_retry_after_beyond_the_limit_fails_the_step(store: TestStore) {
    let work = store.open().await;
    let claimer = claimer(&work, &["mail"]).await;
    let task = submit(&work, Task::new("mail")).await;
    claimer.fail(&claim(&claimer).await, Fault::transient("x").retry_after(25 * HOUR)).await.unwrap();
    let attempt = &attempts(&work, task.step(0)).await[0];
    assert_eq!((attempt.retry_after, attempt.delay_source), (Some(25 * HOUR), None));
    assert_eq!(attempt.reason, Some(FailureReason::RetryAfterTooLong));
    let failed = StepFilter::step(task.step(0));
    assert_eq!(step(&work, task.step(0)).await.reason, Some(FailureReason::RetryAfterTooLong));
    // An operator's retry begins anew; a discarded step keeps its reason.
    work.act(&failed, &Action::Retry).await.unwrap();
    assert_eq!(step(&work, task.step(0)).await.reason, None);
    claimer.fail(&claim(&claimer).await, Fault::permanent("x")).await.unwrap();
    work.act(&failed, &Action::Discard).await.unwrap();
    let record = step(&work, task.step(0)).await;
    assert_eq!((record.state, record.reason), (StepState::Discarded, Some(FailureReason::Permanent)));
}

async fn a_permanent_failure_fails_the_step(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail")).await;
    let claimer = claimer(&work, &["mail"]).await;
    let receipt = claimer.fail(&claim(&claimer).await, Fault::permanent("no such mailbox")).await.unwrap();
    assert_eq!(receipt, Receipt::Accepted);
    let record = work.task(task).await.unwrap().unwrap();
    assert_eq!((record.state, record.steps[0].state), (TaskState::Failed, StepState::Failed));
    assert!(record.steps[0].ended_at.is_some() && record.steps[0].due_at.is_none());
    let attempt = &record.attempts[0];
    assert_eq!((attempt.outcome, attempt.delay, attempt.attempt), (AttemptOutcome::Failed, None, 1));
    assert_eq!(attempt.class.as_deref(), Some("permanent"));
    nothing_is_due(&claimer).await;
}

async fn a_conflict_waits_for_an_operator(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail")).await;
    let claimer = claimer(&work, &["mail"]).await;
    claimer.fail(&claim(&claimer).await, Fault::conflict("it is there already")).await.unwrap();
    let record = step(&work, task.step(0)).await;
    assert_eq!((record.state, record.class.as_deref()), (StepState::Conflicted, Some("conflict")));
    nothing_is_due(&claimer).await;
}

async fn all_exhausted_attempts_are_recorded(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail")).await;
    let claimer = work.claimer("node seven", &["mail"], &[]).await.unwrap();
    let mut tokens = Vec::new();
    for number in 1..=3 {
        let claimed = claim(&claimer).await;
        assert_eq!(claimed.attempt(), number);
        tokens.push(claimed.token());
        tokio::time::sleep(Duration::from_millis(15)).await;
        let text = format!("attempt {number}\n with password=hunter2 {}", "x".repeat(1000));
        let failure = Failure::new(if number == 2 { Class::Timeout } else { Class::Transient });
        claimer.fail(&claimed, Fault::new(failure, text)).await.unwrap();
    }
    nothing_is_due(&claimer).await;
    let record = work.task(task).await.unwrap().unwrap();
    assert_eq!((record.steps[0].state, record.steps[0].failures), (StepState::Failed, 3));
    assert_eq!(record.steps[0].reason, Some(FailureReason::Exhausted));
    let kept = &record.attempts;
    assert_eq!(kept.iter().map(|attempt| attempt.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(kept.iter().map(|attempt| attempt.token).collect::<Vec<_>>(), tokens);
    let outcomes: Vec<_> = kept.iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(outcomes, [AttemptOutcome::Retried, AttemptOutcome::Retried, AttemptOutcome::Failed]);
    let delays: Vec<_> = kept.iter().map(|attempt| attempt.delay).collect();
    let wait = Some(Duration::from_millis(20));
    assert_eq!(delays, [wait, wait, None]);
    let classes: Vec<_> = kept.iter().map(|attempt| attempt.class.as_deref().unwrap()).collect();
    assert_eq!(classes, ["transient", "timeout", "transient"]);
    for (number, attempt) in (1..).zip(kept) {
        assert_eq!(attempt.worker, "node seven");
        assert!(attempt.took >= Duration::from_millis(10) && attempt.took < MINUTE);
        let text = attempt.message.as_deref().unwrap();
        assert!(text.starts_with(&format!("attempt {number}  with password=… xx")), "{text}");
        assert!(!text.contains("hunter2") && text.chars().count() <= 500);
        assert!(record.now.since(attempt.started_at) < 10 * MINUTE);
    }
    assert!(kept.windows(2).all(|pair| pair[0].started_at < pair[1].started_at));
}

async fn a_snooze_uses_no_attempt(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail")).await;
    let claimer = claimer(&work, &["mail"]).await;
    for _ in 0..5 {
        let claimed = claim(&claimer).await;
        assert_eq!(claimed.attempt(), 1);
        claimer.snooze(&claimed, Duration::ZERO, "closed").await.unwrap();
    }
    claimer.fail(&claim(&claimer).await, Fault::snooze(HOUR, "closed for long")).await.unwrap();
    let record = step(&work, task.step(0)).await;
    assert_eq!((record.state, record.failures, record.snoozes), (StepState::Ready, 0, 6));
    assert!(record.due_at.unwrap().since(record.last_attempted_at.unwrap()) >= HOUR);
    assert_eq!((record.class, record.message), (None, None), "a snooze does not count as a failure");
    let kept = attempts(&work, task.step(0)).await;
    assert!(kept.iter().all(|attempt| attempt.outcome == AttemptOutcome::Snoozed));
    assert_eq!((kept.len(), kept[5].delay), (6, Some(HOUR)));
}

async fn the_deadline_covers_all_attempts(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail").policy("short")).await;
    let claimer = claimer(&work, &["mail"]).await;
    let mut attempts = 0;
    while step(&work, task.step(0)).await.state == StepState::Ready {
        claimer.fail(&claim(&claimer).await, Fault::transient("x")).await.unwrap();
        attempts += 1;
    }
    // Two seconds allow three waits of half a second.
    assert!((2..=4).contains(&attempts), "{attempts}");
    let record = step(&work, task.step(0)).await;
    assert_eq!((record.state, record.reason), (StepState::Failed, Some(FailureReason::Deadline)));
}

async fn the_deadline_begins_with_the_first_failed_attempt(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail").policy("short")).await;
    let claimer = claimer(&work, &["mail"]).await;
    claimer.snooze(&claim(&claimer).await, 2 * SECOND + SECOND / 10, "closed").await.unwrap();
    claimer.fail(&claim(&claimer).await, Fault::transient("x")).await.unwrap();
    assert_eq!(
        step(&work, task.step(0)).await.state,
        StepState::Ready,
        "a snooze does not start the deadline"
    );
    claimer.fail(&claim(&claimer).await, Fault::transient("x")).await.unwrap();
    assert_eq!(step(&work, task.step(0)).await.state, StepState::Ready, "the deadline has not passed");
}

async fn success_after_failures_keeps_the_attempts(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail")).await;
    let claimer = claimer(&work, &["mail"]).await;
    claimer.fail(&claim(&claimer).await, Fault::transient("x")).await.unwrap();
    claimer.complete(&claim(&claimer).await, Payload::json("sent").unwrap()).await.unwrap();
    let record = work.task(task).await.unwrap().unwrap();
    assert_eq!((record.state, record.attempts.len()), (TaskState::Succeeded, 1));
    let step = &record.steps[0];
    assert_eq!((step.state, step.failures), (StepState::Succeeded, 1));
    assert_eq!(step.output.as_ref().unwrap().read::<String>().unwrap(), "sent");
    assert!(step.ended_at.unwrap() >= step.last_attempted_at.unwrap());
}

async fn an_endlessly_requeued_step_keeps_its_latest_attempts(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail")).await;
    let claimer = claimer(&work, &["mail"]).await;
    for _ in 0..520 {
        claimer.snooze(&claim(&claimer).await, Duration::ZERO, "again").await.unwrap();
    }
    let kept = attempts(&work, task.step(0)).await;
    assert!((490..=510).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept.iter().map(|attempt| attempt.token).max(), Some(1039));
    assert_eq!(step(&work, task.step(0)).await.snoozes, 520);
}

on_every_store!(
    a_failed_attempt_waits_by_its_policy,
    retry_after_is_a_floor_of_the_wait,
    a_retry_after_beyond_the_limit_fails_the_step,
    a_permanent_failure_fails_the_step,
    a_conflict_waits_for_an_operator,
    all_exhausted_attempts_are_recorded,
    a_snooze_uses_no_attempt,
    the_deadline_covers_all_attempts,
    the_deadline_begins_with_the_first_failed_attempt,
    success_after_failures_keeps_the_attempts,
    an_endlessly_requeued_step_keeps_its_latest_attempts,
);
