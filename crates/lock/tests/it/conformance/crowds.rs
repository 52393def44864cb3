//! Many contenders for one lock: at the resource, they come one after the other.

use std::sync::Arc;

use holdoff_lock::FencedCell;

use crate::conformance::place::{Place, acquire, on_every_store, on_shared_stores};
use crate::node::one_at_a_time;

/// No holder writes between the two writes of another, and each has a higher token than all before.
async fn holders_never_overlap_and_tokens_only_grow(place: Place) {
    const NODES: usize = 3;
    const TASKS: usize = 3;
    const ROUNDS: usize = 4;
    let resource = Arc::new(FencedCell::new(Vec::new()));
    let mut contending = Vec::new();
    for _ in 0..NODES {
        let locks = place.node().await;
        for _ in 0..TASKS {
            let (locks, resource) = (locks.clone(), Arc::clone(&resource));
            contending.push(tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = acquire(&locks, "ledger").await;
                    for what in ["enter", "leave"] {
                        let write = |events: &mut Vec<_>| events.push((guard.token().get(), what.to_owned()));
                        resource.update(guard.token(), write).unwrap();
                        tokio::task::yield_now().await;
                    }
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for contender in contending {
        contender.await.unwrap();
    }
    let entered = resource.read(|events| one_at_a_time(events));
    assert_eq!(entered, NODES * TASKS * ROUNDS);
}

async fn processes_never_overlap_and_their_tokens_only_grow(place: Place) {
    const PROCESSES: usize = 3;
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(place.process().await);
    }
    for process in &mut processes {
        process.tell("ROUNDS ledger 8 1 30000").await;
    }
    for process in &mut processes {
        let answer = process.answer().await;
        assert!(answer.starts_with("done"), "{answer}");
    }
    assert_eq!(one_at_a_time(&place.resource().await.events().await), PROCESSES * 8);
}

on_every_store!(holders_never_overlap_and_tokens_only_grow);

mod processes {
    use super::{on_shared_stores, processes_never_overlap_and_their_tokens_only_grow};

    on_shared_stores!(processes_never_overlap_and_their_tokens_only_grow);
}
