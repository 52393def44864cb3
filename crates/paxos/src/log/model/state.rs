//! A state of the model: nodes, disks, the messages between them, and the actions that lead to other states.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::Bounds;
use crate::log::faults;
use crate::log::node::Role;
use crate::log::{Entry, EntryPayload, Input, LogId, Message, Node, Options, Output, Snapshot, Store, Term};
use crate::{Configuration, NodeId, Slot};

type TestMessage = Message<u8, ()>;
type StepOf = holdoff_driver::StepOf<Node<u8, ()>>;

/// The maximum number of messages that one event may cause after healing.
const MAX_DELIVERIES: usize = 1000;

/// The maximum number of nodes of a model.
pub(super) const MAX_NODES: usize = 5;

const OPTIONS: Options = Options {
    election_us: 0,
    heartbeat_us: 0,
    batch: 1,
    batch_bytes: 1000,
    window: 4,
    window_bytes: 1000,
    undecided: 4,
    early: false,
};

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Action {
    /// A node starts an election and wins the pre-vote.
    Run(usize),
    /// A leader sends its next entries or a heartbeat.
    Beat(usize),
    Propose(usize),
    /// A leader is asked for the next configuration of the bounds.
    Change(usize),
    /// A node learns all decided entries from a proof.
    Learn(usize),
    /// A node installs a snapshot of all decided entries from a proof.
    Restore(usize),
    /// A node replaces its decided entries with a snapshot.
    Compact(usize),
    /// The message with this number arrives.
    Hear(u64),
    /// The unstored records of a node, part of which it has already sent, reach its disk.
    Store(usize),
    Crash(usize),
    /// A node fails and never returns.
    Lose(usize),
}

/// An event before the exploration begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Past {
    /// A node has become leader with the votes of these nodes, and has sent nothing yet.
    Elected {
        leader: usize,
        by: &'static [usize],
    },
    /// All nodes have the leader's log and know that it is decided.
    Settled(usize),
    /// A leader has appended an entry that reached no follower.
    Alone(usize),
    /// A leader has proposed the next configuration of the bounds, and these followers have stored it.
    Changing {
        leader: usize,
        stored: &'static [usize],
    },
    /// The leader knows that its last entry is decided, and no other node does.
    Decided(usize),
    Restarted(usize),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Sent {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) message: TestMessage,
}

impl Sent {
    fn number(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct State {
    pub(super) nodes: Vec<Node<u8, ()>>,
    disks: Vec<Store<u8, ()>>,
    /// Steps that are not on disk yet. Empty unless leaders send early.
    unstored: Vec<Vec<StepOf>>,
    options: Options,
    /// Messages by the hash of their content: equal messages are in the network once.
    pub(super) network: BTreeMap<u64, Sent>,
    /// All entries ever decided, each with the term in which it was first decided.
    pub(super) decided: BTreeMap<Slot, (Term, Entry<u8>)>,
    voters: Configuration,
    elections_left: [u8; MAX_NODES],
    pub(super) proposals: u8,
    proposals_left: u8,
    /// The configurations that a leader may propose, in order.
    changes_left: &'static [&'static [u128]],
    learns_left: u8,
    snapshots_left: u8,
    pub(super) crashes_left: u8,
    losses_left: u8,
    /// The nodes that have failed and never return.
    pub(super) lost: Vec<usize>,
    delivery: Delivery,
    pub(super) torn: bool,
    /// Whether a node crashed after others had received entries that it had not stored.
    pub(super) crashed_ahead: bool,
}

/// The messages that can arrive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Delivery {
    /// Messages that may change their receiver, except refusals.
    Grants,
    /// Refusals of votes and of entries, too.
    Refusals,
    /// All messages arrive, also those that only cause a refusal.
    All,
}

/// Returns the id of a node.
pub(super) fn name(at: usize) -> NodeId {
    NodeId(at as u128 + 1)
}

fn configuration(voters: &[u128]) -> Configuration {
    Configuration::new(voters.iter().copied().map(NodeId)).unwrap()
}

impl State {
    pub(super) fn new(bounds: &Bounds) -> Self {
        let voters = configuration(bounds.voters);
        let store = Store::new(voters.clone(), ());
        let options = Options { early: bounds.early, ..OPTIONS };
        let mut state = Self {
            nodes: (0..bounds.nodes).map(|at| Node::new(name(at), options, store.clone(), 0, 0)).collect(),
            disks: vec![store; bounds.nodes],
            unstored: vec![Vec::new(); bounds.nodes],
            options,
            network: BTreeMap::new(),
            decided: BTreeMap::new(),
            voters,
            elections_left: [u8::MAX; MAX_NODES],
            proposals: 0,
            proposals_left: u8::MAX,
            changes_left: bounds.changes,
            learns_left: bounds.learns,
            snapshots_left: bounds.snapshots,
            crashes_left: bounds.crashes,
            losses_left: bounds.losses,
            lost: Vec::new(),
            delivery: if bounds.refusals { Delivery::Refusals } else { Delivery::Grants },
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
                let is_request = |sent: &Sent| matches!(sent.message, Message::RequestVote(_));
                self.deliver_all(|sent| by.contains(&sent.to) && is_request(sent));
                let is_vote = |sent: &Sent| matches!(sent.message, Message::VoteReply { .. });
                self.deliver_all(|sent| by.contains(&sent.from) && is_vote(sent));
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
            Past::Changing { leader, stored } => {
                self.happen(Action::Change(leader));
                self.deliver_all(|sent| {
                    stored.contains(&sent.to) && matches!(sent.message, Message::Append(_))
                });
                self.network.retain(|_, sent| matches!(sent.message, Message::AppendAccepted { .. }));
            }
            Past::Decided(leader) => {
                self.deliver_all(|sent| sent.to == leader);
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
        self.nodes[at] = Node::new(name(at), self.options, self.disks[at].clone(), 0, 0);
    }

    pub(super) fn actions(&self, actions: &mut Vec<Action>) {
        let alive = self.nodes.iter().enumerate().filter(|(at, _)| !self.lost.contains(at));
        for (at, node) in alive {
            if self.elections_left[at] > 0 && node.leads().is_none() {
                actions.push(Action::Run(at));
            }
            if node.leads().is_some() {
                actions.push(Action::Beat(at));
            }
            if self.proposals_left > 0 && node.is_ready() {
                actions.push(Action::Propose(at));
            }
            if !self.changes_left.is_empty() && node.is_ready() {
                actions.push(Action::Change(at));
            }
            let is_behind = self.decided.keys().last().is_some_and(|last| *last > node.store().decided());
            if self.learns_left > 0 && is_behind {
                actions.push(Action::Learn(at));
            }
            if self.snapshots_left > 0 && is_behind {
                actions.push(Action::Restore(at));
            }
            if self.snapshots_left > 0 && node.store().decided() > node.store().snapshot().last.slot {
                actions.push(Action::Compact(at));
            }
            if self.crashes_left > 0 {
                actions.push(Action::Crash(at));
            }
            if self.losses_left > 0 {
                actions.push(Action::Lose(at));
            }
            if !self.unstored[at].is_empty() {
                actions.push(Action::Store(at));
            }
        }
        actions.extend(self.network.keys().map(|number| Action::Hear(*number)));
    }

    pub(super) fn happen(&mut self, action: Action) {
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
                let Some((to, rest)) = self.changes_left.split_first() else { return };
                self.changes_left = rest;
                self.step(at, Input::ChangeConfiguration(configuration(to)));
            }
            Action::Learn(at) => {
                self.learns_left -= 1;
                let first = self.nodes[at].store().decided().next();
                let entries = self.decided.range(first..).map(|(_, (_, entry))| entry.clone()).collect();
                self.step(at, Input::Learn { first, entries });
            }
            Action::Restore(at) => {
                self.snapshots_left -= 1;
                let snapshot = self.snapshot();
                self.step(at, Input::RestoreSnapshot(snapshot));
            }
            Action::Compact(at) => {
                self.snapshots_left -= 1;
                let through = self.nodes[at].store().decided();
                self.step(at, Input::Compact { through, state: () });
            }
            Action::Hear(number) => {
                let Some(Sent { from, to, message }) = self.network.get(&number).cloned() else { return };
                self.step(to, Input::Message(name(from), message));
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
            Action::Lose(at) => {
                self.losses_left -= 1;
                self.restart(at);
                self.lost.push(at);
            }
        }
    }

    pub(super) fn first_voters(&self) -> &Configuration {
        &self.voters
    }

    /// Stops all faults: unstored records reach the disks, messages of the past are lost, and nodes hear refusals.
    pub(super) fn heal(&mut self) {
        for at in 0..self.nodes.len() {
            let steps = std::mem::take(&mut self.unstored[at]);
            self.store(at, steps);
        }
        self.network.clear();
        self.delivery = Delivery::All;
    }

    /// Delivers all messages, and the messages that they cause, each once.
    pub(super) fn deliver(&mut self) {
        for _ in 0..MAX_DELIVERIES {
            let Some((_, Sent { from, to, message })) = self.network.pop_first() else { return };
            self.step(to, Input::Message(name(from), message));
            for at in 0..self.nodes.len() {
                let steps = std::mem::take(&mut self.unstored[at]);
                self.store(at, steps);
            }
        }
        panic!("the nodes do not stop sending messages");
    }

    /// Returns a snapshot of all decided entries.
    fn snapshot(&self) -> Snapshot<()> {
        let change = |(slot, (_, entry)): (&Slot, &(Term, Entry<u8>))| match &entry.payload {
            EntryPayload::Configuration(voters) => Some((slot.next(), voters.clone())),
            _ => None,
        };
        let first = || (Slot(1), self.voters.clone());
        let (start, configuration) = self.decided.iter().rev().find_map(change).unwrap_or_else(first);
        let last =
            self.decided.iter().last().map(|(slot, (_, entry))| LogId { slot: *slot, term: entry.term });
        let last = last.unwrap_or(LogId { slot: Slot(0), term: Term::none() });
        Snapshot { last, start, configuration, state: () }
    }

    /// Starts an election. A pre-vote binds no voter, so that the model lets all other voters grant it at once.
    fn run(&mut self, at: usize) {
        self.step(at, Input::Tick);
        let is_pre_vote = |sent: &Sent| match sent.message {
            Message::RequestVote(asked) if asked.is_pre_vote => Some((sent.from, sent.to, asked.term)),
            _ => None,
        };
        let asked: Vec<_> = self.network.values().filter_map(is_pre_vote).collect();
        self.network.retain(|_, sent| is_pre_vote(sent).is_none());
        for (from, voter, term) in asked {
            let (is_pre_vote, granted, promised, decided_change) = (true, true, Term::none(), None);
            let reply = Message::VoteReply { is_pre_vote, term, granted, promised, decided_change };
            self.step(from, Input::Message(name(voter), reply));
        }
    }

    pub(super) fn step(&mut self, at: usize, input: Input<u8, ()>) {
        if self.lost.contains(&at) {
            return;
        }
        let step = faults::step(&mut self.nodes[at], 0, 0, input);
        self.finish(at, step);
    }

    fn finish(&mut self, at: usize, mut step: StepOf) {
        let at_once = step.take_at_once();
        let overtakes = !at_once.is_empty() && !step.records().is_empty();
        self.perform(at, at_once);
        let unstored = &mut self.unstored[at];
        if !overtakes && unstored.is_empty() {
            self.store(at, vec![step]);
        } else if !step.records().is_empty() || !(step.is_empty() || unstored.contains(&step)) {
            // An identical step without records is kept once.
            unstored.push(step);
        }
    }

    fn store(&mut self, at: usize, steps: Vec<StepOf>) {
        let disk = &mut self.disks[at];
        let (mut outputs, mut when_stored) = (Vec::new(), None);
        for step in steps {
            let stored = step.store(|records| {
                for record in records {
                    disk.apply(record);
                }
                Ok::<_, Infallible>(())
            });
            let (released, input) = stored.unwrap();
            outputs.extend(released);
            when_stored = input.or(when_stored);
        }
        self.perform(at, outputs);
        if let Some(input) = when_stored {
            self.step(at, input);
        }
    }

    fn perform(&mut self, at: usize, outputs: Vec<Output<u8, ()>>) {
        for output in outputs {
            match output {
                Output::Send(to, message) => self.send(at, to, message),
                Output::Decided(slot) => self.decide(at, slot),
                Output::SnapshotOffered(_, snapshot) => self.step(at, Input::RestoreSnapshot(snapshot)),
                _ => {}
            }
        }
    }

    fn send(&mut self, from: usize, to: NodeId, message: TestMessage) {
        let Some(to) = self.position(to) else { return };
        let sent = Sent { from, to, message };
        if self.delivery == Delivery::All || self.is_alive(&sent) {
            self.network.insert(sent.number(), sent);
        }
    }

    fn position(&self, node: NodeId) -> Option<usize> {
        (0..self.nodes.len()).find(|at| name(*at) == node)
    }

    fn decide(&mut self, at: usize, through: Slot) {
        let store = self.nodes[at].store();
        for slot in (store.snapshot().last.slot.0 + 1..=through.0).map(Slot) {
            let entry = store.entry(slot).cloned().unwrap();
            let known = self.decided.entry(slot).or_insert((store.promised(), entry.clone()));
            self.torn |= known.1 != entry;
        }
    }

    /// Drops state without influence: the time of the last heartbeat, because time stands still, and messages that can
    /// no longer change any node.
    pub(super) fn clear(&mut self) {
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
        if self.lost.contains(&sent.to) {
            return false;
        }
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
                (*granted || self.delivery != Delivery::Grants) && waits(&node.role)
            }
            Message::AppendAccepted { term, .. } | Message::AppendRejected { term, .. } => {
                node.leads() == Some(*term)
            }
            Message::StaleTerm { term, .. } => {
                self.delivery != Delivery::Grants && node.leads() == Some(*term)
            }
            Message::TimeoutNow { .. } => false,
        }
    }

    /// Returns whether the message would change nothing, and would cause no message that is not already in the network.
    fn is_idle(&self, sent: &Sent) -> bool {
        let mut node = self.nodes[sent.to].clone();
        let outputs = node.step(0, 0, Input::Message(name(sent.from), sent.message.clone()));
        if !outputs.records().is_empty() {
            return false;
        }
        (node.heard_us, node.highest_attempt) = (None, 0);
        if let Role::Follower(leader) = &mut node.role {
            *leader = None;
        }
        let (outputs, _) = outputs.store(|_| Ok::<_, Infallible>(())).unwrap();
        let is_known = |output: &Output<u8, ()>| match output {
            Output::Send(to, message) => self.position(*to).is_some_and(|to| {
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
        let step = node.step(0, 0, Input::Message(name(answer.from), answer.message.clone()));
        matches!(answer.message, Message::AppendAccepted { .. })
            && node == self.nodes[answer.to]
            && step.store(|_| Ok::<_, Infallible>(())).unwrap().0.is_empty()
    }

    pub(super) fn is_valid(&self, bounds: &Bounds) -> bool {
        self.decided.values().all(|(_, entry)| match entry.payload {
            EntryPayload::Value(value) => (1..=self.proposals).contains(&value),
            EntryPayload::NoOp => true,
            EntryPayload::Configuration(ref to) => bounds.changes.iter().any(|it| configuration(it) == *to),
        })
    }

    /// Returns whether every leader has all entries that were decided in terms before its own.
    pub(super) fn leaders_have_all(&self) -> bool {
        self.nodes.iter().filter_map(|node| Some((node, node.leads()?))).all(|(node, term)| {
            let mut earlier = self.decided.iter().filter(|(_, (of, _))| *of < term);
            let base = node.store().snapshot().last.slot;
            earlier.all(|(slot, (_, entry))| *slot <= base || node.store().entry(*slot) == Some(entry))
        })
    }

    pub(super) fn has_one_leader_per_term(&self) -> bool {
        let terms: Vec<_> = self.nodes.iter().filter_map(Node::leads).collect();
        terms.iter().enumerate().all(|(index, term)| !terms[..index].contains(term))
    }

    pub(super) fn has_decided_a_value(&self) -> bool {
        self.decided.values().any(|(_, entry)| matches!(entry.payload, EntryPayload::Value(_)))
    }

    /// Returns whether a node's disk has another entry in a decided slot.
    pub(super) fn has_conflict(&self) -> bool {
        self.decided.iter().any(|(slot, (_, entry))| {
            self.disks.iter().filter_map(|disk| disk.entry(*slot)).any(|there| there != entry)
        })
    }

    /// Returns whether a leader serves under the changed configuration.
    pub(super) fn has_changed(&self) -> bool {
        self.nodes.iter().any(|node| node.is_ready() && *node.store().configuration() != self.voters)
    }

    /// Returns whether an entry was decided in a later term than it was created in.
    pub(super) fn has_inherited(&self) -> bool {
        self.decided.values().any(|(term, entry)| entry.term < *term)
    }
}
