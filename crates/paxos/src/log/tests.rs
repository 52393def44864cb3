//! Unit tests of the behaviour that users of a node observe.

mod early;
mod garbage;
mod handing;
mod joined;
mod learning;
mod table;

use super::*;
use crate::{Configuration, NodeId, Slot};
use table::{Table, nodes};

const ELECTION_US: u64 = 1_000_000;

#[test]
fn a_value_is_decided_by_a_majority_and_known_to_all() {
    let mut table = Table::new(3);
    table.elect(1);
    assert_eq!(table.propose(1, 7), Ok(Slot(2)), "after the barrier");
    table.settle();
    assert_eq!(table.values(1), [7]);
    table.pass(ELECTION_US / 2);
    table.settle();
    for node in 1..=3 {
        assert_eq!(table.values(node), [7], "node {node}");
    }
}

#[test]
fn one_alone_decides_at_once() {
    let mut table = Table::new(1);
    table.elect(1);
    assert_eq!(table.propose(1, 7), Ok(Slot(2)));
    assert_eq!(table.values(1), [7]);
}

#[test]
fn who_does_not_lead_says_who_does() {
    let mut table = Table::new(3);
    assert_eq!(table.propose(2, 7), Err(Refusal::NotLeading(None)));
    table.elect(1);
    table.settle();
    assert_eq!(table.propose(2, 7), Err(Refusal::NotLeading(Some(NodeId(1)))));
}

#[test]
fn a_new_leader_serves_when_all_it_inherited_is_decided() {
    let mut table = Table::new(3);
    table.elect(1);
    table.settle();
    table.cut(&[(1, 3), (3, 1)]);
    assert!(table.propose(1, 7).is_ok());
    table.settle();
    table.restart(1);
    table.cut(&[]);
    table.ask_to_lead(2);
    table.settle_votes();
    assert!(table.node(2).leads().is_some());
    assert_eq!(table.propose(2, 8), Err(Refusal::NotReady));
    table.pass(ELECTION_US / 2);
    table.settle();
    assert!(table.propose(2, 8).is_ok());
    table.settle();
    assert_eq!(table.values(2), [7, 8]);
    let inherited = table.node(2).store().entry(Slot(2)).map(|entry| entry.term.leader());
    assert_eq!(inherited, Some(NodeId(1)), "what is taken over keeps its author");
}

#[test]
fn nobody_is_elected_while_a_leader_is_heard() {
    let mut table = Table::new(3);
    table.elect(1);
    table.settle();
    let before = table.node(1).leads();
    table.cut(&[(1, 3)]);
    for _ in 0..10 {
        table.pass(ELECTION_US / 2);
        table.settle();
    }
    assert!(table.asked_to_lead(3), "it hears nobody");
    assert_eq!(table.node(1).leads(), before, "who is deaf disturbs nobody");
    let promised = [1, 2, 3].map(|node| table.node(node).store().promised());
    assert_eq!(promised, [before.unwrap(); 3], "and promises nothing, either");
}

#[test]
fn a_leader_that_is_alone_goes() {
    let mut table = Table::new(3);
    table.elect(1);
    table.settle();
    table.cut(&[(2, 1), (3, 1)]);
    for _ in 0..10 {
        table.pass(ELECTION_US / 2);
        table.settle();
    }
    assert_eq!(table.node(1).leads(), None);
    let leader = [2, 3].into_iter().find(|node| table.node(*node).is_ready());
    assert!(leader.is_some(), "the others have chosen another");
}

#[test]
fn who_was_away_is_sent_what_it_misses() {
    let mut table = Table::new(3);
    table.elect(1);
    table.settle();
    table.cut(&[(1, 3), (3, 1)]);
    for value in 0..1000 {
        assert!(table.propose(1, value).is_ok());
        table.settle();
    }
    assert!(table.values(3).is_empty());
    table.cut(&[]);
    table.pass(ELECTION_US / 2);
    table.settle();
    table.pass(ELECTION_US / 2);
    table.settle();
    assert_eq!(table.values(3).len(), 1000);
}

#[test]
fn a_snapshot_stands_for_what_is_gone() {
    let mut table = Table::new(3);
    table.elect(1);
    table.settle();
    table.cut(&[(1, 3), (3, 1)]);
    for value in 1..=10 {
        assert!(table.propose(1, value).is_ok());
        table.settle();
    }
    table.compact(1, Slot(8), 28);
    table.cut(&[]);
    for _ in 0..3 {
        table.pass(ELECTION_US / 2);
        table.settle();
    }
    assert_eq!(table.node(3).store().snapshot().state, 28);
    assert_eq!(table.node(3).store().decided(), Slot(11));
    assert_eq!(table.values(3), [8, 9, 10], "what the snapshot does not have");
    table.restart(3);
    assert_eq!(table.node(3).store().snapshot().last.slot, Slot(8), "also in another life");
}

#[test]
fn what_is_not_decided_is_not_compacted() {
    let mut table = Table::new(3);
    table.elect(1);
    table.settle();
    table.cut(&[(1, 2), (1, 3)]);
    assert_eq!(table.propose(1, 7), Ok(Slot(2)));
    table.compact(1, Slot(2), 7);
    assert_eq!(table.node(1).store().snapshot().last.slot, Slot(0));
}

#[test]
fn a_voter_comes_and_another_goes() {
    let mut table = Table::new(4);
    table.elect(1);
    table.settle();
    assert!(table.propose(1, 7).is_ok());
    table.settle();
    let [four, three] = [&[1, 2, 3, 4][..], &[2, 3, 4]].map(|some| Configuration::new(nodes(some)).unwrap());
    assert_eq!(table.change(1, &three), Err(Refusal::TooFar));
    let before = table.node(1).leads().unwrap();
    assert!(table.change(1, &four).is_ok());
    assert_eq!(table.propose(1, 8), Err(Refusal::Changing));
    assert_eq!(table.change(1, &four), Err(Refusal::Changing));
    table.settle();
    let after = table.node(1).leads().unwrap();
    assert!(after > before && after.start() > before.start(), "others decide: the old promise is void");
    assert_eq!(table.values(4), [7], "the new one has all");
    assert!(table.change(1, &three).is_ok());
    for _ in 0..6 {
        table.pass(ELECTION_US);
        table.settle();
    }
    assert_eq!(table.node(1).leads(), None, "it has gone");
    let leader = [2, 3, 4].into_iter().find(|node| table.node(*node).is_ready()).unwrap();
    assert!(table.propose(leader, 9).is_ok());
    table.settle();
    assert_eq!(table.values(leader), [7, 9]);
}

/// Builds a cluster in which the leader has decided a change, has asked these nodes for a vote under it, and is then
/// cut off: it alone knew that the change is decided.
fn with_a_change_that_nobody_knows_to_be_decided(asked: &[u128]) -> Table {
    let mut table = Table::new(4);
    table.elect(1);
    table.settle();
    assert!(table.propose(1, 7).is_ok());
    table.settle();
    table.cut(&[(1, 3), (3, 1)]);
    let four = Configuration::new(nodes(&[1, 2, 3, 4])).unwrap();
    assert_eq!(table.change(1, &four), Ok(Slot(3)));
    table.hear_next();
    table.hear_next();
    let one = table.node(1).store();
    assert_eq!(one.start(), Slot(4), "one has heard that two has it");
    let term = Term::new(Slot(4), 1, NodeId(1));
    let candidacy = Candidacy { trial: false, term, accepted: one.accepted(), last: one.last() };
    table.pass(ELECTION_US * 2);
    table.said();
    for node in asked {
        table.hear(*node, 1, Message::Vote(candidacy));
        assert_eq!(table.node(*node).store().promised().start(), Slot(4));
        assert_eq!(table.node(*node).store().start(), Slot(1), "it has promised, and does not know");
    }
    table.said();
    table.cut(&[(1, 2), (1, 3), (1, 4), (2, 1), (3, 1), (4, 1)]);
    table
}

#[test]
fn who_has_promised_under_a_configuration_it_does_not_know_still_finds_out() {
    for asked in [&[2][..], &[3], &[2, 3], &[2, 3, 4]] {
        let mut table = with_a_change_that_nobody_knows_to_be_decided(asked);
        for _ in 0..20 {
            table.pass(ELECTION_US);
            table.settle();
        }
        let leader = [2, 3, 4].into_iter().find(|node| table.node(*node).is_ready());
        let leader = leader.unwrap_or_else(|| panic!("nobody leads after {asked:?} were asked"));
        assert_eq!(table.node(leader).store().start(), Slot(4));
        assert_eq!(table.values(leader), [7]);
    }
}

#[test]
fn too_much_undecided_is_refused() {
    let mut table = Table::new(3);
    table.elect(1);
    table.settle();
    table.cut(&[(1, 2), (1, 3)]);
    let undecided = Options::default().undecided;
    for value in 0..undecided {
        assert!(table.propose(1, value).is_ok());
    }
    assert_eq!(table.propose(1, 0), Err(Refusal::Full));
}

#[test]
fn a_term_of_another_is_not_voted_for() {
    let mut table = Table::new(3);
    let term = Term::new(Slot(1), 9, NodeId(3));
    let asked = Candidacy { trial: false, term, accepted: Term::none(), last: Slot(0) };
    table.hear(1, 2, Message::Vote(asked));
    assert_eq!(table.node(1).store().promised(), Term::none(), "it is not whose it says");
    table.hear(1, 3, Message::Vote(asked));
    assert_eq!(table.node(1).store().promised(), term);
}
