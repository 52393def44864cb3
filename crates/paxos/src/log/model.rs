//! Model of the log: stateright explores every order of votes and decisions with the types of this module.
//!
//! The model has three voters and one entry a message; the bounds set the number of elections and proposals. The
//! network is a set that only grows. A node may crash between any two steps and lose its memory. Time stands still and
//! every timeout is zero: a node may start an election at any moment, and no voter refuses because it has heard from a
//! leader.

mod mutants;
mod state;

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::flaw::{self, Flaw};
use state::{Action, Past, State};

/// The bounds of the exploration.
#[derive(Clone, Debug)]
struct Bounds {
    /// The number of elections that each node may start.
    elections: [u8; 3],
    proposals: u8,
    /// The number of configuration changes. Each removes a voter.
    changes: u8,
    crashes: u8,
    /// Whether leaders send entries that they have not stored. A crash then loses these entries.
    early: bool,
    /// The events before the exploration begins.
    past: &'static [Past],
    flaw: Option<Flaw>,
}

/// No elections and no faults.
const NOTHING: Bounds =
    Bounds { elections: [0; 3], proposals: 0, changes: 0, crashes: 0, early: false, past: &[], flaw: None };

impl Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        state.actions(actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        flaw::with(self.flaw, || next.happen(action));
        next.clear();
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("agreement", |_, state: &State| !state.torn),
            Property::always("validity", |_, state: &State| state.is_valid()),
            Property::always("acknowledged is in the log", |_, state: &State| state.leaders_have_all()),
            Property::always("one leader per term", |_, state: &State| state.has_one_leader_per_term()),
            Property::sometimes("decided", |_, state: &State| state.has_decided_a_value()),
            Property::sometimes("decided by another", |_, state: &State| state.has_inherited()),
            Property::sometimes("to be overwritten", |_, state: &State| state.has_conflict()),
            Property::sometimes("changed", |_, state: &State| state.has_changed()),
            Property::sometimes(AHEAD, |_, state: &State| state.crashed_ahead),
            Property::sometimes("crashed", |bounds, state: &State| state.crashes_left < bounds.crashes),
        ]
    }
}

/// Explores all states within the bounds, or stops when a safety property is violated. Returns the number of states and
/// the names of the violated properties.
fn explore(bounds: Bounds) -> (usize, Vec<&'static str>) {
    let enough = HasDiscoveries::AnyOf(BTreeSet::from(["agreement", "acknowledged is in the log"]));
    let properties = bounds.properties();
    let checker = bounds.checker().finish_when(enough).threads(1).spawn_dfs().join();
    let is_wrong = |property: &Property<Bounds>| {
        let found = checker.discovery(property.name).is_some();
        found == matches!(property.expectation, stateright::Expectation::Always)
    };
    let wrong = properties.iter().filter(|property| is_wrong(property)).map(|property| property.name);
    (checker.unique_state_count(), wrong.collect())
}

/// A leader has two entries that no other node has, and has restarted. Another leader is elected, and no follower has
/// its no-op entry yet.
const FORKED: &[Past] = &[
    Past::Elected { leader: 1, by: 2 },
    Past::Settled(1),
    Past::Alone(1),
    Past::Alone(1),
    Past::Restarted(1),
    Past::Elected { leader: 0, by: 2 },
];

fn holds(name: &str, bounds: Bounds, never: &[&str]) {
    let (states, wrong) = explore(bounds);
    println!("log, {name}: {states} states");
    assert_eq!(wrong, never, "{name}");
}

/// The property that only a model with early sending can reach.
const AHEAD: &str = "crashed ahead of its disk";

#[test]
fn what_two_leaders_decide_is_one_history() {
    let bounds = Bounds { elections: [1, 1, 0], proposals: 1, crashes: 1, ..NOTHING };
    holds("two terms, a value, a crash", bounds, &["changed", AHEAD]);
}

#[test]
fn three_may_ask_to_lead() {
    let bounds = Bounds { elections: [1, 1, 1], crashes: 1, ..NOTHING };
    holds("three terms, a crash", bounds, &["decided", "changed", AHEAD]);
}

/// A leader that all nodes follow.
const SETTLED: &[Past] = &[Past::Elected { leader: 0, by: 2 }, Past::Settled(0)];

#[test]
fn a_voter_is_let_go() {
    let bounds = Bounds { elections: [0, 1, 1], changes: 1, past: SETTLED, ..NOTHING };
    holds("a voter is let go while others ask to lead", bounds, &["decided", AHEAD, "crashed"]);
    let bounds = Bounds { elections: [0, 1, 0], changes: 1, crashes: 1, past: SETTLED, ..NOTHING };
    holds("a voter is let go, another asks to lead, a crash", bounds, &["decided", AHEAD]);
}

#[test]
fn a_leader_sends_what_it_has_not_stored() {
    let bounds =
        Bounds { elections: [1, 0, 1], proposals: 1, crashes: 1, early: true, past: SETTLED, ..NOTHING };
    holds("what is sent early, two terms more, a crash", bounds, &["changed"]);
}

#[test]
fn a_fork_is_mended() {
    let bounds = Bounds { elections: [1, 1, 0], past: FORKED, ..NOTHING };
    holds("a fork, then two terms more", bounds, &["changed", AHEAD, "crashed"]);
}

#[test]
#[ignore = "takes minutes: `cargo xtask soak` runs it"]
fn more_leaders_more_crashes() {
    let bounds = Bounds { elections: [2, 1, 0], proposals: 1, ..NOTHING };
    holds("three terms, a value", bounds, &["changed", AHEAD, "crashed"]);
    let bounds = Bounds { elections: [1, 1, 0], crashes: 1, past: FORKED, ..NOTHING };
    holds("a fork, then two terms more, a crash", bounds, &["changed", AHEAD]);
}
