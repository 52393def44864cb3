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

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use faults::SlotFault;
use holdoff_testbed::fault::inject_if;
use stateright::{Checker, HasDiscoveries, Model, Property};

use super::{AcceptReply, Learner, PromiseReply, Vote};
use crate::{Ballot, Configuration, NodeId};
use participants::{Phase, Proposer, Value, Voter, elsewhere};

mod faults;
mod participants;

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
    fault: Option<SlotFault>,
}

impl Bounds {
    const WHOLE: Self = Self { ballots: [2, 2], crashes: 1, restarts: 1, elsewhere: false, fault: None };

    /// Returns whether messages may be removed. If ballots are reused, no message may be removed. If promises fall,
    /// removing messages hides some violations and leaves enough to find.
    fn clears(&self) -> bool {
        self.fault != Some(SlotFault::ReuseBallot)
    }
}

impl Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        inject_if(self.fault, || state.actions(self, actions));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let next = inject_if(self.fault, || {
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
            Property::always("stored promises never decrease", |_, state: &State| !state.fell),
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
fn one_value_is_chosen_in_every_order_of_events() {
    let (states, wrong) = explore(Bounds::WHOLE);
    println!("slot: {states} states");
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(states > 10_000, "{states} states are too few for the whole model");
}

const PROPOSERS: [NodeId; 2] = [NodeId(11), NodeId(12)];
const ACCEPTORS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Message {
    Prepare(Ballot),
    Accept(Vote<Value>),
    PrepareElsewhere(Ballot),
    Promised(NodeId, PromiseReply<Value>),
    /// Sent to the proposer and to the learner.
    Accepted(NodeId, Vote<Value>),
    Refused(NodeId, AcceptReply),
}

impl Message {
    /// Returns whether the message is a request to acceptors.
    fn is_request(&self) -> bool {
        matches!(self, Self::Prepare(_) | Self::Accept(_) | Self::PrepareElsewhere(_))
    }

    fn is_from(&self, node: NodeId) -> bool {
        match self {
            Self::Promised(from, _) | Self::Accepted(from, _) | Self::Refused(from, _) => *from == node,
            _ => false,
        }
    }

    fn renamed(&self, name_of: impl Fn(NodeId) -> NodeId) -> Self {
        let mut renamed = self.clone();
        if let Self::Promised(from, _) | Self::Accepted(from, _) | Self::Refused(from, _) = &mut renamed {
            *from = name_of(*from);
        }
        renamed
    }

    fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(..) | Self::Promised(_, PromiseReply::Nack { .. }))
    }
}

#[derive(Clone, PartialEq, Debug)]
enum Action {
    /// A proposer begins its next attempt. An attempt in progress counts as timed out.
    Begin(usize),
    ToAcceptor(usize, Message),
    /// A proposer receives two answers, possibly the same answer twice. The pair ends its phase, so that no third
    /// answer matters.
    ToProposer(usize, [Message; 2]),
    ToLearner([Message; 2]),
    /// An acceptor crashes before it has stored its record for this message.
    Crash(usize, Option<Message>),
    Restart(usize),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    configuration: Configuration,
    proposers: Vec<Proposer>,
    voters: Vec<Voter>,
    network: BTreeSet<Message>,
    applied: Vec<Value>,
    crashes_left: u8,
    restarts_left: u8,
    /// A ballot was begun twice.
    reused: bool,
    /// An acceptor's stored promise has become lower.
    fell: bool,
}

impl State {
    fn new(bounds: &Bounds) -> Self {
        let configuration = Configuration::new(ACCEPTORS).unwrap();
        let mut network = BTreeSet::new();
        if bounds.elsewhere {
            network.insert(Message::PrepareElsewhere(elsewhere()));
        }
        Self {
            configuration,
            proposers: PROPOSERS.map(Proposer::new).into(),
            voters: ACCEPTORS.map(Voter::new).into(),
            network,
            applied: Vec::new(),
            crashes_left: bounds.crashes,
            restarts_left: bounds.restarts,
            reused: false,
            fell: false,
        }
    }

    fn actions(&self, bounds: &Bounds, actions: &mut Vec<Action>) {
        for (at, (proposer, ballots)) in self.proposers.iter().zip(bounds.ballots).enumerate() {
            let goes_on = !matches!(proposer.phase, Phase::Chosen(_));
            if goes_on && proposer.attempt < ballots {
                actions.push(Action::Begin(at));
            }
            if self.restarts_left > 0 && proposer.attempt > 0 {
                actions.push(Action::Restart(at));
            }
        }
        for at in 0..self.voters.len() {
            let requests = || self.network.iter().filter(|message| message.is_request()).cloned();
            actions.extend(requests().map(|message| Action::ToAcceptor(at, message)));
            if self.crashes_left > 0 {
                actions.push(Action::Crash(at, None));
                actions.extend(requests().map(|message| Action::Crash(at, Some(message))));
            }
        }
        for (at, proposer) in self.proposers.iter().enumerate() {
            let refusals = self.refusals(at);
            let answers = self.network.iter().filter(|message| !message.is_request());
            let effective: Vec<_> =
                answers.chain(&refusals).filter(|answer| proposer.is_changed_by(answer)).collect();
            let moved = pairs(&effective).filter(|pair| proposer.is_moved_by(pair));
            actions.extend(moved.map(|pair| Action::ToProposer(at, pair)));
        }
        let votes = self.network.iter().filter(|message| matches!(message, Message::Accepted(..)));
        let votes: Vec<_> = votes.collect();
        actions.extend(pairs(&votes).filter(|pair| self.learned(pair).is_some()).map(Action::ToLearner));
    }

    /// Returns the refusals that a proposer can receive from now on. They stay possible, because promises never fall.
    fn refusals(&self, at: usize) -> Vec<Message> {
        let request = match &self.proposers[at].phase {
            Phase::Preparing(preparing) => Message::Prepare(preparing.ballot()),
            Phase::Accepting(accepting) => {
                Message::Accept(Vote { ballot: accepting.ballot(), value: *accepting.value() })
            }
            _ => return Vec::new(),
        };
        let answers = self.voters.iter().flat_map(|voter| {
            let mut voter = voter.clone();
            voter.receive(&request);
            voter.store()
        });
        answers.filter(Message::is_refusal).collect()
    }

    fn happen(&mut self, action: Action) {
        match action {
            Action::Begin(at) => {
                let before = self.proposers[at].attempt;
                let ballot = self.proposers[at].begin(&self.configuration);
                self.reused |= ballot.attempt() <= before;
                self.network.insert(Message::Prepare(ballot));
            }
            Action::ToAcceptor(at, message) => {
                self.voters[at].receive(&message);
                self.store(at);
            }
            Action::ToProposer(at, pair) => self.answer(at, &pair),
            Action::ToLearner(pair) => self.applied.extend(self.learned(&pair)),
            Action::Crash(at, message) => {
                self.crashes_left -= 1;
                if let Some(message) = message {
                    self.voters[at].receive(&message);
                }
                self.voters[at].crash();
            }
            Action::Restart(at) => {
                self.restarts_left -= 1;
                self.proposers[at].restart();
            }
        }
    }

    fn store(&mut self, at: usize) {
        let voter = &mut self.voters[at];
        let before = voter.disk.here.promised();
        self.network.extend(voter.store().into_iter().filter(|message| !message.is_refusal()));
        self.fell |= voter.disk.here.promised() < before;
    }

    fn answer(&mut self, at: usize, pair: &[Message; 2]) {
        let proposer = &mut self.proposers[at];
        for message in pair {
            proposer.answer(message);
        }
        if let Phase::Accepting(accepting) = &proposer.phase {
            let vote = Vote { ballot: accepting.ballot(), value: *accepting.value() };
            self.network.insert(Message::Accept(vote));
        }
    }

    /// Returns the value that these votes show to be chosen, if the learner has not applied it yet.
    fn learned(&self, pair: &[Message; 2]) -> Option<Value> {
        let mut learner = Learner::new(self.configuration.clone());
        let mut remaining = ACCEPTORS.to_vec();
        let chosen = pair.iter().find_map(|message| match message {
            Message::Accepted(from, vote) => {
                let from = faults::counted_as(*from, remaining.iter().copied());
                remaining.retain(|acceptor| *acceptor != from);
                learner.accepted(from, vote.ballot, vote.value)
            }
            _ => None,
        });
        chosen.map(|vote| vote.value).filter(|value| !self.applied.contains(value))
    }

    /// Removes messages from the network that can no longer change any state.
    fn clear(&mut self) {
        let moves = |message: &Message| match message {
            Message::Prepare(ballot) => {
                self.voters.iter().any(|voter| voter.disk.here.promised() < Some(*ballot))
            }
            Message::Accept(vote) => self.voters.iter().any(|voter| {
                let acceptor = &voter.disk.here;
                acceptor.promised() <= Some(vote.ballot)
                    && acceptor.accepted().is_none_or(|accepted| accepted.ballot != vote.ballot)
            }),
            Message::PrepareElsewhere(_) => true,
            Message::Promised(_, reply) => match reply {
                PromiseReply::Promise { ballot, .. } => self.is_preparing(*ballot),
                PromiseReply::Nack { .. } => false,
            },
            Message::Accepted(_, vote) => {
                !self.applied.contains(&vote.value) || self.is_accepting(vote.ballot)
            }
            Message::Refused(..) => false,
        };
        let kept = self.network.iter().filter(|message| moves(message)).cloned().collect();
        self.network = kept;
    }

    /// Returns the state with the acceptors sorted by their state and their messages. Acceptors are interchangeable, so
    /// that the order makes no difference to the behaviour.
    fn representative(&self) -> Self {
        let mut voters: Vec<_> = self.voters.iter().map(|voter| (self.state_hash(voter), voter)).collect();
        voters.sort_by_key(|(hash, _)| *hash);
        let name_of = |node: NodeId| {
            let index = voters.iter().position(|(_, voter)| voter.node == node);
            index.map_or(node, |index| ACCEPTORS[index])
        };
        let renamed = voters.iter().map(|(_, voter)| Voter { node: name_of(voter.node), ..(*voter).clone() });
        let network = self.network.iter().map(|message| message.renamed(name_of)).collect();
        Self { voters: renamed.collect(), network, ..self.clone() }
    }

    /// Hashes everything about an acceptor except its id.
    fn state_hash(&self, voter: &Voter) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&voter.memory, &voter.disk).hash(&mut hasher);
        for message in self.network.iter().filter(|message| message.is_from(voter.node)) {
            message.renamed(|_| ACCEPTORS[0]).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn is_preparing(&self, ballot: Ballot) -> bool {
        let at = |phase: &Phase| matches!(phase, Phase::Preparing(preparing) if preparing.ballot() == ballot);
        self.proposers.iter().any(|proposer| at(&proposer.phase))
    }

    fn is_accepting(&self, ballot: Ballot) -> bool {
        let at = |phase: &Phase| matches!(phase, Phase::Accepting(accepting) if accepting.ballot() == ballot);
        self.proposers.iter().any(|proposer| at(&proposer.phase))
    }

    fn chosen(&self) -> impl Iterator<Item = (NodeId, Value)> + '_ {
        self.proposers.iter().filter_map(|proposer| match proposer.phase {
            Phase::Chosen(value) => Some((proposer.wants.of, value)),
            _ => None,
        })
    }

    /// Returns whether all values that a proposer or the learner considers chosen are the same.
    fn agrees(&self) -> bool {
        let mut all = self.chosen().map(|(_, value)| value).chain(self.applied.iter().copied());
        all.next().is_none_or(|first| all.all(|other| other == first))
    }

    /// Returns whether every chosen value was wanted by a proposer in one of its incarnations.
    fn is_valid(&self) -> bool {
        let wanted = |value: Value| {
            self.proposers
                .iter()
                .any(|one| one.wants.of == value.of && value.incarnation <= one.wants.incarnation)
        };
        self.chosen().map(|(_, value)| value).chain(self.applied.iter().copied()).all(wanted)
    }

    fn chooses_own(&self) -> bool {
        self.chosen().any(|(of, value)| value.of == of)
    }

    fn chooses_another(&self) -> bool {
        self.chosen().any(|(of, value)| value.of != of)
    }

    fn is_preempted(&self) -> bool {
        self.proposers.iter().any(|proposer| proposer.phase == Phase::Preempted)
    }
}

/// Returns every pair of messages in both orders, including a message with itself: the network duplicates messages.
fn pairs<'a>(messages: &'a [&Message]) -> impl Iterator<Item = [Message; 2]> + 'a {
    messages
        .iter()
        .flat_map(|one| messages.iter().map(move |other| [one, other].map(|message| (*message).clone())))
}
