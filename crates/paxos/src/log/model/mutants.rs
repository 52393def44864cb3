//! Injected defects that the model must find.

use super::{Bounds, FORKED, NOTHING, SETTLED, explore};
use crate::flaw::Flaw;

fn found(flaw: Flaw) -> Vec<&'static str> {
    found_within(Bounds { elections: [1, 1, 0], past: FORKED, flaw: Some(flaw), ..NOTHING })
}

fn found_within(bounds: Bounds) -> Vec<&'static str> {
    let flaw = bounds.flaw;
    let (states, found) = explore(bounds);
    println!("{flaw:?}: {states} states; {found:?}");
    found
}

#[test]
fn an_entry_stands_on_what_its_leader_has_before_it() {
    assert!(found(Flaw::TakeWithoutMatch).contains(&"agreement"));
}

#[test]
fn what_is_inherited_is_accepted_as_a_whole() {
    let found = found(Flaw::CommitInherited);
    assert!(found.contains(&"agreement") || found.contains(&"acknowledged is in the log"), "{found:?}");
}

#[test]
fn a_leader_counts_what_is_on_its_disk() {
    let flaw = Some(Flaw::CountUnstored);
    let bounds = Bounds {
        elections: [0, 0, 1],
        proposals: 1,
        crashes: 1,
        early: true,
        past: SETTLED,
        flaw,
        ..NOTHING
    };
    let found = found_within(bounds);
    assert!(found.contains(&"acknowledged is in the log") || found.contains(&"agreement"), "{found:?}");
}
