//! Elections around a configuration change: after the change is decided, a majority of the new voters can always elect
//! a leader, and no vote of the old configuration counts under the new one.

use super::ELECTION_US;
use super::cluster::{TestCluster, nodes};
use crate::log::{Input, Message};
use crate::{Configuration, Slot};

fn voters(of: &[u128]) -> Configuration {
    Configuration::new(nodes(of)).unwrap()
}

/// Nodes 1 and 2 decide that node 4 votes, and only node 1 knows that the change is decided. Node 2 leads a later term
/// of the old configuration; node 3 accepts the change in that term. Then node 2 is lost. Nodes 1 and 3 are a majority
/// of the old voters, and nodes 1, 3 and 4 of the new voters.
#[test]
fn a_majority_elects_a_leader_although_a_voter_accepted_the_change_in_a_later_term() {
    let mut cluster = TestCluster::new(4);
    cluster.elect(1);
    cluster.settle();
    cluster.cut(&[(1, 3), (1, 4)]);
    cluster.change(1, &voters(&[1, 2, 3, 4])).unwrap();
    cluster.deliver_next();
    cluster.cut(&[(1, 2), (1, 3), (1, 4), (2, 1), (3, 1), (4, 1)]);
    cluster.deliver_next();
    assert_eq!(
        cluster.node(1).store().configuration(),
        &voters(&[1, 2, 3, 4]),
        "node 1 knows of the decision"
    );
    cluster.ask_to_lead(2);
    cluster.settle_votes();
    let later = cluster.node(2).leads().expect("node 3 elects node 2");
    for _ in 0..4 {
        cluster.pass_for(2, ELECTION_US / 4);
        cluster.settle_without_acknowledgements();
    }
    assert_eq!(cluster.node(3).store().accepted(), later, "node 3 accepts the change in the later term");
    assert_eq!(
        cluster.node(3).store().configuration(),
        &voters(&[1, 2, 3]),
        "and does not know of the decision"
    );
    cluster.cut(&[1, 3, 4].map(|node| [(2, node), (node, 2)]).concat());
    for _ in 0..100 {
        cluster.pass(ELECTION_US / 10);
        cluster.settle();
    }
    let leader = [1, 3, 4].into_iter().find(|node| cluster.node(*node).is_ready());
    assert!(leader.is_some(), "three of four voters are connected, and none of them leads");
}

/// Leader 1 decides its own removal with nodes 2 and 3, and is the only node that knows of the decision. Then node 3 is
/// lost. Nodes 2 and 4 are a majority of the new voters; nodes 1, 2 and 4 are a majority of the old voters.
#[test]
fn a_majority_elects_a_leader_although_only_the_removed_leader_knows_of_its_removal() {
    let mut cluster = TestCluster::of_voters(4);
    cluster.elect(1);
    cluster.settle();
    cluster.cut(&[(1, 4)]);
    cluster.change(1, &voters(&[2, 3, 4])).unwrap();
    cluster.deliver_next();
    cluster.deliver_next();
    cluster.cut(&[(1, 2), (1, 3), (1, 4)]);
    cluster.deliver_next();
    cluster.deliver_next();
    assert_eq!(cluster.node(1).store().configuration(), &voters(&[2, 3, 4]), "node 1 knows of the decision");
    let knows = |node: u128| cluster.node(node).store().configuration() == &voters(&[2, 3, 4]);
    assert!(![2, 3, 4].into_iter().any(knows), "the other nodes do not");
    cluster.cut(&[1, 2, 4].map(|node| [(3, node), (node, 3)]).concat());
    for _ in 0..100 {
        cluster.pass(ELECTION_US / 10);
        cluster.settle();
    }
    let leader = [2, 4].into_iter().find(|node| cluster.node(*node).is_ready());
    assert!(leader.is_some(), "two of three voters are connected, and none of them leads");
}

/// Six voters have an undecided change to five. A candidate has two votes when it learns that the change is decided. A
/// third vote of the old term arrives late: three are a majority of five voters, and no majority of six.
#[test]
fn a_candidate_steps_down_when_its_configuration_changes() {
    let mut cluster = TestCluster::of_voters(6);
    cluster.elect(1);
    cluster.settle();
    let five = voters(&[2, 3, 4, 5, 6]);
    cluster.change(1, &five).unwrap();
    cluster.settle_without_acknowledgements();
    cluster.ask_to_lead(4);
    cluster.settle_votes_but_the_last();
    let messages = cluster.take_messages();
    let [vote @ Message::VoteReply { is_pre_vote: false, .. }] = &messages[..] else {
        panic!("{messages:?} is no vote")
    };
    cluster.deliver(4, 3, vote.clone());
    assert_eq!(cluster.node(4).leads(), None, "two of six voters are no majority");
    let store = cluster.node(4).store();
    let entries: Vec<_> = (1..=store.last().0).filter_map(|slot| store.entry(Slot(slot)).cloned()).collect();
    cluster.step(4, Input::Learn { first: Slot(1), entries });
    assert_eq!(cluster.node(4).store().configuration(), &five, "the change is decided");
    cluster.deliver(4, 2, vote.clone());
    assert_eq!(cluster.node(4).leads(), None, "three of six voters are no majority");
}
