//! One slot, in every order in which anything can happen: the types of this module under stateright.
//!
//! Two proposers with two ballots each, three acceptors, a learner that applies. The network is a set that only
//! grows: what is in it may arrive now, later, again, or never. One acceptor may lose its memory, and what it had
//! not stored; one proposer may begin another life, in which it wants something else.
//!
//! Three things keep it small. Answers are heard in pairs that end a proposer's phase, or show the learner a choice:
//! who still waits is seen by nobody, and what it waits for stays in the network. What can move nobody any more is
//! cleared, for ballots are never used twice and stored promises never fall, which is checked as well. And which
//! acceptor is which makes no difference.

mod mutants;
mod people;
mod state;

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::flaw::{self, Flaw};
use state::{Action, State};

/// How much may happen.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Ballots of each proposer.
    ballots: [u64; 2],
    /// How many times the first acceptor may crash.
    crashes: u8,
    /// How many times a proposer may begin another life.
    restarts: u8,
    /// Whether somebody asks for promises in another slot, too.
    elsewhere: bool,
    /// The defect to be found.
    flaw: Option<Flaw>,
}

impl Bounds {
    const WHOLE: Self = Self { ballots: [2, 2], crashes: 1, restarts: 1, elsewhere: false, flaw: None };

    /// Nothing may be cleared where ballots come again. Where promises fall clearing takes away some of what could go
    /// wrong, and leaves enough to be found.
    fn clears(&self) -> bool {
        self.flaw != Some(Flaw::ReuseBallot)
    }
}

impl Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        flaw::with(self.flaw, || state.actions(self, actions));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let next = flaw::with(self.flaw, || {
            let mut next = last.clone();
            next.happen(action);
            if self.clears() {
                next.clear();
            }
            next
        });
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("agreement", |_, state: &State| state.agrees()),
            Property::always("validity", |_, state: &State| state.is_valid()),
            Property::always("applied once", |_, state: &State| state.applied.len() <= 1),
            Property::always("a ballot is used once", |_, state: &State| !state.reused),
            Property::always("what is stored never falls", |_, state: &State| !state.fell),
            Property::sometimes("a proposer learns its own", |_, state: &State| state.chooses_own()),
            Property::sometimes("a proposer learns another's", |_, state: &State| state.chooses_another()),
            Property::sometimes("applied", |_, state: &State| !state.applied.is_empty()),
            Property::sometimes("preempted", |_, state: &State| state.is_preempted()),
            Property::sometimes("crashed", |_, state: &State| state.crashes_left == 0),
            Property::sometimes("restarted", |_, state: &State| state.restarts_left == 0),
        ]
    }
}

/// Explores everything within the bounds, or until two values are chosen, and says what is wrong.
fn explore(bounds: Bounds) -> (usize, Vec<&'static str>) {
    let enough = HasDiscoveries::AnyOf(BTreeSet::from(["agreement"]));
    let checker = bounds.checker().symmetry_fn(State::representative).finish_when(enough).threads(1);
    let checker = checker.spawn_dfs().join();
    let mut wrong: Vec<_> = bounds
        .properties()
        .into_iter()
        .filter(|property| {
            let found = checker.discovery(property.name).is_some();
            found == matches!(property.expectation, stateright::Expectation::Always)
        })
        .map(|property| property.name)
        .collect();
    wrong.sort_unstable();
    (checker.unique_state_count(), wrong)
}

#[test]
fn one_value_is_chosen_whatever_happens() {
    let (states, wrong) = explore(Bounds::WHOLE);
    println!("slot: {states} states");
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(states > 10_000, "{states} states are not the whole of it");
}
