//! Model of one slot: stateright explores every order of events with the types of this module.
//!
//! The model has two proposers with two ballots each, three acceptors, and a learner that applies the chosen value. The
//! network is a set that only grows: each message may arrive now, later, repeatedly, or never. One acceptor may crash
//! and lose its memory and its unstored records. One proposer may restart as another incarnation, which wants another
//! value.
//!
//! Three reductions keep the state space small:
//!
//! - Proposers and the learner receive answers in pairs that end a proposer's phase or show the learner a chosen value.
//!   A proposer that still waits has no visible effect, and the answers it waits for stay in the network.
//! - Messages that can no longer change any state are removed. This is sound because ballots are never reused and
//!   stored promises never fall; the model checks both.
//! - Acceptors are interchangeable (symmetry reduction).

mod mutants;
mod people;
mod state;

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::flaw::{self, Flaw};
use state::{Action, State};

/// The bounds of the exploration.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// The number of ballots of each proposer.
    ballots: [u64; 2],
    /// The number of crashes of acceptors.
    crashes: u8,
    /// The number of restarts of proposers.
    restarts: u8,
    /// Whether the acceptors also get a prepare request for another slot.
    elsewhere: bool,
    /// The defect that the exploration must find.
    flaw: Option<Flaw>,
}

impl Bounds {
    const WHOLE: Self = Self { ballots: [2, 2], crashes: 1, restarts: 1, elsewhere: false, flaw: None };

    /// Returns whether messages may be removed. If ballots are reused, no message may be removed. If promises fall,
    /// removing messages hides some violations and leaves enough to find.
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

/// Explores all states within the bounds, or stops when two values are chosen. Returns the number of states and the
/// names of the violated properties.
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
