//! Signals: one live task for each fingerprint.

use std::time::Duration;

use holdoff_work::{
    Action, Fault, Fingerprint, Payload, Signalled, StepFilter, Task, TaskId, TaskState, Work,
};

use crate::conformance::test_store::{
    HOUR, TestStore, claim, claimer, eventually, filter, list, on_every_store, on_shared_stores, settings,
};

fn disk_full() -> Fingerprint {
    Fingerprint::of(["disk", "full"])
}

async fn signal(work: &Work) -> Signalled {
    work.signal(disk_full(), Task::new("page").policy("hourly")).await.unwrap()
}

async fn created(work: &Work) -> TaskId {
    match signal(work).await {
        Signalled::Created(task) => task,
        duplicate @ Signalled::Duplicate { .. } => panic!("{duplicate:?}"),
        other => panic!("{other:?}"),
    }
}

async fn a_signal_counts_only_with_a_live_task(store: TestStore) {
    let work = store.open().await;
    assert_eq!(work.signal_again("default", disk_full()).await.unwrap(), None, "no signal was sent yet");
    assert_eq!(work.signal_task("default", disk_full()).await.unwrap(), None);
    let task = created(&work).await;
    assert_eq!(
        work.signal_task("default", disk_full()).await.unwrap(),
        Some(task),
        "reading the task of a signal does not count an occurrence"
    );
    assert_eq!(signal(&work).await, Signalled::Duplicate { task, occurrences: 2 });
    let again = work.signal_again("default", disk_full()).await.unwrap();
    assert_eq!(again, Some(Signalled::Duplicate { task, occurrences: 3 }));
    let elsewhere = work.signal(disk_full(), Task::new("page").namespace("eu")).await.unwrap();
    assert!(matches!(elsewhere, Signalled::Created(_)), "another namespace has its own signals");
    let claimer = work.claimer("tester", &["page"], &["default"]).await.unwrap();
    let running = claim(&claimer).await;
    assert_eq!(signal(&work).await, Signalled::Duplicate { task, occurrences: 4 });
    claimer.complete(&running, Payload::empty()).await.unwrap();
    assert_eq!(work.signal_again("default", disk_full()).await.unwrap(), None, "the task has succeeded");
    assert_eq!(work.signal_task("default", disk_full()).await.unwrap(), None);
    let next = created(&work).await;
    assert_ne!(next, task);
    assert_eq!(
        signal(&work).await,
        Signalled::Duplicate { task: next, occurrences: 2 },
        "the next task has its own count"
    );
}

async fn a_discarded_task_ends_the_suppression_at_once(store: TestStore) {
    let work = store.open().await;
    let task = created(&work).await;
    work.act(&StepFilter::task(task), &Action::Cancel).await.unwrap();
    assert_ne!(created(&work).await, task);
}

async fn a_failed_task_suppresses_signals_for_a_time(store: TestStore) {
    let mut settings = settings();
    settings.signals.suppress_failed = HOUR;
    let work = store.open_with(settings.clone()).await;
    let task = created(&work).await;
    let claimer = claimer(&work, &["page"]).await;
    claimer.fail(&claim(&claimer).await, Fault::permanent("no such pager")).await.unwrap();
    assert_eq!(signal(&work).await, Signalled::Duplicate { task, occurrences: 2 });
    settings.signals.suppress_failed = Duration::from_millis(1);
    let hasty = store.open_with(settings).await;
    let next = eventually("the suppression of the failed task has ended", || async {
        match signal(&hasty).await {
            Signalled::Created(task) => Some(task),
            _ => None,
        }
    });
    assert_ne!(next.await, task);
}

async fn signals_are_pruned_with_the_history(store: TestStore) {
    let mut settings = settings();
    settings.history.keep = Duration::ZERO;
    let work = store.open_with(settings).await;
    let task = created(&work).await;
    work.prune().await.unwrap();
    assert_eq!(
        signal(&work).await,
        Signalled::Duplicate { task, occurrences: 2 },
        "a prune keeps the signal of a live task"
    );
    work.act(&StepFilter::task(task), &Action::Cancel).await.unwrap();
    work.prune().await.unwrap();
    created(&work).await;
}

async fn signals_are_listed_with_their_task_states(store: TestStore) {
    let work = store.open().await;
    let other = Fingerprint::of(["disk", "gone"]);
    let task = created(&work).await;
    let next = work.signal(other, Task::new("page").namespace("eu")).await.unwrap().task();
    signal(&work).await;
    let all = work.signals(None, 10).await.unwrap();
    assert_eq!(
        all.iter().map(|signal| signal.task).collect::<Vec<_>>(),
        [task, next],
        "the latest signal is listed first"
    );
    let first = &all[0];
    assert_eq!((first.namespace.as_str(), &first.fingerprint), ("default", &disk_full().to_string()));
    assert_eq!((first.state, first.operation.as_str()), (TaskState::Running, "page"));
    assert_eq!((first.occurrences, first.first_at < first.last_at), (2, true));
    assert_eq!(work.signals(None, 1).await.unwrap(), all[..1]);
    assert_eq!(work.signals(Some("eu"), 10).await.unwrap(), all[1..]);
    let claimer = claimer(&work, &["page"]).await;
    for _ in 0..2 {
        claimer.fail(&claim(&claimer).await, Fault::permanent("no such pager")).await.unwrap();
    }
    assert!(work.signals(None, 10).await.unwrap().iter().all(|signal| signal.state == TaskState::Failed));
}

/// Here only the store deduplicates; there is no lock.
async fn a_hundred_concurrent_signals_create_one_task(store: TestStore) {
    let nodes = [store.open().await, store.open().await, store.open().await];
    for round in 0..10 {
        let fingerprint = Fingerprint::of([format!("round {round}")]);
        let mut signals = tokio::task::JoinSet::new();
        for number in 0..100 {
            let node = nodes[number % nodes.len()].clone();
            signals.spawn(async move { node.signal(fingerprint, Task::new("page")).await.unwrap() });
        }
        let fates = signals.join_all().await;
        let tasks: std::collections::BTreeSet<_> = fates.iter().map(Signalled::task).collect();
        assert_eq!(tasks.len(), 1, "{fates:?}");
        let mut counts: Vec<u64> = fates.iter().map(Signalled::occurrences).collect();
        counts.sort_unstable();
        assert_eq!(counts, (1..=100).collect::<Vec<_>>(), "each signal is counted once");
    }
    assert_eq!(list(&nodes[0], &filter(|_| ())).await.len(), 10);
}

on_every_store!(
    a_signal_counts_only_with_a_live_task,
    a_discarded_task_ends_the_suppression_at_once,
    signals_are_pruned_with_the_history,
    signals_are_listed_with_their_task_states,
);

mod shared {
    use super::{
        a_failed_task_suppresses_signals_for_a_time, a_hundred_concurrent_signals_create_one_task,
        on_shared_stores,
    };

    on_shared_stores!(
        a_failed_task_suppresses_signals_for_a_time,
        a_hundred_concurrent_signals_create_one_task
    );
}
