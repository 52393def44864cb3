//! Leadership hints and leadership transfer.

use super::table::Table;
use super::{Configuration, ELECTION_US, NodeId, Refusal};
use crate::log::Output;

/// The default heartbeat interval.
const HEARTBEAT_US: u64 = 150_000;

fn led() -> Table {
    let mut table = Table::new(3);
    table.elect(1);
    table.settle();
    assert!(table.propose(1, 7).is_ok());
    table.settle();
    table.pass(HEARTBEAT_US);
    table.settle();
    table
}

/// Returns the time until another node leads.
fn healed_after_us(urged: bool) -> u64 {
    let mut table = led();
    table.cut(&[(1, 2), (1, 3), (2, 1), (3, 1)]);
    if urged {
        table.urge(2);
    }
    let mut waited_us = 0;
    while table.node(2).leads().is_none() {
        waited_us += 10_000;
        table.pass(10_000);
        table.settle();
        assert!(waited_us < 3 * ELECTION_US);
    }
    waited_us
}

#[test]
fn who_is_urged_leads_as_soon_as_the_leader_is_given_up() {
    assert_eq!(healed_after_us(true), ELECTION_US);
    assert!(healed_after_us(false) > ELECTION_US * 5 / 4);
}

#[test]
fn urging_deposes_nobody_who_is_heard() {
    let mut table = led();
    let before = table.node(1).leads();
    for _ in 0..20 {
        table.pass(HEARTBEAT_US);
        for node in 1..=3 {
            table.urge(node);
        }
        table.settle();
    }
    assert_eq!(table.node(1).leads(), before);
    assert!(!table.asked_to_lead(2) && !table.asked_to_lead(3), "they hear it, and do not even ask");
}

/// All nodes get the hint to lead at the same time.
#[test]
fn when_all_are_urged_one_leads() {
    let mut table = Table::new(3);
    for _ in 0..20 {
        table.pass(HEARTBEAT_US);
        for node in 1..=3 {
            table.urge(node);
        }
        table.settle();
    }
    assert_eq!((1..=3).filter(|node| table.node(*node).is_ready()).count(), 1);
}

#[test]
fn another_leads_at_once_with_all_there_is() {
    let mut table = led();
    let before = table.node(1).leads().unwrap();
    assert_eq!(table.hand_over(1, 3), [Output::HandedOver(NodeId(3))]);
    assert_eq!(table.node(1).leads(), None, "before anybody hears of it");
    table.settle();
    assert!(table.node(3).is_ready(), "no time has passed");
    assert!(table.node(3).leads().unwrap() > before);
    assert_eq!(table.values(3), [7]);
    assert!(table.propose(3, 8).is_ok());
}

#[test]
fn whoever_is_to_lead_gets_all_of_the_log_first() {
    let mut table = led();
    table.cut(&[(1, 3)]);
    assert!(table.propose(1, 8).is_ok());
    table.settle();
    assert_eq!(table.hand_over(1, 3), []);
    assert_eq!(table.propose(1, 9), Err(Refusal::HandingOver));
    assert_eq!(table.hand_over(1, 2), [Output::NotHandedOver(Refusal::HandingOver)]);
    table.cut(&[]);
    table.pass(HEARTBEAT_US);
    table.settle();
    assert!(table.node(3).is_ready());
    assert_eq!(table.values(3), [7, 8]);
}

#[test]
fn who_does_not_catch_up_in_time_does_not_lead() {
    let mut table = led();
    let before = table.node(1).leads();
    table.cut(&[(1, 3)]);
    assert!(table.propose(1, 8).is_ok());
    assert_eq!(table.hand_over(1, 3), []);
    for _ in 0..5 {
        assert_eq!(table.pass_for(1, HEARTBEAT_US), []);
        table.settle();
    }
    let said: Vec<_> = (0..3).flat_map(|_| table.pass_for(1, HEARTBEAT_US)).collect();
    assert_eq!(said, [Output::NotHandedOver(Refusal::TooLate)]);
    table.settle();
    assert_eq!(table.node(1).leads(), before);
    assert!(table.propose(1, 9).is_ok());
}

#[test]
fn it_is_handed_over_by_a_leader_to_a_voter() {
    let mut table = led();
    assert_eq!(table.hand_over(2, 3), [Output::NotHandedOver(Refusal::NotLeading(Some(NodeId(1))))]);
    for nobody in [1, 9] {
        let refused = Output::NotHandedOver(Refusal::NoVoter(NodeId(nobody)));
        assert_eq!(table.hand_over(1, nobody), [refused]);
    }
    let two = Configuration::new([1, 2].map(NodeId)).unwrap();
    assert!(table.change(1, &two).is_ok());
    assert_eq!(table.hand_over(1, 2), [Output::NotHandedOver(Refusal::Changing)]);
}
