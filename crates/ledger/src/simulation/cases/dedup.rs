//! Transactions that are submitted again after the ledger has forgotten them.

use super::*;

/// An index by which the ledger has forgotten a transaction at an early index.
fn full_window() -> u64 {
    options().dedup.transactions as u64 + 20
}

/// Submits a transaction at a follower. Returns the follower, the key, and the message to the leader, which is not
/// delivered.
fn submit_at_follower(cluster: &mut TestCluster) -> (usize, TxKey, Delivery) {
    let follower = cluster.leader() % 3 + 1;
    let tx = TxKey { id: TxId(1), birth: cluster.node(follower).state().index() };
    cluster.submit_goal(follower, tx, add());
    let (from, to, message) = cluster.post.pop_back().unwrap();
    assert!(matches!(message, Message::Submit { .. }), "{message:?}");
    (follower, tx, (from, to, message))
}

/// Returns the number of entries of a transaction in the history of the leader.
fn times_committed(cluster: &TestCluster, tx_id: TxId) -> usize {
    let is_it = |entry: &&crate::LogEntry<KeyValue>| match &entry.payload {
        holdoff_paxos::log::EntryPayload::Value(value) => value.tx_id == tx_id,
        _ => false,
    };
    cluster.node(cluster.leader()).history.iter().filter(is_it).count()
}

/// A follower submits a transaction twice, because its disk stalls. The second message arrives after the transaction is
/// committed and forgotten.
#[test]
fn a_late_copy_of_a_forgotten_transaction_is_not_executed() {
    let mut cluster = TestCluster::new(3, 3);
    cluster.pass(1_000_000);
    let (_, tx, copy) = submit_at_follower(&mut cluster);
    cluster.post.push_back(copy.clone());
    cluster.deliver();
    cluster.pass(200_000);
    assert!(matches!(cluster.ended[..], [(TxId(1), Outcome::Committed { .. })]), "{:?}", cluster.ended);
    cluster.fill(full_window());
    let leader = cluster.leader();
    assert!(cluster.node(leader).state().done(tx.id).is_none(), "the ledger has forgotten the transaction");
    let before = cluster.node(leader).state().index();
    cluster.post.push_back(copy);
    cluster.deliver();
    cluster.pass(200_000);
    assert_eq!(cluster.node(leader).state().index(), before, "the copy is not executed");
    assert_eq!(cluster.node(leader).counts().expired, 1);
}

/// A caller submits a forgotten transaction again: the ledger cannot tell whether it was committed, and says so.
#[test]
fn a_forgotten_transaction_that_is_submitted_again_has_expired() {
    let mut cluster = TestCluster::new(3, 3);
    cluster.pass(1_000_000);
    let (_, tx, message) = submit_at_follower(&mut cluster);
    cluster.post.push_back(message);
    cluster.deliver();
    cluster.pass(200_000);
    cluster.fill(full_window());
    for at in 1..=3 {
        cluster.ended.clear();
        let through = cluster.node(cluster.leader()).state().index();
        cluster.submit_goal(at, tx, add());
        cluster.deliver();
        assert_eq!(cluster.ended, [(TxId(1), Outcome::Expired { through })], "node {at}");
    }
}

/// The leader does not receive a transaction while others fill the window. The submitting node has seen all of them: the
/// transaction has not happened, and can be submitted again.
#[test]
fn an_overtaken_transaction_has_not_happened_and_can_be_submitted_again() {
    let mut cluster = TestCluster::new(3, 3);
    cluster.pass(1_000_000);
    let (follower, tx, message) = submit_at_follower(&mut cluster);
    cluster.loses_submissions = true;
    cluster.fill(full_window());
    assert!(cluster.node(follower).state().forgotten() > tx.birth, "the window is full");
    cluster.ended.retain(|(tx_id, _)| *tx_id == tx.id);
    cluster.loses_submissions = false;
    cluster.post.push_back(message);
    cluster.deliver();
    cluster.pass(200_000);
    let [(TxId(1), Outcome::Overtaken { absent_through })] = cluster.ended[..] else {
        panic!("{:?}", cluster.ended)
    };
    assert_eq!(times_committed(&cluster, tx.id), 0);
    cluster.ended.clear();
    let again = TxKey { birth: absent_through, ..tx };
    cluster.submit_goal(follower, again, add());
    cluster.deliver();
    cluster.pass(200_000);
    assert!(matches!(cluster.ended[..], [(TxId(1), Outcome::Committed { .. })]), "{:?}", cluster.ended);
    assert_eq!(times_committed(&cluster, tx.id), 1);
}

/// The result timeout of a submission expires. The index that the outcome names is a valid birth of the next submission.
#[test]
fn an_unknown_outcome_names_the_index_up_to_which_the_transaction_is_absent() {
    let mut cluster = TestCluster::new(3, 3);
    cluster.pass(1_000_000);
    let (follower, tx, _) = submit_at_follower(&mut cluster);
    let leader = cluster.leader();
    cluster.apart = Some((id(leader), id(follower)));
    cluster.pass(2_000_000);
    cluster.apart = None;
    let [(TxId(1), Outcome::Unknown { absent_through })] = cluster.ended[..] else {
        panic!("{:?}", cluster.ended)
    };
    assert!(absent_through >= tx.birth);
    cluster.ended.clear();
    cluster.pass(1_000_000);
    let again = TxKey { birth: absent_through, ..tx };
    cluster.submit_goal(follower, again, add());
    cluster.deliver();
    cluster.pass(500_000);
    assert!(matches!(cluster.ended[..], [(TxId(1), Outcome::Committed { .. })]), "{:?}", cluster.ended);
    assert_eq!(times_committed(&cluster, tx.id), 1);
}
