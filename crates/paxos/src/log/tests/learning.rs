//! Decided entries and snapshots that are learned from a proof instead of from the leader.

use super::ELECTION_US;
use super::table::{Table, nodes};
use crate::log::{Append, Input, Mark, Message, Output, Snapshot, Term};
use crate::{Configuration, NodeId, Slot};

/// Returns the decided entries of the first node as an input that does not come from a leader.
fn history(table: &Table) -> Input<u64, u64> {
    let store = table.node(1).store();
    let entries = (1..=store.decided().0).filter_map(|slot| store.entry(Slot(slot)).cloned()).collect();
    Input::Learn { first: Slot(1), entries }
}

#[test]
fn what_is_learned_is_there_after_a_restart() {
    let mut table = Table::new(4);
    table.elect(1);
    for value in [7, 8] {
        table.propose(1, value).unwrap();
        table.settle();
    }
    let history = history(&table);
    table.step(4, history);
    assert_eq!(table.values(4), [7, 8]);
    table.restart(4);
    assert_eq!(table.values(4), [7, 8]);
}

#[test]
fn what_does_not_go_on_from_what_is_decided_is_passed_over() {
    let mut table = Table::new(4);
    table.elect(1);
    table.propose(1, 7).unwrap();
    table.settle();
    let Input::Learn { entries, .. } = history(&table) else { unreachable!() };
    table.step(4, Input::Learn { first: Slot(2), entries });
    assert_eq!(table.node(4).store().decided(), Slot(0));
}

/// A stale leader has another entry in a decided slot. A follower that has learned the decided entry must not
/// acknowledge the leader's entry.
#[test]
fn a_leader_whose_time_is_over_is_not_told_that_one_has_what_it_has() {
    let mut table = Table::new(3);
    table.elect(1);
    table.propose(1, 7).unwrap();
    table.settle();
    let history = history(&table);
    let mut other = Table::new(3);
    other.step(3, history);
    let late = Term::new(Slot(1), 9, NodeId(2));
    let Some(mut entry) = table.node(1).store().entry(Slot(2)).cloned() else { unreachable!() };
    entry.term = late;
    let before = Mark { slot: Slot(1), term: table.node(1).store().entry(Slot(1)).unwrap().term };
    for (before, entry) in [(before, Some(entry)), (before, None), (Mark { slot: Slot(2), term: late }, None)]
    {
        let append =
            Append { term: late, before, entry, more: Vec::new(), inherited: Slot(9), decided: Slot(0) };
        other.step(3, Input::Message(NodeId(2), Message::Append(append)));
        assert_eq!(other.said(), [Message::Behind { term: late, have: Slot(2) }]);
        assert_eq!(other.values(3), [7]);
    }
}

#[test]
fn who_learns_that_others_decided_otherwise_leads_no_longer() {
    let mut table = Table::new(3);
    table.elect(1);
    table.settle();
    table.cut(&[(1, 2), (1, 3)]);
    table.propose(1, 7).unwrap();
    let Some(mut entry) = table.node(1).store().entry(Slot(2)).cloned() else { unreachable!() };
    entry.term = Term::new(Slot(1), 9, NodeId(2));
    table.step(1, Input::Learn { first: Slot(2), entries: vec![entry] });
    assert_eq!((table.node(1).leads(), table.node(1).store().decided()), (None, Slot(2)));
}

#[test]
fn a_state_that_is_proven_stands_for_entries_and_can_be_put_in_another_form() {
    let mut table = Table::new(4);
    let last = Mark { slot: Slot(9), term: Term::new(Slot(1), 1, NodeId(1)) };
    let configuration = Configuration::new(nodes(&[1, 2])).unwrap();
    let snapshot = Snapshot { last, start: Slot(5), configuration, state: 1 };
    let outputs = table.step(4, Input::Rest(snapshot.clone()));
    assert_eq!(outputs, [Output::Installed(Slot(9))]);
    table.step(4, Input::Rest(Snapshot { state: 2, ..snapshot.clone() }));
    let older = Mark { slot: Slot(8), ..last };
    table.step(4, Input::Rest(Snapshot { last: older, state: 3, ..snapshot.clone() }));
    table.pass(ELECTION_US / 2);
    table.restart(4);
    let store = table.node(4).store();
    assert_eq!((store.decided(), store.start(), store.snapshot().state), (Slot(9), Slot(5), 2));
    let beyond = Mark { slot: Slot(u64::MAX), ..last };
    assert_eq!(table.step(4, Input::Rest(Snapshot { last: beyond, ..snapshot })), []);
}
