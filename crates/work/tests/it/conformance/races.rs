//! Known races between writers and readers of a retry's time, and that none of them is possible here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdoff_work::{ClaimedStep, Fault, Receipt, StepId, StepState, Submitted, Task};

use crate::conformance::contention::nodes;
use crate::conformance::test_store::{
    HOUR, MINUTE, SECOND, TestStore, attempts, claim, claim_many, claimer, filter, list, on_every_store,
    on_shared_stores, step, submit, submit_many,
};

/// Several nodes report the same failure with different waits. The store accepts one report, and its wait stays.
async fn concurrent_backoff_updates_do_not_overwrite_each_other(store: TestStore) {
    let nodes = nodes(&store, 5).await;
    let work = nodes[0].0.clone();
    submit_many(&work, 60, || Task::new("mail")).await;
    let claims = Arc::new(claim_many(&nodes[0].1, 60, HOUR).await);
    let mut reporting = Vec::new();
    for (number, (_, claimer)) in (1..).zip(nodes) {
        let claims = Arc::clone(&claims);
        reporting.push(tokio::spawn(async move {
            let mut reported: Vec<(StepId, Duration)> = Vec::new();
            for claimed in claims.iter() {
                let wait = HOUR * number;
                let fault = Fault::transient(format!("{number}")).retry_after(wait);
                if claimer.fail(claimed, fault).await.unwrap() == Receipt::Accepted {
                    reported.push((claimed.step(), wait));
                }
            }
            reported
        }));
    }
    let mut decided = BTreeMap::new();
    for node in reporting {
        for (step, wait) in node.await.unwrap() {
            assert_eq!(decided.insert(step, wait), None, "two reports of {step} were accepted");
        }
    }
    assert!(!decided.is_empty());
    let records = list(&work, &filter(|_| ())).await;
    assert_eq!(records.len(), claims.len());
    for record in records {
        let kept = attempts(&work, record.id).await;
        let wait = HOUR * kept[0].message.as_deref().unwrap().parse::<u32>().unwrap();
        assert_eq!((kept.len(), kept[0].delay, record.failures), (1, Some(wait), 1));
        // If the response to an accepted report was lost, its node knows only that an outcome was recorded.
        assert!(decided.get(&record.id).is_none_or(|reported| *reported == wait), "{}", record.id);
        let until = record.due_at.unwrap().since(record.last_attempted_at.unwrap());
        assert!(until >= wait && until < wait + 10 * MINUTE, "the step is due after {until:?}, not {wait:?}");
        assert_eq!(record.message, kept[0].message);
    }
}

/// A concurrent reader sees either a running step or one with its complete wait, and can claim neither.
async fn readiness_never_sees_a_half_written_failure(store: TestStore) {
    let work = store.open().await;
    submit_many(&work, 300, || Task::new("mail").policy("hourly")).await;
    let claimer = Arc::new(claimer(&work, &["mail"]).await);
    let claims: Vec<ClaimedStep> = claim_many(&claimer, 300, HOUR).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn({
        let (work, is_over) = (work.clone(), Arc::clone(&is_over));
        async move {
            let mut seen = 0;
            while !is_over.load(Ordering::Relaxed) {
                for record in list(&work, &filter(|filter| filter.states = vec![StepState::Ready])).await {
                    assert_eq!(record.failures, 1);
                    assert!(record.due_at.unwrap().since(record.created_at) > HOUR, "{record:?}");
                    assert!(record.message.is_some());
                    seen += 1;
                }
            }
            seen
        }
    });
    let thief = tokio::spawn({
        let (claimer, is_over) = (Arc::clone(&claimer), Arc::clone(&is_over));
        async move {
            while !is_over.load(Ordering::Relaxed) {
                let stolen = claimer.claim(10, MINUTE).await.unwrap();
                assert!(stolen.is_empty(), "a step was claimed before its due time: {stolen:?}");
            }
        }
    });
    for claimed in &claims {
        claimer.fail(claimed, Fault::transient("busy")).await.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    thief.await.unwrap();
    let seen: usize = reader.await.unwrap();
    assert!(seen > 0, "the reader made no reads");
}

/// The record of the attempt, its time and the next due time are written together: no later write changes one of
/// them.
async fn attempt_time_and_delay_are_written_atomically(store: TestStore) {
    let work = store.open().await;
    let task = submit(&work, Task::new("mail").policy("hourly")).await;
    let claimer = claimer(&work, &["mail"]).await;
    let claimed = claim(&claimer).await;
    let begun = step(&work, task.step(0)).await.last_attempted_at.unwrap();
    claimer.fail(&claimed, Fault::transient("busy")).await.unwrap();
    let record = step(&work, task.step(0)).await;
    let kept = attempts(&work, task.step(0)).await.pop().unwrap();
    assert_eq!((record.last_attempted_at, kept.started_at), (Some(begun), begun));
    // The step is due an hour after its run ended. The end of the run is its start plus its duration, and the
    // difference is the transmission of the report.
    let due = record.due_at.unwrap().as_micros();
    let ended = begun.as_micros() + i64::try_from(kept.took.as_micros()).unwrap();
    let wait = i64::try_from(kept.delay.unwrap().as_micros()).unwrap();
    let way = due - wait - ended;
    assert!((0..i64::try_from((10 * SECOND).as_micros()).unwrap()).contains(&way), "{way} µs");
    // Later reports under the same lease change nothing.
    for late in [Fault::transient("late").retry_after(2 * HOUR), Fault::permanent("late")] {
        claimer.fail(&claimed, late).await.unwrap();
    }
    let _ = claimer.heartbeat(&claimed, MINUTE).await;
    let again = step(&work, task.step(0)).await;
    assert_eq!(format!("{record:?}"), format!("{again:?}"));
}

/// A key without retention belongs to its task while the task is live. Two nodes submit under the same keys.
async fn a_key_without_retention_has_one_live_task(store: TestStore) {
    let nodes = [store.open().await, store.open().await];
    for round in 0..50 {
        let task = || Task::new("mail").dedup(format!("{round}")).dedup_retention(Duration::ZERO);
        let (first, second) = tokio::join!(nodes[0].submit(task()), nodes[1].submit(task()));
        let submitted = [first.unwrap(), second.unwrap()];
        let created = submitted.iter().filter(|result| matches!(result, Submitted::Created(_))).count();
        assert_eq!(created, 1, "round {round}: {submitted:?}");
    }
}

on_every_store!(readiness_never_sees_a_half_written_failure, attempt_time_and_delay_are_written_atomically,);

mod shared {
    use super::{
        a_key_without_retention_has_one_live_task, concurrent_backoff_updates_do_not_overwrite_each_other,
        on_shared_stores,
    };

    on_shared_stores!(
        concurrent_backoff_updates_do_not_overwrite_each_other,
        a_key_without_retention_has_one_live_task,
    );
}
