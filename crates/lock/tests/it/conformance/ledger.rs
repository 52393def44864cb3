//! Properties of a ledger only: a leader that is killed while many contend for its locks, and members without a vote.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdoff_lock::{FencedCell, Locks};

use crate::conformance::test_store::{CONDITION_TIMEOUT, TestStore, acquire, in_time, inspect, until};
use crate::node::assert_exclusive;

/// Contenders on the remaining nodes continue: holders do not overlap, tokens grow, and every contender gets its turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contenders_get_their_turns_after_the_leader_was_killed() {
    in_time(async {
        let test_store = TestStore::ledger().await;
        let cluster = test_store.ledger.as_ref().unwrap();
        let victim = cluster.leader().await;
        let (resource, is_over) = (Arc::new(FencedCell::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let mut contending = Vec::new();
        for node in (0..3).filter(|node| *node != victim) {
            let locks = test_store.locks_of_node(node);
            for _ in 0..2 {
                let (locks, resource, is_over) = (locks.clone(), Arc::clone(&resource), Arc::clone(&is_over));
                contending.push(tokio::spawn(async move {
                    let mut turns = 0;
                    while !is_over.load(Ordering::SeqCst) {
                        let guard = acquire(&locks, "ledger").await;
                        for what in ["enter", "leave"] {
                            let write =
                                |events: &mut Vec<_>| events.push((guard.token().get(), what.to_owned()));
                            resource.update(guard.token(), write).unwrap();
                            tokio::task::yield_now().await;
                        }
                        guard.release().await.unwrap();
                        turns += 1;
                    }
                    turns
                }));
            }
        }
        let entered = || resource.read(Vec::len);
        for _ in 0..3 {
            let before = entered();
            until("the contenders take turns", async || entered() > before + 10).await;
            let leader = cluster.leader().await;
            if leader != victim {
                let key = cluster.at(victim).key();
                until("the victim leads", async || {
                    cluster.at(leader).transfer_leadership(Some(key)).await.is_ok()
                })
                .await;
                until("the victim leads", async || cluster.leader().await == victim).await;
            }
            cluster.kill(victim);
            let before = entered();
            until("the other daemons grant locks without the victim", async || entered() > before + 10).await;
            cluster.start(victim).await;
        }
        is_over.store(true, Ordering::SeqCst);
        let mut turns = 0;
        for contender in contending {
            let taken: usize = contender.await.unwrap();
            assert!(taken > 0, "a contender was never granted the lock");
            turns += taken;
        }
        assert_eq!(resource.read(|events| assert_exclusive(events)), turns);
    })
    .await;
}

/// A holder keeps its lock: a new leader is elected long before the lease expires.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_on_another_node_keeps_its_lock_when_the_leader_is_killed() {
    in_time(async {
        let test_store = TestStore::ledger().await;
        let cluster = test_store.ledger.as_ref().unwrap();
        let leader = cluster.leader().await;
        let (locks, other) =
            (test_store.locks_of_node((leader + 1) % 3), test_store.locks_of_node((leader + 2) % 3));
        let guard = locks.acquire("ledger").lease(CONDITION_TIMEOUT / 4).await.unwrap();
        let next = tokio::spawn(async move { acquire(&other, "ledger").await.token() });
        cluster.kill(leader);
        cluster.leader().await;
        assert!(guard.is_valid());
        let token = guard.token();
        guard.release().await.unwrap();
        assert!(next.await.unwrap() > token);
    })
    .await;
}

/// A member without a vote does not know the leader, and acquires locks like all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_a_vote_acquires_locks() {
    in_time(async {
        let test_store = TestStore::ledger().await;
        let learner = test_store.ledger.as_ref().unwrap().learner().await;
        let (locks, other) = (Locks::ledger(learner.node()), test_store.locks_of_node(0));
        let locks = locks.with_namespace(&test_store.namespace).unwrap();
        let guard = acquire(&locks, "ledger").await;
        assert!(other.try_acquire("ledger").await.unwrap().is_none());
        assert_eq!(inspect(&locks, "ledger").await.holder.unwrap().token, guard.token());
        let waiting = tokio::spawn(async move { acquire(&other, "ledger").await });
        until("the waiter is recorded", async || inspect(&locks, "ledger").await.waiting == 1).await;
        let token = guard.token();
        guard.release().await.unwrap();
        let next = waiting.await.unwrap();
        assert!(next.token() > token);
        assert!(locks.try_acquire("ledger").await.unwrap().is_none(), "try_acquire reads the newest state");
        next.release().await.unwrap();
        assert!(locks.try_acquire("ledger").await.unwrap().is_some());
    })
    .await;
}
