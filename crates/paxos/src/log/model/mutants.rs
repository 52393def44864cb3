//! What the model must find, and finds.

use super::{Bounds, FORKED, explore};
use crate::flaw::Flaw;

fn found(flaw: Flaw) -> Vec<&'static str> {
    let bounds =
        Bounds { elections: [1, 1, 0], proposals: 0, changes: 0, crashes: 0, past: FORKED, flaw: Some(flaw) };
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
