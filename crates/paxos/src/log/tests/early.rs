//! Early sending: a leader whose entries leave before its disk has them.

use super::table::Table;
use crate::Slot;
use crate::log::Options;

fn early(nodes: u128) -> Table {
    Table::with(nodes, Options { early: true, ..Options::default() })
}

#[test]
fn followers_store_while_the_leader_does() {
    let mut table = early(3);
    table.elect(1);
    table.settle();
    table.slow_down(1);
    table.propose_early(1, 7);
    table.settle();
    for follower in [2, 3] {
        assert!(table.node(follower).store().entry(Slot(2)).is_some(), "node {follower} has it");
    }
    assert_eq!(table.values(1), [7], "two of three have stored it: the leader's own disk is not needed");
}

#[test]
fn a_leader_counts_itself_when_it_has_stored() {
    let mut table = early(3);
    table.elect(1);
    table.settle();
    table.cut(&[(1, 3), (3, 1)]);
    table.slow_down(1);
    table.propose_early(1, 7);
    table.settle();
    assert!(table.node(2).store().entry(Slot(2)).is_some());
    assert_eq!(table.values(1), [0; 0], "one of three has stored it");
    table.flush();
    assert_eq!(table.values(1), [7], "at once");
}

#[test]
fn one_alone_decides_when_it_has_stored() {
    let mut table = early(1);
    table.elect(1);
    table.slow_down(1);
    table.propose_early(1, 7);
    assert_eq!(table.values(1), [0; 0]);
    table.flush();
    assert_eq!(table.values(1), [7], "no time has passed");
}

#[test]
fn nobody_hears_of_a_term_that_is_not_stored() {
    let mut table = early(3);
    table.ask_to_lead(1);
    table.settle_votes_but_the_last();
    table.slow_down(1);
    table.settle();
    assert!(table.node(1).leads().is_some());
    table.pass(200_000);
    table.settle();
    assert_eq!(table.node(2).leader(), None, "it has said nothing yet");
    table.flush();
    table.settle();
    assert!(table.node(1).is_ready());
}

#[test]
fn who_crashes_before_its_disk_has_it_is_sent_it_back() {
    let mut table = early(3);
    table.elect(1);
    table.settle();
    table.slow_down(1);
    table.propose_early(1, 7);
    table.settle();
    table.restart(1);
    assert!(table.node(1).store().entry(Slot(2)).is_none(), "it is gone there");
    table.elect(2);
    table.pass(500_000);
    table.settle();
    for node in 1..=3 {
        assert_eq!(table.values(node), [7], "node {node}");
    }
}
