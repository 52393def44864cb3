//! Steps that one node claims and another node reports.

use holdoff_work::{AttemptOutcome, Fault, Payload, Receipt, Step, StepState, Task};

use crate::conformance::test_store::{
    MINUTE, TestStore, attempts, claim, claimer, on_shared_stores, step, submit,
};

async fn a_step_is_reported_through_another_node(store: TestStore) {
    let (here, there) = (store.open().await, store.open().await);
    let task = submit(&here, Task::new("mail")).await;
    let mine = claimer(&here, &["mail"]).await;
    let others = claimer(&there, &[]).await;

    let claimed = claim(&mine).await;
    let held = others.held(claimed.step(), claimed.token()).await.unwrap();
    assert_eq!((held.operation(), held.attempt()), ("mail", 1));
    others.heartbeat(&held, MINUTE).await.unwrap();
    assert_eq!(others.fail(&held, Fault::permanent("no")).await.unwrap(), Receipt::Accepted);
    assert_eq!(step(&here, task.step(0)).await.state, StepState::Failed);

    // A repeated report is answered with the recorded outcome; a report under a lease that was never granted is
    // fenced.
    let late = mine.held(claimed.step(), claimed.token()).await.unwrap();
    let recorded = Receipt::Recorded(AttemptOutcome::Failed);
    assert_eq!(mine.complete(&late, Payload::empty()).await.unwrap(), recorded);
    assert_eq!(mine.fail(&late, Fault::transient("x")).await.unwrap(), recorded);
    let never = mine.held(claimed.step(), 77).await.unwrap();
    assert_eq!(mine.complete(&never, Payload::empty()).await.unwrap(), Receipt::Fenced);
    assert!(mine.heartbeat(&never, MINUTE).await.is_err());
    assert_eq!(attempts(&here, task.step(0)).await.len(), 1);
}

/// A lease number is easy to guess, and a step that was never claimed has one too.
async fn a_report_on_a_step_that_is_not_held_is_fenced(store: TestStore) {
    let work = store.open().await;
    let first = Step::new("first").delay(MINUTE);
    let task = submit(&work, Task::graph().step("a", first).step("b", Step::new("second").after("a"))).await;
    let other = claimer(&work, &["first", "second"]).await;
    for (number, state) in [(0, StepState::Ready), (1, StepState::Blocked)] {
        let id = task.step(number);
        for token in 0..2 {
            let guess = other.held(id, token).await.unwrap();
            assert!(other.heartbeat(&guess, MINUTE).await.is_err());
            assert_eq!(other.complete(&guess, Payload::empty()).await.unwrap(), Receipt::Fenced);
            assert_eq!(other.fail(&guess, Fault::permanent("x")).await.unwrap(), Receipt::Fenced);
            assert_eq!(other.snooze(&guess, MINUTE, "x").await.unwrap(), Receipt::Fenced);
        }
        assert_eq!(step(&work, id).await.state, state);
        assert!(attempts(&work, id).await.is_empty());
    }

    let failing = submit(&work, Task::new("first")).await;
    let claimed = claim(&other).await;
    other.fail(&claimed, Fault::permanent("no")).await.unwrap();
    let next = other.held(claimed.step(), claimed.token() + 1).await.unwrap();
    assert_eq!(other.snooze(&next, MINUTE, "x").await.unwrap(), Receipt::Fenced);
    assert_eq!(step(&work, failing.step(0)).await.state, StepState::Failed);
    assert_eq!(attempts(&work, failing.step(0)).await.len(), 1);
}

async fn earlier_attempts_count_on_every_node(store: TestStore) {
    let (here, there) = (store.open().await, store.open().await);
    let task = submit(&here, Task::new("mail").policy("lock-aggressive")).await;
    let mine = claimer(&here, &["mail"]).await;
    let others = claimer(&there, &[]).await;
    let mut failures = 0;
    while let [claimed, ..] = &*mine.claim_within(1, MINUTE, MINUTE).await.unwrap() {
        let held = others.held(claimed.step(), claimed.token()).await.unwrap();
        failures += 1;
        assert_eq!(held.attempt(), failures);
        others.fail(&held, Fault::transient("busy")).await.unwrap();
        if step(&there, task.step(0)).await.state == StepState::Failed {
            break;
        }
    }
    assert!(failures > 1, "the policy grants more than one attempt");
}

on_shared_stores!(
    a_step_is_reported_through_another_node,
    a_report_on_a_step_that_is_not_held_is_fenced,
    earlier_attempts_count_on_every_node,
);
