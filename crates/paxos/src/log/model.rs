//! Model of the log: stateright explores every order of votes and decisions with the types of this module.
//!
//! The model has three voters and one entry a message; the bounds set the number of elections and proposals. The
//! network is a set that only grows. A node may crash between any two steps and lose its memory. Time stands still and
//! every timeout is zero: a node may start an election at any moment, and no voter refuses because it has heard from a
//! leader.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};

use holdoff_testbed::fault::inject_if;
use stateright::{Checker, HasDiscoveries, Model, Property};

use super::faults::{self, LogFault};
use crate::log::node::Role;
use crate::log::{
    Entry, EntryPayload, Input, Message, Node, Options, Output, Record, StepOutput, Store, Term,
};
use crate::{Configuration, NodeId, Slot};

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
    fault: Option<LogFault>,
}

/// No elections and no faults.
const NOTHING: Bounds =
    Bounds { elections: [0; 3], proposals: 0, changes: 0, crashes: 0, early: false, past: &[], fault: None };

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
            Property::always("validity", |_, state: &State| state.is_valid()),
            Property::always("leaders have all decided entries", |_, state: &State| state.leaders_have_all()),
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
    let enough = HasDiscoveries::AnyOf(BTreeSet::from(["agreement", "leaders have all decided entries"]));
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
fn two_leaders_decide_one_history() {
    let bounds = Bounds { elections: [1, 1, 0], proposals: 1, crashes: 1, ..NOTHING };
    holds("two terms, a value, a crash", bounds, &["changed", AHEAD]);
}

#[test]
fn three_candidates_decide_one_history() {
    let bounds = Bounds { elections: [1, 1, 1], crashes: 1, ..NOTHING };
    holds("three terms, a crash", bounds, &["decided", "changed", AHEAD]);
}

/// A leader that all nodes follow.
const SETTLED: &[Past] = &[Past::Elected { leader: 0, by: 2 }, Past::Settled(0)];

#[test]
fn a_voter_is_removed() {
    let bounds = Bounds { elections: [0, 1, 1], changes: 1, past: SETTLED, ..NOTHING };
    holds("a voter is removed during elections of the others", bounds, &["decided", AHEAD, "crashed"]);
    let bounds = Bounds { elections: [0, 1, 0], changes: 1, crashes: 1, past: SETTLED, ..NOTHING };
    holds("a voter is removed, another runs for election, a crash", bounds, &["decided", AHEAD]);
}

#[test]
fn a_leader_sends_unstored_entries() {
    let bounds =
        Bounds { elections: [1, 0, 1], proposals: 1, crashes: 1, early: true, past: SETTLED, ..NOTHING };
    holds("unstored entries are sent, two more terms, a crash", bounds, &["changed"]);
}

#[test]
fn a_forked_log_is_repaired() {
    let bounds = Bounds { elections: [1, 1, 0], past: FORKED, ..NOTHING };
    holds("a fork, then two more terms", bounds, &["changed", AHEAD, "crashed"]);
}

#[test]
#[ignore = "takes minutes: `cargo xtask soak` runs it"]
fn more_elections_and_crashes() {
    let bounds = Bounds { elections: [2, 1, 0], proposals: 1, ..NOTHING };
    holds("three terms, a value", bounds, &["changed", AHEAD, "crashed"]);
    let bounds = Bounds { elections: [1, 1, 0], crashes: 1, past: FORKED, ..NOTHING };
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
    let found = found(Bounds { elections: [1, 1, 0], past: FORKED, fault, ..NOTHING });
    assert!(found.contains(&"agreement"), "{found:?}");
}

#[test]
fn deciding_part_of_an_inherited_log_violates_agreement() {
    let fault = Some(LogFault::CommitInherited);
    let found = found(Bounds { elections: [1, 1, 0], past: FORKED, fault, ..NOTHING });
    assert!(found.contains(&"agreement") || found.contains(&"leaders have all decided entries"), "{found:?}");
}

#[test]
fn counting_an_unstored_entry_violates_agreement() {
    let found = found(Bounds {
        elections: [0, 0, 1],
        proposals: 1,
        crashes: 1,
        early: true,
        past: SETTLED,
        fault: Some(LogFault::CountUnstored),
        ..NOTHING
    });
    assert!(found.contains(&"leaders have all decided entries") || found.contains(&"agreement"), "{found:?}");
}

type TestMessage = Message<u8, ()>;
type StepOf = StepOutput<Record<u8, ()>, Output<u8, ()>>;

const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];
/// The voters that remain after the change.
const STAYING: [NodeId; 2] = [NodeId(1), NodeId(2)];
const OPTIONS: Options =
    Options { election_us: 0, heartbeat_us: 0, batch: 1, window: 4, undecided: 4, early: false };

#[derive(Clone, Copy, PartialEq, Debug)]
enum Action {
    /// A node starts an election and wins the pre-vote.
    Run(usize),
    /// A leader sends its next entries or a heartbeat.
    Beat(usize),
    Propose(usize),
    /// A leader is asked to remove the last voter.
    Change(usize),
    /// The message with this number arrives.
    Hear(u64),
    /// The unstored records of a node, part of which it has already sent, reach its disk.
    Store(usize),
    Crash(usize),
}

/// An event before the exploration begins.
#[derive(Clone, Copy, Debug)]
enum Past {
    /// A node has become leader with the vote of one other node, and has sent nothing yet.
    Elected {
        leader: usize,
        by: usize,
    },
    /// All nodes have the leader's log and know that it is decided.
    Settled(usize),
    /// A leader has appended an entry that reached no follower.
    Alone(usize),
    Restarted(usize),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Sent {
    from: usize,
    to: usize,
    message: TestMessage,
}

impl Sent {
    fn number(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    nodes: Vec<Node<u8, ()>>,
    disks: Vec<Store<u8, ()>>,
    /// Steps that are not on disk yet. Empty unless leaders send early.
    unstored: Vec<Vec<StepOf>>,
    options: Options,
    /// Messages by the hash of their content: equal messages are in the network once.
    network: BTreeMap<u64, Sent>,
    /// All entries ever decided, each with the term in which it was first decided.
    decided: BTreeMap<Slot, (Term, Entry<u8>)>,
    elections_left: [u8; 3],
    proposals: u8,
    proposals_left: u8,
    changes_left: u8,
    crashes_left: u8,
    torn: bool,
    /// Whether a node crashed after others had received entries that it had not stored.
    crashed_ahead: bool,
}

impl State {
    fn new(bounds: &Bounds) -> Self {
        let store = Store::new(Configuration::new(NODES).unwrap(), ());
        let options = Options { early: bounds.early, ..OPTIONS };
        let mut state = Self {
            nodes: NODES.map(|me| Node::new(me, options, store.clone(), 0, 0)).into(),
            disks: vec![store; NODES.len()],
            unstored: vec![Vec::new(); NODES.len()],
            options,
            network: BTreeMap::new(),
            decided: BTreeMap::new(),
            elections_left: [u8::MAX; 3],
            proposals: 0,
            proposals_left: u8::MAX,
            changes_left: bounds.changes,
            crashes_left: bounds.crashes,
            torn: false,
            crashed_ahead: false,
        };
        for past in bounds.past {
            state.has_happened(*past);
        }
        state.elections_left = bounds.elections;
        state.proposals_left = bounds.proposals;
        state.clear();
        state
    }

    fn has_happened(&mut self, past: Past) {
        match past {
            Past::Elected { leader, by } => {
                self.network.clear();
                self.run(leader);
                self.deliver_all(|sent| sent.to == by && matches!(sent.message, Message::RequestVote(_)));
                self.deliver_all(|sent| sent.from == by && matches!(sent.message, Message::VoteReply { .. }));
                self.network.clear();
            }
            Past::Settled(leader) => {
                for _ in 0..4 {
                    self.step(leader, Input::Tick);
                    self.deliver_all(|sent| matches!(sent.message, Message::Append(_)));
                    self.deliver_all(|sent| matches!(sent.message, Message::AppendAccepted { .. }));
                }
            }
            Past::Alone(leader) => {
                self.happen(Action::Propose(leader));
                self.network.clear();
            }
            Past::Restarted(at) => self.restart(at),
        }
    }

    fn deliver_all(&mut self, which: impl Fn(&Sent) -> bool) {
        let numbers: Vec<_> =
            self.network.iter().filter(|(_, sent)| which(sent)).map(|(number, _)| *number).collect();
        for number in numbers {
            self.happen(Action::Hear(number));
        }
    }

    fn restart(&mut self, at: usize) {
        self.unstored[at].clear();
        self.nodes[at] = Node::new(NODES[at], self.options, self.disks[at].clone(), 0, 0);
    }

    fn actions(&self, actions: &mut Vec<Action>) {
        for (at, node) in self.nodes.iter().enumerate() {
            if self.elections_left[at] > 0 && node.leads().is_none() {
                actions.push(Action::Run(at));
            }
            if node.leads().is_some() {
                actions.push(Action::Beat(at));
            }
            if self.proposals_left > 0 && node.is_ready() {
                actions.push(Action::Propose(at));
            }
            if self.changes_left > 0 && node.is_ready() {
                actions.push(Action::Change(at));
            }
            if self.crashes_left > 0 {
                actions.push(Action::Crash(at));
            }
            if !self.unstored[at].is_empty() {
                actions.push(Action::Store(at));
            }
        }
        actions.extend(self.network.keys().map(|number| Action::Hear(*number)));
    }

    fn happen(&mut self, action: Action) {
        match action {
            Action::Run(at) => {
                self.elections_left[at] -= 1;
                self.run(at);
            }
            Action::Beat(at) => self.step(at, Input::Tick),
            Action::Propose(at) => {
                self.proposals_left -= 1;
                self.proposals += 1;
                self.step(at, Input::Propose(self.proposals));
            }
            Action::Change(at) => {
                self.changes_left -= 1;
                self.step(at, Input::ChangeConfiguration(Configuration::new(STAYING).unwrap()));
            }
            Action::Hear(number) => {
                let Some(Sent { from, to, message }) = self.network.get(&number).cloned() else { return };
                self.step(to, Input::Message(NODES[from], message));
            }
            Action::Store(at) => {
                let steps = std::mem::take(&mut self.unstored[at]);
                self.store(at, steps);
            }
            Action::Crash(at) => {
                self.crashed_ahead |= !self.unstored[at].is_empty();
                self.crashes_left -= 1;
                self.restart(at);
            }
        }
    }

    /// Starts an election. A pre-vote binds no voter, so that the model lets another voter grant it at once.
    fn run(&mut self, at: usize) {
        self.step(at, Input::Tick);
        let is_pre_vote = self.network.values().find_map(|sent| match sent.message {
            Message::RequestVote(asked) if asked.is_pre_vote && sent.from == at => {
                Some((sent.to, asked.term))
            }
            _ => None,
        });
        self.network
            .retain(|_, sent| !matches!(sent.message, Message::RequestVote(asked) if asked.is_pre_vote));
        if let Some((voter, term)) = is_pre_vote {
            let granted =
                Message::VoteReply { is_pre_vote: true, term, granted: true, promised: Term::none() };
            self.step(at, Input::Message(NODES[voter], granted));
        }
    }

    fn step(&mut self, at: usize, input: Input<u8, ()>) {
        for step in faults::step(&mut self.nodes[at], 0, 0, input) {
            self.finish(at, step);
        }
    }

    fn finish(&mut self, at: usize, mut step: StepOf) {
        let early = step.early();
        let overtakes = !early.is_empty() && step.record().is_some();
        self.perform(at, early);
        let is_empty = step == StepOutput::new(Vec::new(), Vec::new(), Vec::new());
        let unstored = &mut self.unstored[at];
        if !overtakes && unstored.is_empty() {
            self.store(at, vec![step]);
        } else if step.record().is_some() || !(is_empty || unstored.contains(&step)) {
            // An identical step without records is kept once.
            unstored.push(step);
        }
    }

    fn store(&mut self, at: usize, steps: Vec<StepOf>) {
        let disk = &mut self.disks[at];
        let stored = StepOutput::release_all(steps, |records| {
            for record in records.into_iter().flatten() {
                disk.apply(record);
            }
            Ok::<_, Infallible>(())
        });
        self.perform(at, stored.unwrap().into_iter().flatten().collect());
    }

    fn perform(&mut self, at: usize, outputs: Vec<Output<u8, ()>>) {
        for output in outputs {
            match output {
                Output::Send(to, message) => self.send(at, to, message),
                Output::Decided(slot) => self.decide(at, slot),
                Output::Stored { term, slot } => self.step(at, Input::Stored { term, slot }),
                _ => {}
            }
        }
    }

    fn send(&mut self, from: usize, to: NodeId, message: TestMessage) {
        let Some(to) = NODES.iter().position(|node| *node == to) else { return };
        let sent = Sent { from, to, message };
        if self.is_alive(&sent) {
            self.network.insert(sent.number(), sent);
        }
    }

    fn decide(&mut self, at: usize, through: Slot) {
        let store = self.nodes[at].store();
        for slot in (1..=through.0).map(Slot) {
            let entry = store.entry(slot).cloned().unwrap();
            let known = self.decided.entry(slot).or_insert((store.promised(), entry.clone()));
            self.torn |= known.1 != entry;
        }
    }

    /// Drops state without influence: the time of the last heartbeat, because time stands still, and messages that can
    /// no longer change any node.
    fn clear(&mut self) {
        for node in &mut self.nodes {
            (node.heard_us, node.highest_attempt) = (None, 0);
            if let Role::Follower(leader) = &mut node.role {
                *leader = None;
            }
        }
        let dead =
            |(number, sent): (&u64, &Sent)| (!self.is_alive(sent) || self.is_idle(sent)).then_some(*number);
        let dead: Vec<_> = self.network.iter().filter_map(dead).collect();
        self.network.retain(|number, _| !dead.contains(number));
    }

    /// Returns whether the receiver still accepts messages of this message's term.
    fn is_alive(&self, sent: &Sent) -> bool {
        let node = &self.nodes[sent.to];
        let promised = |term: &Term| self.disks[sent.to].promised_under(term.start());
        match &sent.message {
            Message::RequestVote(asked) => asked.is_pre_vote || asked.term > promised(&asked.term),
            Message::Append(append) => append.term >= promised(&append.term),
            Message::InstallSnapshot { term, .. } => *term >= promised(term),
            Message::VoteReply { is_pre_vote, term, granted, .. } => {
                let waits = |role: &Role| {
                    matches!(role, Role::Candidate { is_pre_vote: of_pre_vote, term: of, .. }
                    if (of_pre_vote, of) == (is_pre_vote, term))
                };
                *granted && waits(&node.role)
            }
            Message::AppendAccepted { term, .. } | Message::AppendRejected { term, .. } => {
                node.leads() == Some(*term)
            }
            Message::StaleTerm { .. } | Message::TimeoutNow { .. } => false,
        }
    }

    /// Returns whether the message would change nothing, and would cause no message that is not already in the network.
    fn is_idle(&self, sent: &Sent) -> bool {
        let mut node = self.nodes[sent.to].clone();
        let outputs = node.step(0, 0, Input::Message(NODES[sent.from], sent.message.clone()));
        if outputs.record().is_some() {
            return false;
        }
        node.heard_us = None;
        if let Role::Follower(leader) = &mut node.role {
            *leader = None;
        }
        let outputs = outputs.release(|_| Ok::<_, Infallible>(())).unwrap();
        let is_known = |output: &Output<u8, ()>| match output {
            Output::Send(to, message) => NODES.iter().position(|node| node == to).is_some_and(|to| {
                let answer = Sent { from: sent.to, to, message: message.clone() };
                self.network.contains_key(&answer.number())
                    || !self.is_alive(&answer)
                    || self.is_acknowledged(&answer)
            }),
            _ => false,
        };
        node == self.nodes[sent.to] && outputs.iter().all(is_known)
    }

    /// Returns whether the leader already has this acknowledgement.
    fn is_acknowledged(&self, answer: &Sent) -> bool {
        let mut node = self.nodes[answer.to].clone();
        let step = node.step(0, 0, Input::Message(NODES[answer.from], answer.message.clone()));
        matches!(answer.message, Message::AppendAccepted { .. })
            && node == self.nodes[answer.to]
            && step.release(|_| Ok::<_, Infallible>(())).unwrap().is_empty()
    }

    fn is_valid(&self) -> bool {
        self.decided.values().all(|(_, entry)| match entry.payload {
            EntryPayload::Value(value) => (1..=self.proposals).contains(&value),
            EntryPayload::NoOp => true,
            EntryPayload::Configuration(ref configuration) => configuration.acceptors() == STAYING,
        })
    }

    /// Returns whether every leader has all entries that were decided in terms before its own.
    fn leaders_have_all(&self) -> bool {
        self.nodes.iter().filter_map(|node| Some((node, node.leads()?))).all(|(node, term)| {
            let mut earlier = self.decided.iter().filter(|(_, (of, _))| *of < term);
            earlier.all(|(slot, (_, entry))| node.store().entry(*slot) == Some(entry))
        })
    }

    fn has_one_leader_per_term(&self) -> bool {
        let terms: Vec<_> = self.nodes.iter().filter_map(Node::leads).collect();
        terms.iter().enumerate().all(|(index, term)| !terms[..index].contains(term))
    }

    fn has_decided_a_value(&self) -> bool {
        self.decided.values().any(|(_, entry)| matches!(entry.payload, EntryPayload::Value(_)))
    }

    /// Returns whether a node's disk has another entry in a decided slot.
    fn has_conflict(&self) -> bool {
        self.decided.iter().any(|(slot, (_, entry))| {
            self.disks.iter().filter_map(|disk| disk.entry(*slot)).any(|there| there != entry)
        })
    }

    /// Returns whether a leader serves under the changed configuration.
    fn has_changed(&self) -> bool {
        self.nodes.iter().any(|node| node.is_ready() && node.store().configuration().acceptors() == STAYING)
    }

    /// Returns whether an entry was decided in a later term than it was created in.
    fn has_inherited(&self) -> bool {
        self.decided.values().any(|(term, entry)| entry.term < *term)
    }
}
