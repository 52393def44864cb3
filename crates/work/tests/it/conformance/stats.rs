//! Recent activity and the list of nodes.

use std::time::Duration;

use holdoff_work::{Fault, HttpStep, Payload, StatsBucket, StatsWindow, StepFilter, Task, Work};

use crate::conformance::test_store::{
    HOUR, MINUTE, TestStore, claim, claimer, eventually, on_every_store, on_shared_stores, submit_many,
};

/// Sums all buckets of a window.
fn total(pulse: &StatsWindow) -> StatsBucket {
    pulse.buckets.iter().fold(StatsBucket::default(), |mut sum, beat| {
        sum.submitted += beat.submitted;
        sum.succeeded += beat.succeeded;
        sum.retried += beat.retried;
        sum.failed += beat.failed + beat.conflicted;
        sum.other += beat.other;
        sum
    })
}

/// Returns the recent activity as soon as it contains this number of runs.
async fn after(work: &Work, namespace: Option<&str>, window: Duration, runs: u64) -> StatsWindow {
    eventually("the statistics contain all runs", || async {
        let pulse = work.recent_stats(namespace, window).await.unwrap();
        let sum = total(&pulse);
        Some(pulse).filter(|_| sum.succeeded + sum.retried + sum.failed + sum.other >= runs)
    })
    .await
}

async fn ended_runs_are_counted_by_outcome(store: TestStore) {
    let work = store.open().await;
    submit_many(&work, 5, || Task::new("charge").policy("quick")).await;
    submit_many(&work, 1, || Task::new("charge").namespace("eu")).await;
    let c = claimer(&work, &["charge"]).await.with_selection(
        vec!["default".into()],
        vec![],
        vec!["charge".into()],
    );
    for fault in [Fault::permanent("no"), Fault::conflict("taken"), Fault::transient("busy")] {
        c.fail(&claim(&c).await, fault).await.unwrap();
    }
    let next = claim(&c).await;
    c.snooze(&next, Duration::ZERO, "later").await.unwrap();
    for _ in 0..3 {
        c.complete(&claim(&c).await, Payload::empty()).await.unwrap();
    }
    for window in [MINUTE, 15 * MINUTE, HOUR, 24 * HOUR] {
        let pulse = after(&work, Some("default"), window, 7).await;
        let sum = total(&pulse);
        assert_eq!((sum.submitted, sum.succeeded, sum.retried, sum.failed, sum.other), (5, 3, 1, 2, 1));
        assert_eq!(pulse.attempts, [(1, 1)]);
        let mut classes = pulse.classes.clone();
        classes.sort();
        assert_eq!(
            classes,
            [("conflict", 1), ("permanent", 1), ("transient", 1)].map(|(c, n)| (c.to_owned(), n))
        );
        let charge = &pulse.operations[0];
        assert_eq!((charge.namespace.as_str(), charge.name.as_str()), ("default", "charge"));
        assert_eq!((charge.failures, charge.successes, charge.last_class.is_some()), (3, 3, true));
        assert!(
            pulse.buckets.windows(2).all(|pair| pair[1].at.since(pair[0].at) == pulse.width),
            "the buckets have no gaps"
        );
        assert!(pulse.now.since(pulse.buckets.last().unwrap().at) < pulse.width);
    }
    let everywhere = total(&work.recent_stats(None, MINUTE).await.unwrap());
    assert_eq!((everywhere.submitted, everywhere.succeeded), (6, 3));
    let elsewhere = work.recent_stats(Some("us"), MINUTE).await.unwrap();
    assert_eq!((total(&elsewhere), elsewhere.operations.len()), (StatsBucket::default(), 0));
}

async fn hosts_are_counted_by_name(store: TestStore) {
    let work = store.open().await;
    let worker = work.worker().http().start().await.unwrap();
    // A port without a listener.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let call = Task::http("call", &HttpStep::get(format!("http://{free}/")));
    let task = work.submit(call.policy("quick")).await.unwrap().task();
    work.wait(task).await.unwrap();
    let pulse = after(&work, None, MINUTE, 3).await;
    let host = &pulse.destinations[0];
    assert_eq!((host.failures, host.successes), (3, 0), "{pulse:?}");
    assert!(free.to_string().contains(&host.name), "{}", host.name);
    worker.shutdown().await;
}

/// No count is added twice or lost when two nodes write the same rows.
async fn the_stats_of_two_nodes_add_up(store: TestStore) {
    let nodes = [store.open().await, store.open().await];
    let mut workers = Vec::new();
    for node in &nodes {
        let worker = node.worker().handle("mail", |cx: holdoff_work::Context, fails: bool| async move {
            if fails && cx.attempt() == 1 { Err(Fault::transient("busy")) } else { Ok(()) }
        });
        workers.push(worker.concurrency(7).start().await.unwrap());
    }
    let mut tasks = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        let of_node =
            (0..100).map(|task| Task::new("mail").json(&((number + task) % 4 == 0)).policy("quick"));
        tasks.extend(node.submit_all(of_node.collect()).await.unwrap());
    }
    for submitted in tasks {
        nodes[0].wait(submitted.task()).await.unwrap();
    }
    let pulse = after(&nodes[1], None, MINUTE, 250).await;
    let sum = total(&pulse);
    assert_eq!((sum.submitted, sum.succeeded, sum.retried, sum.failed, sum.other), (200, 200, 50, 0, 0));
    let alive = eventually("both nodes are listed", || async {
        let nodes = nodes[0].nodes().await.unwrap();
        Some(nodes).filter(|nodes| nodes.len() == 2 && nodes.iter().all(|node| node.finished_last_minute > 0))
    })
    .await;
    assert!(alive.iter().all(|node| node.is_alive && node.slots == 7), "{alive:?}");
    assert_eq!(alive.iter().map(|node| node.finished_last_minute).sum::<u64>(), 250);
    for worker in workers {
        worker.shutdown().await;
    }
}

async fn a_node_is_listed_while_it_has_workers(store: TestStore) {
    let work = store.open().await;
    assert!(work.nodes().await.unwrap().is_empty(), "a node without workers is not listed");
    let worker =
        work.worker().handle("mail", |_: holdoff_work::Context, (): ()| async { Ok::<_, Fault>(()) });
    let worker = worker.concurrency(3).start().await.unwrap();
    let look = || async { work.nodes().await.unwrap().pop() };
    let node = eventually("the node is listed", look).await;
    assert_eq!((node.name.clone(), node.slots), (holdoff_work::process_name(), 3));
    assert_eq!((node.policies.clone(), node.drift.clone()), (work.policy_version().to_string(), None));
    assert!(node.is_alive && node.version == env!("CARGO_PKG_VERSION"), "{node:?}");
    assert!(node.started_at <= node.seen_at);
    // The last counts are written before the node shuts down.
    let task = work.submit(Task::new("mail")).await.unwrap().task();
    work.wait(task).await.unwrap();
    worker.shutdown().await;
    let sum = total(&work.recent_stats(None, MINUTE).await.unwrap());
    assert_eq!((sum.submitted, sum.succeeded), (1, 1));
    assert!(work.nodes().await.unwrap().is_empty(), "a node that has shut down is not listed");
    assert_eq!(
        work.list(&StepFilter::default(), &holdoff_work::PageRequest::first(9)).await.unwrap().len(),
        1
    );
}

on_every_store!(
    ended_runs_are_counted_by_outcome,
    hosts_are_counted_by_name,
    a_node_is_listed_while_it_has_workers,
);

mod shared {
    use super::{on_shared_stores, the_stats_of_two_nodes_add_up};

    on_shared_stores!(the_stats_of_two_nodes_add_up);
}
