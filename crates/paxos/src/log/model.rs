//! Model of the log: stateright explores every order of votes and decisions with the types of this module.
//!
//! The bounds set the number of nodes, elections, proposals, changes and faults; a message has one entry. The network is a
//! set that only grows. A node may crash between any two steps and lose its memory, or may be lost for good. Time stands
//! still and every timeout is zero: a node may start an election at any moment, and no voter refuses because it has heard
//! from a leader.

mod recovery;
mod state;

use std::collections::BTreeSet;

use holdoff_testbed::fault::inject_if;
use stateright::{Checker, HasDiscoveries, Model, Property};

use super::faults::LogFault;
use state::{Action, MAX_NODES, Past, State};

/// The bounds of the exploration.
#[derive(Clone, Debug)]
struct Bounds {
    nodes: usize,
    /// The first configuration. Node 1 has index 0.
    voters: &'static [u128],
    /// The number of elections that each node may start.
    elections: [u8; MAX_NODES],
    proposals: u8,
    /// The configurations that leaders propose, in this order.
    changes: &'static [&'static [u128]],
    /// The number of times that a node learns decided entries from a proof.
    learns: u8,
    /// The number of snapshots that nodes take or install.
    snapshots: u8,
    crashes: u8,
    /// The number of nodes that are lost for good.
    losses: u8,
    /// Whether nodes hear refusals. Without them a refusal is a lost message.
    refusals: bool,
    /// Whether every state is continued without faults, to see that it recovers.
    recovers: bool,
    /// Whether leaders send entries that they have not stored. A crash then loses these entries.
    early: bool,
    /// The events before the exploration begins.
    past: &'static [Past],
    fault: Option<LogFault>,
}

/// Three voters, no elections and no faults.
const NOTHING: Bounds = Bounds {
    nodes: 3,
    voters: &[1, 2, 3],
    elections: [0; MAX_NODES],
    proposals: 0,
    changes: &[],
    learns: 0,
    snapshots: 0,
    crashes: 0,
    losses: 0,
    refusals: false,
    recovers: false,
    early: false,
    past: &[],
    fault: None,
};

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
        inject_if(self.fault, || next.happen(action));
        next.clear();
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("agreement", |_, state: &State| !state.torn),
            Property::always("validity", |bounds: &Self, state: &State| state.is_valid(bounds)),
            Property::always("leaders have all decided entries", |_, state: &State| state.leaders_have_all()),
            Property::always("one leader per term", |_, state: &State| state.has_one_leader_per_term()),
            Property::always(RECOVERS, |bounds: &Self, state: &State| {
                !bounds.recovers || inject_if(bounds.fault, || state.recovers())
            }),
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
    let enough =
        HasDiscoveries::AnyOf(BTreeSet::from(["agreement", "leaders have all decided entries", RECOVERS]));
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
    Past::Elected { leader: 1, by: &[2] },
    Past::Settled(1),
    Past::Alone(1),
    Past::Alone(1),
    Past::Restarted(1),
    Past::Elected { leader: 0, by: &[2] },
];

fn holds(name: &str, bounds: Bounds, never: &[&str]) {
    let (states, wrong) = explore(bounds);
    println!("log, {name}: {states} states");
    assert_eq!(wrong, never, "{name}");
}

/// The property that a leader is elected and decides a proposal, once faults stop.
const RECOVERS: &str = "recovers";

/// The property that only a model with early sending can reach.
const AHEAD: &str = "crashed ahead of its disk";

#[test]
fn two_leaders_decide_one_history() {
    let bounds = Bounds { elections: [1, 1, 0, 0, 0], proposals: 1, crashes: 1, ..NOTHING };
    holds("two terms, a value, a crash", bounds, &["changed", AHEAD]);
}

#[test]
fn three_candidates_decide_one_history() {
    let bounds = Bounds { elections: [1, 1, 1, 0, 0], crashes: 1, ..NOTHING };
    holds("three terms, a crash", bounds, &["decided", "changed", AHEAD]);
}

/// A leader that all nodes follow.
const SETTLED: &[Past] = &[Past::Elected { leader: 0, by: &[2] }, Past::Settled(0)];

#[test]
fn a_voter_is_removed() {
    let bounds = Bounds { elections: [0, 1, 1, 0, 0], changes: &[&[1, 2]], past: SETTLED, ..NOTHING };
    holds("a voter is removed during elections of the others", bounds, &["decided", AHEAD, "crashed"]);
    let bounds =
        Bounds { elections: [0, 1, 0, 0, 0], changes: &[&[1, 2]], crashes: 1, past: SETTLED, ..NOTHING };
    holds("a voter is removed, another runs for election, a crash", bounds, &["decided", AHEAD]);
}

/// Leader 1 has decided the change of the bounds with node 2, and no other node knows it.
const CHANGED_IN_SECRET: &[Past] = &[
    Past::Elected { leader: 0, by: &[1] },
    Past::Settled(0),
    Past::Changing { leader: 0, stored: &[1] },
    Past::Decided(0),
];

/// Node 4 is added while another node leads a later term, and a node is lost.
fn a_voter_is_added_in_secret(fault: Option<LogFault>) -> Bounds {
    Bounds {
        nodes: 4,
        elections: [0, 1, 0, 0, 0],
        changes: &[&[1, 2, 3, 4]],
        losses: 1,
        refusals: true,
        recovers: true,
        past: CHANGED_IN_SECRET,
        fault,
        ..NOTHING
    }
}

/// Leader 1 has decided its own removal with nodes 2 and 3, and no other node knows it.
const REMOVED_IN_SECRET: &[Past] = &[
    Past::Elected { leader: 0, by: &[1, 2] },
    Past::Settled(0),
    Past::Changing { leader: 0, stored: &[1, 2] },
    Past::Decided(0),
];

fn a_leader_is_removed_in_secret(fault: Option<LogFault>) -> Bounds {
    Bounds {
        nodes: 4,
        voters: &[1, 2, 3, 4],
        elections: [0, 1, 0, 0, 0],
        changes: &[&[2, 3, 4]],
        losses: 1,
        refusals: true,
        recovers: true,
        past: REMOVED_IN_SECRET,
        fault,
        ..NOTHING
    }
}

/// Leader 1 has decided its own removal in secret. Node 2 starts an election, and may learn of the decision then; node 3
/// starts another election, before or after it learns of the decision.
fn a_candidate_learns_of_a_change(fault: Option<LogFault>) -> Bounds {
    Bounds {
        nodes: 4,
        voters: &[1, 2, 3, 4],
        elections: [0, 1, 1, 0, 0],
        changes: &[&[2, 3, 4]],
        learns: 2,
        past: REMOVED_IN_SECRET,
        fault,
        ..NOTHING
    }
}

#[test]
fn a_secret_change_is_found_out() {
    let never = ["decided", "decided by another", "to be overwritten", AHEAD, "crashed"];
    holds("a voter is added in secret, an election, a loss", a_voter_is_added_in_secret(None), &never);
    holds("a leader is removed in secret, an election, a loss", a_leader_is_removed_in_secret(None), &never);
}

/// Two voters: an election of each, a value, a crash.
const TWO: Bounds = Bounds {
    nodes: 2,
    voters: &[1, 2],
    elections: [1, 1, 0, 0, 0],
    proposals: 1,
    crashes: 1,
    refusals: true,
    recovers: true,
    ..NOTHING
};

/// Five voters with a settled leader, a node that starts an election, and a loss.
const FIVE: Bounds = Bounds {
    nodes: 5,
    voters: &[1, 2, 3, 4, 5],
    elections: [0, 1, 0, 0, 0],
    losses: 1,
    refusals: true,
    recovers: true,
    past: &[
        Past::Elected { leader: 0, by: &[1, 2] },
        Past::Settled(0),
        Past::Changing { leader: 0, stored: &[1, 2] },
        Past::Decided(0),
    ],
    changes: &[&[2, 3, 4, 5]],
    ..NOTHING
};

/// Three voters with a settled leader and a value: snapshots and proofs in place of entries, an election.
const SNAPSHOTS: Bounds = Bounds {
    elections: [0, 1, 0, 0, 0],
    proposals: 1,
    learns: 1,
    snapshots: 1,
    refusals: true,
    recovers: true,
    past: SETTLED,
    ..NOTHING
};

#[test]
fn clusters_of_two_and_five_recover() {
    holds("two voters, a value, a crash", TWO, &["to be overwritten", "changed", AHEAD]);
    let never = ["decided", "decided by another", "to be overwritten", AHEAD, "crashed"];
    holds("five voters, one is removed in secret, an election, a loss", FIVE, &never);
}

#[test]
fn snapshots_and_proofs_replace_entries() {
    holds("a value, a snapshot, a proof, an election", SNAPSHOTS, &["changed", AHEAD, "crashed"]);
}

#[test]
fn a_candidate_that_learns_of_a_change_does_not_lead() {
    holds(
        "a candidate learns of a change, another runs",
        a_candidate_learns_of_a_change(None),
        &["decided", AHEAD, "crashed"],
    );
}

#[test]
fn comparing_terms_across_configurations_prevents_recovery() {
    let found = found(a_voter_is_added_in_secret(Some(LogFault::CompareAcrossConfigurations)));
    assert!(found.contains(&RECOVERS), "{found:?}");
}

#[test]
fn ignoring_a_decided_change_prevents_recovery() {
    let found = found(a_leader_is_removed_in_secret(Some(LogFault::IgnoreDecidedChange)));
    assert!(found.contains(&RECOVERS), "{found:?}");
}

#[test]
fn keeping_a_candidacy_violates_agreement() {
    let found = found(a_candidate_learns_of_a_change(Some(LogFault::KeepCandidacy)));
    assert!(found.contains(&"agreement") || found.contains(&"leaders have all decided entries"), "{found:?}");
}

#[test]
fn a_leader_sends_unstored_entries() {
    let bounds = Bounds {
        elections: [1, 0, 1, 0, 0],
        proposals: 1,
        crashes: 1,
        early: true,
        past: SETTLED,
        ..NOTHING
    };
    holds("unstored entries are sent, two more terms, a crash", bounds, &["changed"]);
}

#[test]
fn a_forked_log_is_repaired() {
    let bounds = Bounds { elections: [1, 1, 0, 0, 0], past: FORKED, ..NOTHING };
    holds("a fork, then two more terms", bounds, &["changed", AHEAD, "crashed"]);
}

#[test]
#[ignore = "takes minutes: `cargo xtask soak` runs it"]
fn more_elections_and_crashes() {
    let bounds = Bounds { elections: [2, 1, 0, 0, 0], proposals: 1, ..NOTHING };
    holds("three terms, a value", bounds, &["changed", AHEAD, "crashed"]);
    let bounds = Bounds { elections: [1, 1, 0, 0, 0], crashes: 1, past: FORKED, ..NOTHING };
    holds("a fork, then two more terms, a crash", bounds, &["changed", AHEAD]);
}

/// Explores with an injected defect and returns the names of the violated properties.
fn found(bounds: Bounds) -> Vec<&'static str> {
    let fault = bounds.fault;
    let (states, found) = explore(bounds);
    println!("{fault:?}: {states} states; {found:?}");
    found
}

#[test]
fn appending_without_a_log_match_violates_agreement() {
    let fault = Some(LogFault::AppendWithoutMatch);
    let found = found(Bounds { elections: [1, 1, 0, 0, 0], past: FORKED, fault, ..NOTHING });
    assert!(found.contains(&"agreement"), "{found:?}");
}

#[test]
fn deciding_part_of_an_inherited_log_violates_agreement() {
    let fault = Some(LogFault::CommitInherited);
    let found = found(Bounds { elections: [1, 1, 0, 0, 0], past: FORKED, fault, ..NOTHING });
    assert!(found.contains(&"agreement") || found.contains(&"leaders have all decided entries"), "{found:?}");
}

#[test]
fn counting_an_unstored_entry_violates_agreement() {
    let found = found(Bounds {
        elections: [0, 0, 1, 0, 0],
        proposals: 1,
        crashes: 1,
        early: true,
        past: SETTLED,
        fault: Some(LogFault::CountUnstored),
        ..NOTHING
    });
    assert!(found.contains(&"leaders have all decided entries") || found.contains(&"agreement"), "{found:?}");
}
