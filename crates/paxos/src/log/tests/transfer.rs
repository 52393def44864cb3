//! Leadership hints and leadership transfer.

use super::cluster::TestCluster;
use super::{Configuration, ELECTION_US, NodeId, Rejection};
use crate::log::Output;

/// The default heartbeat interval.
const HEARTBEAT_US: u64 = 150_000;

fn led() -> TestCluster {
    let mut cluster = TestCluster::new(3);
    cluster.elect(1);
    cluster.settle();
    assert!(cluster.propose(1, 7).is_ok());
    cluster.settle();
    cluster.pass(HEARTBEAT_US);
    cluster.settle();
    cluster
}

/// Returns the time until another node leads.
fn healed_after_us(urged: bool) -> u64 {
    let mut cluster = led();
    cluster.cut(&[(1, 2), (1, 3), (2, 1), (3, 1)]);
    if urged {
        cluster.hint(2);
    }
    let mut waited_us = 0;
    while cluster.node(2).leads().is_none() {
        waited_us += 10_000;
        cluster.pass(10_000);
        cluster.settle();
        assert!(waited_us < 3 * ELECTION_US);
    }
    waited_us
}

#[test]
fn a_hinted_node_leads_without_the_random_part_of_the_timeout() {
    assert_eq!(healed_after_us(true), ELECTION_US);
    assert!(healed_after_us(false) > ELECTION_US * 5 / 4);
}

#[test]
fn a_hint_does_not_depose_a_live_leader() {
    let mut cluster = led();
    let before = cluster.node(1).leads();
    for _ in 0..20 {
        cluster.pass(HEARTBEAT_US);
        for node in 1..=3 {
            cluster.hint(node);
        }
        cluster.settle();
    }
    assert_eq!(cluster.node(1).leads(), before);
    assert!(
        !cluster.asked_to_lead(2) && !cluster.asked_to_lead(3),
        "followers of a live leader start no pre-vote"
    );
}

/// All nodes get the hint to lead at the same time.
#[test]
fn one_of_several_hinted_nodes_leads() {
    let mut cluster = TestCluster::new(3);
    for _ in 0..20 {
        cluster.pass(HEARTBEAT_US);
        for node in 1..=3 {
            cluster.hint(node);
        }
        cluster.settle();
    }
    assert_eq!((1..=3).filter(|node| cluster.node(*node).is_ready()).count(), 1);
}

#[test]
fn a_leadership_transfer_takes_no_time_and_loses_no_entry() {
    let mut cluster = led();
    let before = cluster.node(1).leads().unwrap();
    assert_eq!(cluster.transfer_leadership(1, 3), [Output::LeadershipTransferred(NodeId(3))]);
    assert_eq!(cluster.node(1).leads(), None, "node 1 steps down before node 3 receives the message");
    cluster.settle();
    assert!(cluster.node(3).is_ready(), "node 3 leads without a tick");
    assert!(cluster.node(3).leads().unwrap() > before);
    assert_eq!(cluster.values(3), [7]);
    assert!(cluster.propose(3, 8).is_ok());
}

#[test]
fn the_transfer_target_receives_the_whole_log_first() {
    let mut cluster = led();
    cluster.cut(&[(1, 3)]);
    assert!(cluster.propose(1, 8).is_ok());
    cluster.settle();
    assert_eq!(cluster.transfer_leadership(1, 3), []);
    assert_eq!(cluster.propose(1, 9), Err(Rejection::Transferring));
    assert_eq!(cluster.transfer_leadership(1, 2), [Output::TransferFailed(Rejection::Transferring)]);
    cluster.cut(&[]);
    cluster.pass(HEARTBEAT_US);
    cluster.settle();
    assert!(cluster.node(3).is_ready());
    assert_eq!(cluster.values(3), [7, 8]);
}

#[test]
fn a_transfer_times_out_if_the_target_does_not_catch_up() {
    let mut cluster = led();
    let before = cluster.node(1).leads();
    cluster.cut(&[(1, 3)]);
    assert!(cluster.propose(1, 8).is_ok());
    assert_eq!(cluster.transfer_leadership(1, 3), []);
    for _ in 0..5 {
        assert_eq!(cluster.pass_for(1, HEARTBEAT_US), []);
        cluster.settle();
    }
    let outputs: Vec<_> = (0..3).flat_map(|_| cluster.pass_for(1, HEARTBEAT_US)).collect();
    assert_eq!(outputs, [Output::TransferFailed(Rejection::TransferTimedOut)]);
    cluster.settle();
    assert_eq!(cluster.node(1).leads(), before);
    assert!(cluster.propose(1, 9).is_ok());
}

#[test]
fn only_a_leader_transfers_leadership_and_only_to_a_voter() {
    let mut cluster = led();
    assert_eq!(
        cluster.transfer_leadership(2, 3),
        [Output::TransferFailed(Rejection::NotLeading(Some(NodeId(1))))]
    );
    for not_a_voter in [1, 9] {
        let refused = Output::TransferFailed(Rejection::NotAVoter(NodeId(not_a_voter)));
        assert_eq!(cluster.transfer_leadership(1, not_a_voter), [refused]);
    }
    let two = Configuration::new([1, 2].map(NodeId)).unwrap();
    assert!(cluster.change(1, &two).is_ok());
    assert_eq!(cluster.transfer_leadership(1, 2), [Output::TransferFailed(Rejection::Changing)]);
}
