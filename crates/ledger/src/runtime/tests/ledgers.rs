//! Ledgers of one to three nodes: writes, restarts, leader changes, lost disks, learners and new addresses.

use std::time::Duration;

use super::{CONDITION_TIMEOUT, Cluster, NAME, TestNode, add, admit, submit, sum, until};
use crate::machine::{Command, Either, Key, Value};
use crate::runtime::wire::{Envelope, Packet};
use crate::runtime::{
    DefaultMachine, Error, HistoryEntry, Host, MembershipChange, Node, PeerAddress, Role, TransferRejection,
    create, join,
};
use crate::{Consistency, EntryPayload, Outcome, Slot, Transaction};

#[tokio::test(flavor = "multi_thread")]
async fn a_single_node_leads_and_serves() {
    let test_node = TestNode::new().await;
    let node = test_node.host().create(NAME).unwrap();
    assert!(submit(&node, 2).await > Slot(0));
    submit(&node, 3).await;
    for consistency in [Consistency::Local, Consistency::Quorum, Consistency::Lease] {
        assert_eq!(sum(&node, consistency).await.unwrap(), 5);
    }
    until("the node is a member", || async { node.status().await.unwrap().members.len() == 1 }).await;
    let status = node.status().await.unwrap();
    assert_eq!(status.role, Role::Leader);
    let verified = node.verify().await.unwrap();
    assert_eq!((verified.mismatch, verified.last), (None, status.head.index));
    let error = node.transfer_leadership(None).await.unwrap_err();
    assert!(matches!(error, Error::NotTransferred(TransferRejection::NoOtherVoter)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_transactions_survive_a_restart() {
    let mut test_node = TestNode::new().await;
    submit(&test_node.host().create(NAME).unwrap(), 7).await;
    test_node.kill();
    test_node.start().await;
    let node = test_node.node().await;
    assert_eq!(sum(&node, Consistency::Quorum).await.unwrap(), 7);
    test_node.host.take().unwrap().stop(CONDITION_TIMEOUT).await;
    test_node.start().await;
    assert_eq!(sum(&test_node.node().await, Consistency::Quorum).await.unwrap(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_have_one_history_whichever_node_is_written_to() {
    let cluster = Cluster::new(3).await;
    for test_node in &cluster.nodes {
        submit(&test_node.node().await, 1).await;
    }
    let status = cluster.until_equal().await;
    assert!(status.head.index > Slot(3));
    for test_node in &cluster.nodes {
        let node = test_node.node().await;
        for consistency in [Consistency::Local, Consistency::Quorum, Consistency::Lease] {
            assert_eq!(sum(&node, consistency).await.unwrap(), 3);
        }
        assert_eq!(node.verify().await.unwrap().mismatch, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_is_replaced_without_losing_transactions() {
    let mut cluster = Cluster::new(3).await;
    let first = cluster.leader().await;
    submit(&cluster.nodes[first].node().await, 1).await;
    cluster.nodes[first].kill();
    let second = (first + 1) % 3;
    submit(&cluster.nodes[second].node().await, 10).await;
    assert_eq!(sum(&cluster.nodes[second].node().await, Consistency::Quorum).await.unwrap(), 11);
    cluster.nodes[first].start().await;
    submit(&cluster.nodes[first].node().await, 100).await;
    cluster.until_equal().await;
    for test_node in &cluster.nodes {
        assert_eq!(sum(&test_node.node().await, Consistency::Local).await.unwrap(), 111);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leadership_transfer_loses_no_transaction() {
    let cluster = Cluster::new(3).await;
    let first = cluster.leader().await;
    let (node, other) = (cluster.nodes[first].node().await, cluster.nodes[(first + 1) % 3].node().await);
    submit(&node, 1).await;
    // A follower forwards the request to the leader.
    let next = other.transfer_leadership(Some(other.key())).await.unwrap();
    assert_eq!(next, other.key());
    // The voters decide whether the target becomes the leader: on a busy machine another node may be faster.
    until("another node leads", || async {
        let status = *node.watch_status().borrow();
        status.leader.is_some_and(|leader| leader != node.key())
    })
    .await;
    submit(&node, 2).await;
    assert_eq!(sum(&node, Consistency::Quorum).await.unwrap(), 3);
    let unknown = holdoff_net::SecretKey::generate().unwrap().public();
    let error = node.transfer_leadership(Some(unknown)).await.unwrap_err();
    assert!(
        matches!(error, Error::NotTransferred(TransferRejection::NotAVoter(key)) if key == unknown),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_voters_rejects_writes_without_the_other() {
    let mut cluster = Cluster::new(2).await;
    cluster.nodes[1].kill();
    let node = cluster.nodes[0].node().await;
    until("the node has lost its leader", || async { node.status().await.unwrap().role == Role::Candidate })
        .await;
    let outcome = node.submit(node.new_tx().unwrap(), add(1), Duration::from_millis(500)).await.unwrap();
    assert_eq!(outcome, Outcome::NoQuorum);
    let why = node.read(add(0), Consistency::Quorum, Duration::from_millis(500)).await.unwrap_err();
    assert!(matches!(why, Error::NoLeader(_)), "{why}");
    assert_eq!(sum(&node, Consistency::Local).await.unwrap(), 0);
    cluster.nodes[1].start().await;
    submit(&node, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lost_its_disk_returns_under_another_id_and_votes_again() {
    let mut cluster = Cluster::new(3).await;
    submit(&cluster.nodes[0].node().await, 5).await;
    let contact = cluster.nodes[0].host().contact();
    cluster.nodes[2].kill();
    let path = cluster.nodes[2].folder.path().join(format!("{NAME}.redb"));
    until("the store is closed", || async { std::fs::remove_file(&path).is_ok() }).await;
    cluster.nodes[2].start().await;
    cluster.nodes[2].host().join(NAME, &[contact]).unwrap();
    let node = cluster.nodes[2].node().await;
    until("the node votes", || async {
        let status = node.status().await.unwrap();
        let mine = status.members.iter().find(|member| member.key == node.key());
        status.role != Role::Learner && mine.is_some_and(|member| member.votes)
    })
    .await;
    submit(&node, 1).await;
    cluster.until_equal().await;
    assert_eq!(sum(&node, Consistency::Local).await.unwrap(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_starts_at_any_index() {
    let test_node = TestNode::new().await;
    let node = test_node.host().create(NAME).unwrap();
    let first = submit(&node, 1).await;
    let mut subscription = node.subscribe(Slot(first.0 - 1));
    let second = submit(&node, 2).await;
    let (mut expected, mut sums) = (first, Vec::new());
    while expected <= second {
        let page = subscription.next().await.unwrap().unwrap();
        assert_eq!(page.index, expected);
        if let Some(Either::Second(diff)) = page.diff() {
            sums.extend(diff.iter().filter_map(|change| change.after.clone()));
        }
        expected = expected.next();
    }
    assert_eq!(sums, [1.into(), 3.into()], "each entry has its diff");
}

#[tokio::test(flavor = "multi_thread")]
async fn ledgers_of_one_process_are_isolated() {
    let test_node = TestNode::new().await;
    let (one, other) = (test_node.host().create("one").unwrap(), test_node.host().create("other").unwrap());
    submit(&one, 1).await;
    assert_eq!(
        (sum(&one, Consistency::Quorum).await.unwrap(), sum(&other, Consistency::Quorum).await.unwrap()),
        (1, 0)
    );
    assert_ne!(one.ledger(), other.ledger());
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_namespaces_and_directories_are_rejected() {
    let folder = tempfile::TempDir::new().unwrap();
    let (key, _) = create(folder.path(), NAME).unwrap();
    assert!(matches!(create(folder.path(), NAME), Err(Error::AlreadyExists(_))));
    assert!(matches!(join(folder.path(), NAME, &[]), Err(Error::AlreadyExists(_))));
    for wrong in ["", "a/b", "..", "a.b", &"x".repeat(65)] {
        assert!(matches!(create(folder.path(), wrong), Err(Error::BadNamespace(_))), "{wrong}");
    }
    let start = || Host::<DefaultMachine>::start(super::settings(&folder, "127.0.0.1:0".parse().unwrap()));
    let host = start().await.unwrap();
    assert_eq!(host.key(), key);
    assert!(matches!(start().await, Err(Error::InUse(_))));
}

/// A new node knows only the founder as a voter. The founder is no longer a member, and the entries are compacted.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_node_verifies_the_current_voters_without_the_founder() {
    let mut cluster = Cluster::new(3).await;
    let [founder, other] = [0, 1].map(|at| cluster.nodes[at].host().key());
    submit(&cluster.nodes[1].node().await, 5).await;
    let node = cluster.nodes[1].node().await;
    node.remove_member(founder, super::CONDITION_TIMEOUT).await.unwrap();
    until("two nodes vote", || async {
        let status = node.status().await.unwrap();
        let votes: Vec<_> =
            status.members.iter().filter(|member| member.votes).map(|member| member.key).collect();
        votes.len() == 2 && votes.contains(&other)
    })
    .await;
    cluster.nodes[0].kill();
    submit(&node, 1).await;
    for at in [1, 2] {
        cluster.nodes[at].node().await.compact().await.unwrap();
    }
    let test_node = TestNode::new().await;
    admit(&node, test_node.host().contact(), "new", true).await;
    test_node.host().join(NAME, &[cluster.nodes[1].host().contact()]).unwrap();
    let new = test_node.node().await;
    until("the new node votes", || async { new.status().await.unwrap().role != Role::Learner }).await;
    submit(&new, 1).await;
    assert_eq!(sum(&new, Consistency::Quorum).await.unwrap(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_learner_forwards_requests_to_the_leader() {
    let cluster = Cluster::new(3).await;
    let (founder, reader) = (&cluster.nodes[0], TestNode::new().await);
    admit(&founder.node().await, reader.host().contact(), "reader", false).await;
    reader.host().join(NAME, &[founder.host().contact()]).unwrap();
    let node = reader.node().await;
    submit(&node, 7).await;
    for consistency in [Consistency::Quorum, Consistency::Lease] {
        assert_eq!(sum(&node, consistency).await.unwrap(), 7);
    }
    until("the learner knows the leader", || async { node.status().await.unwrap().leader.is_some() }).await;
    assert_eq!(node.status().await.unwrap().role, Role::Learner);
    let leader = cluster.leader().await;
    let next = cluster.nodes[(leader + 1) % 3].node().await.key();
    assert_eq!(node.transfer_leadership(Some(next)).await.unwrap(), next);
}

/// Waits until the roster has the new address of a node: a committed entry contains it.
async fn until_registered(node: &Node<DefaultMachine>, moved: &PeerAddress) {
    until("the roster has the new address", || async {
        let entries = node.history(Slot(0), 10_000).await.unwrap().unwrap();
        entries.iter().any(|HistoryEntry { entry, .. }| match &entry.payload {
            EntryPayload::Value(Transaction {
                goal: Either::First(MembershipChange::Move(key, address)),
                ..
            }) => (key, address) == (&moved.key, &moved.address),
            _ => false,
        })
    })
    .await;
}

/// Restarts the node at another address, and waits until the other nodes reach it there.
async fn moves(test_node: &mut TestNode, other: &Node<DefaultMachine>) {
    let before = test_node.host().contact();
    test_node.move_elsewhere().await;
    let now = test_node.host().contact();
    assert_ne!(now.address, before.address);
    until("the other nodes know the new address", || async {
        let status = other.status().await.unwrap();
        let found = status.members.into_iter().find(|member| member.key == now.key).unwrap();
        if found.member.address == now.address { Ok(()) } else { Err(found) }
    })
    .await
    .unwrap();
    until_registered(other, &now).await;
    let index = submit(other, 1).await;
    let mut status = test_node.node().await.watch_status();
    let heard =
        tokio::time::timeout(CONDITION_TIMEOUT, status.wait_for(|status| status.head.index >= index)).await;
    assert!(heard.is_ok(), "the node received no entry at its new address");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_moves_before_it_has_received_anything_is_reached() {
    let (founder, mut reader) = (TestNode::new().await, TestNode::new().await);
    let node = founder.host().create(NAME).unwrap();
    admit(&node, reader.host().contact(), "reader", false).await;
    reader.move_elsewhere().await;
    reader.host().join(NAME, &[founder.host().contact()]).unwrap();
    let index = submit(&node, 1).await;
    let mut status = reader.node().await.watch_status();
    let heard = status.wait_for(|status| status.head.index >= index);
    // The value must not live on: the node could not publish its next status.
    let heard = tokio::time::timeout(CONDITION_TIMEOUT, heard).await.is_ok();
    assert!(heard, "the node received no entry at its new address");
    until_registered(&node, &reader.host().contact()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_learner_is_reached_at_its_new_address() {
    let cluster = Cluster::new(3).await;
    let (founder, mut reader) = (&cluster.nodes[0], TestNode::new().await);
    let node = founder.node().await;
    admit(&node, reader.host().contact(), "reader", false).await;
    reader.host().join(NAME, &[founder.host().contact()]).unwrap();
    submit(&reader.node().await, 7).await;
    moves(&mut reader, &node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voter_is_reached_at_its_new_address() {
    let mut cluster = Cluster::new(3).await;
    for at in [1, 2] {
        let other = cluster.nodes[0].node().await;
        moves(&mut cluster.nodes[at], &other).await;
    }
}

/// The roster names the old address until a majority has committed the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_voter_without_whose_vote_there_is_no_majority_is_reached_at_its_new_address() {
    let mut cluster = Cluster::new(3).await;
    let leader = cluster.leader().await;
    cluster.nodes[leader].kill();
    let (moved, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let node = cluster.nodes[other].node().await;
    moves(&mut cluster.nodes[moved], &node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_node_receives_a_state_that_is_longer_than_a_message() {
    const ROWS: usize = 1100;
    let mut first = TestNode::new().await;
    let node = first.host().create(NAME).unwrap();
    let key = |row: usize| Key::new(format!("row {row}")).unwrap();
    let text = Value::text("x".repeat(crate::machine::limits::TEXT_BYTES)).unwrap();
    for row in (0..ROWS).step_by(55) {
        let put = |row| Command::Put(key(row), text.clone());
        let goal = Either::Second((row..row + 55).map(put).collect());
        let outcome = node.submit(node.new_tx().unwrap(), goal, CONDITION_TIMEOUT).await.unwrap();
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    }
    node.compact().await.unwrap();
    // After a restart the node has no entries that it could send instead.
    first.kill();
    first.start().await;
    let (node, reader) = (first.node().await, TestNode::new().await);
    admit(&node, reader.host().contact(), "reader", false).await;
    reader.host().join(NAME, &[first.host().contact()]).unwrap();
    let new = reader.node().await;
    let index = node.index();
    until("the new node has the state", || async {
        let status = new.status().await.unwrap();
        if status.head.index >= index { Ok(()) } else { Err(status) }
    })
    .await
    .unwrap();
    let goal = Either::Second(vec![Command::Get(key(ROWS - 1))]);
    let (_, answer) = new.read(goal, Consistency::Local, CONDITION_TIMEOUT).await.unwrap();
    assert_eq!(answer, Ok(Either::Second(vec![Some(text)])));
    assert_eq!(new.status().await.unwrap().core.states, 1);
}

#[test]
fn a_join_can_be_corrected_until_the_node_has_joined() {
    let folder = tempfile::tempdir().unwrap();
    let contact = |port| {
        let key = holdoff_net::SecretKey::generate().unwrap().public();
        PeerAddress { key, address: format!("127.0.0.1:{port}") }
    };
    let key = join(folder.path(), NAME, &[contact(1)]).unwrap();
    assert_eq!(join(folder.path(), NAME, &[contact(2)]).unwrap(), key);
    assert!(matches!(create(folder.path(), NAME), Err(Error::AlreadyExists(_))));
    create(folder.path(), "other").unwrap();
    assert!(matches!(join(folder.path(), "other", &[contact(1)]), Err(Error::AlreadyExists(_))));
}

/// The task of a ledger at one node hangs, and its queues are full.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_ledger_that_hangs_does_not_hold_up_another_on_the_same_link() {
    let cluster = Cluster::new(2).await;
    let [here, there] = [0, 1].map(|at: usize| cluster.nodes[at].host());
    let slow = here.create("slow").unwrap();
    admit(&slow, there.contact(), "node 1", false).await;
    there.join("slow", &[here.contact()]).unwrap();
    let status = there.joined("slow", CONDITION_TIMEOUT).await.unwrap().watch_status();
    // The task cannot publish its status, and waits.
    let hung = status.borrow();
    let PeerAddress { key, address } = there.contact();
    for _ in 0..20_000 {
        let envelope = Envelope::Gossip(bytes::Bytes::from_static(b"not decodable"));
        let packet = Packet { ledger: slow.ledger(), incarnation: 1, envelope };
        slow.shared.peers.send(&key, &address, packet);
    }
    submit(&cluster.nodes[0].node().await, 1).await;
    drop(hung);
    let index = submit(&slow, 1).await;
    let caught_up = || async { status.borrow().head.index >= index };
    until("the ledger that hung has caught up", caught_up).await;
}
