//! Ten nodes report the same failure at once, and the store accepts one report.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdoff_work::{AttemptOutcome, ClaimedStep, Claimer, Fault, Receipt, StepId, StepState, Task, Work};

use crate::conformance::test_store::{
    HOUR, TestStore, attempts, claim_many, claimer, filter, list, on_shared_stores, submit_many,
};

const NODES: usize = 10;

pub(crate) async fn nodes(store: &TestStore, count: usize) -> Vec<(Work, Claimer)> {
    let mut nodes = Vec::new();
    for _ in 0..count {
        let work = store.open().await;
        let claimer = claimer(&work, &["mail"]).await;
        nodes.push((work, claimer));
    }
    nodes
}

async fn one_of_ten_concurrent_failure_reports_is_accepted(store: TestStore) {
    // Each claim is reported ten times at once.
    let rounds = if holdoff_testbed::is_deep() { 1000 } else { 100 };
    let nodes = nodes(&store, NODES).await;
    let work = nodes[0].0.clone();
    submit_many(&work, rounds, || Task::new("mail").policy("hourly")).await;
    let claims = Arc::new(claim_many(&nodes[0].1, rounds, HOUR).await);
    let mut reporting = Vec::new();
    for (_, claimer) in nodes {
        let claims = Arc::clone(&claims);
        reporting.push(tokio::spawn(async move { fail_all(&claimer, &claims).await }));
    }
    let mut receipts: BTreeMap<StepId, Vec<Receipt>> = BTreeMap::new();
    for node in reporting {
        for (step, receipt) in node.await.unwrap() {
            receipts.entry(step).or_default().push(receipt);
        }
    }
    assert_eq!(receipts.len(), rounds);
    for (step, receipts) in &receipts {
        let accepted = receipts.iter().filter(|receipt| **receipt == Receipt::Accepted).count();
        assert_eq!((accepted, receipts.len()), (1, NODES), "{step}: {receipts:?}");
        let others = |receipt: &Receipt| {
            matches!(
                receipt,
                Receipt::Accepted | Receipt::Recorded(AttemptOutcome::Retried) | Receipt::Fenced
            )
        };
        assert!(receipts.iter().all(others), "{step}: {receipts:?}");
    }
    for step in list(&work, &filter(|_| ())).await {
        assert_eq!((step.state, step.failures, step.snoozes, step.rescues), (StepState::Ready, 1, 0, 0));
        let kept = attempts(&work, step.id).await;
        assert_eq!((kept.len(), kept[0].attempt, kept[0].delay), (1, 1, Some(HOUR)));
    }
}

async fn fail_all(claimer: &Claimer, claims: &[ClaimedStep]) -> Vec<(StepId, Receipt)> {
    let mut receipts = Vec::new();
    for claim in claims {
        let receipt = claimer.fail(claim, Fault::transient("busy")).await.unwrap();
        receipts.push((claim.step(), receipt));
    }
    receipts
}

on_shared_stores!(one_of_ten_concurrent_failure_reports_is_accepted);
