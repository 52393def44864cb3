//! A test cluster: messages between nodes are queued, and each test delivers or drops them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;

use holdoff_driver::{Driver, WriteOptions};

use crate::log::{EntryPayload, Input, Message, Node, Options, Output, Rejection, Store, Term};
use crate::{Configuration, NodeId, Slot};

type TestMessage = Message<u64, u64>;

pub(super) struct TestCluster {
    nodes: Vec<Driver<Node<u64, u64>>>,
    disks: Vec<Store<u64, u64>>,
    queue: VecDeque<(NodeId, NodeId, TestMessage)>,
    cut: Vec<(u128, u128)>,
    candidates: BTreeSet<NodeId>,
    /// The number of append messages, and of entries in them, that were sent to each node.
    sent: BTreeMap<NodeId, (usize, usize)>,
    options: Options,
    /// The node with the slow disk.
    slow: Option<u128>,
    now_us: u64,
}

pub(super) fn nodes(some: &[u128]) -> impl Iterator<Item = NodeId> + '_ {
    some.iter().copied().map(NodeId)
}

fn driver(node: Node<u64, u64>) -> Driver<Node<u64, u64>> {
    Driver::new(node, WriteOptions::default())
}

fn roll_of(node: u128) -> impl FnMut() -> u32 {
    move || u32::try_from(node).unwrap().wrapping_mul(1_000_000_000)
}

fn index(node: u128) -> usize {
    usize::try_from(node - 1).unwrap()
}

impl TestCluster {
    /// Creates a cluster with `count` nodes. The first three of them vote.
    pub(super) fn new(count: u128) -> Self {
        Self::with(count, Options::default())
    }

    pub(super) fn with(count: u128, options: Options) -> Self {
        Self::build(count, count.min(3), options)
    }

    /// Creates a cluster in which all nodes vote.
    pub(super) fn of_voters(count: u128) -> Self {
        Self::build(count, count, Options::default())
    }

    fn build(count: u128, voters: u128, options: Options) -> Self {
        let store = Store::new(Configuration::new((1..=voters).map(NodeId)).unwrap(), 0);
        let node = |me| driver(Node::new(NodeId(me), options, store.clone(), 0, 0));
        Self {
            nodes: (1..=count).map(node).collect(),
            disks: (1..=count).map(|_| store.clone()).collect(),
            queue: VecDeque::new(),
            cut: Vec::new(),
            candidates: BTreeSet::new(),
            sent: BTreeMap::new(),
            options,
            slow: None,
            now_us: 0,
        }
    }

    pub(super) fn node(&self, node: u128) -> &Node<u64, u64> {
        self.nodes[index(node)].core()
    }

    /// Returns the decided values that are present as entries.
    pub(super) fn values(&self, node: u128) -> Vec<u64> {
        let store = self.node(node).store();
        let entries = (1..=store.decided().0).filter_map(|slot| store.entry(Slot(slot)));
        let value = |payload: &EntryPayload<u64>| match payload {
            EntryPayload::Value(value) => Some(*value),
            _ => None,
        };
        entries.filter_map(|entry| value(&entry.payload)).collect()
    }

    pub(super) fn step(&mut self, node: u128, input: Input<u64, u64>) -> Vec<Output<u64, u64>> {
        self.nodes[index(node)].step(self.now_us, &mut roll_of(node), input);
        self.run(node)
    }

    /// Performs the released outputs, and stores the records unless the disk is slow. Returns the outputs for the client.
    fn run(&mut self, node: u128) -> Vec<Output<u64, u64>> {
        let mut outputs = self.nodes[index(node)].take_outputs();
        if self.slow != Some(node) {
            let (driver, disk) = (&mut self.nodes[index(node)], &mut self.disks[index(node)]);
            let store = |records: Vec<_>| {
                for record in records {
                    disk.apply(record);
                }
                Ok::<_, Infallible>(())
            };
            driver.write_through(self.now_us, &mut roll_of(node), store).unwrap();
            outputs.extend(driver.take_outputs());
        }
        self.perform(node, outputs)
    }

    fn perform(&mut self, node: u128, outputs: Vec<Output<u64, u64>>) -> Vec<Output<u64, u64>> {
        let mut rest = Vec::new();
        for output in outputs {
            match output {
                Output::Send(to, message) => {
                    if matches!(message, Message::RequestVote(_)) {
                        self.candidates.insert(NodeId(node));
                    }
                    if let Message::Append(append) = &message {
                        let (messages, entries) = self.sent.entry(to).or_default();
                        *messages += 1;
                        *entries += append.more.len() + usize::from(append.entry.is_some());
                    }
                    if !self.cut.contains(&(node, to.0)) {
                        self.queue.push_back((NodeId(node), to, message));
                    }
                }
                Output::SnapshotOffered(_, snapshot) => {
                    rest.extend(self.step(node, Input::RestoreSnapshot(snapshot)));
                }
                other => rest.push(other),
            }
        }
        rest
    }

    /// Holds back all writes to a node's disk from now on.
    pub(super) fn slow_down(&mut self, node: u128) {
        self.slow = Some(node);
    }

    /// Stores the steps that were held back.
    pub(super) fn flush(&mut self) {
        if let Some(node) = self.slow.take() {
            self.run(node);
        }
    }

    pub(super) fn deliver(&mut self, node: u128, from: u128, message: TestMessage) {
        self.step(node, Input::Message(NodeId(from), message));
    }

    /// Delivers all messages until the queue is empty.
    pub(super) fn settle(&mut self) {
        self.settle_those(|_| true);
    }

    /// Delivers the first message in the queue and nothing else.
    pub(super) fn deliver_next(&mut self) {
        let (from, to, message) = self.queue.pop_front().unwrap();
        self.deliver(to.0, from.0, message);
    }

    /// Delivers only votes and requests for votes; all other messages are lost.
    pub(super) fn settle_votes(&mut self) {
        self.settle_those(|message| matches!(message, Message::RequestVote(_) | Message::VoteReply { .. }));
    }

    /// Delivers all messages except acknowledgements of entries, which are lost.
    pub(super) fn settle_without_acknowledgements(&mut self) {
        self.settle_those(|message| !matches!(message, Message::AppendAccepted { .. }));
    }

    /// Delivers requests for votes and their answers, up to the first answer outside a pre-vote. That answer stays in
    /// the queue.
    pub(super) fn settle_votes_but_the_last(&mut self) {
        let counts = |message: &TestMessage| matches!(message, Message::VoteReply { is_pre_vote: false, .. });
        while let Some((from, to, message)) = self.queue.pop_front() {
            if counts(&message) {
                self.queue.clear();
                self.queue.push_back((from, to, message));
                return;
            }
            self.deliver(to.0, from.0, message);
        }
    }

    /// Delivers all messages until the queue is empty, and returns how many of them are of a kind.
    pub(super) fn settle_counting(&mut self, is_of_kind: impl Fn(&TestMessage) -> bool) -> usize {
        let mut count = 0;
        while let Some((from, to, message)) = self.queue.pop_front() {
            count += usize::from(is_of_kind(&message));
            self.deliver(to.0, from.0, message);
        }
        count
    }

    fn settle_those(&mut self, which: impl Fn(&TestMessage) -> bool) {
        while let Some((from, to, message)) = self.queue.pop_front() {
            if which(&message) {
                self.deliver(to.0, from.0, message);
            }
        }
    }

    /// Returns the number of append messages, and of entries in them, that were sent to a node since the last call.
    pub(super) fn take_sent(&mut self, to: u128) -> (usize, usize) {
        self.sent.remove(&NodeId(to)).unwrap_or_default()
    }

    /// Takes all messages from the queue without delivering them.
    pub(super) fn take_messages(&mut self) -> Vec<TestMessage> {
        self.queue.drain(..).map(|(_, _, message)| message).collect()
    }

    pub(super) fn cut(&mut self, links: &[(u128, u128)]) {
        self.cut = links.to_vec();
    }

    /// Advances the time and ticks every node.
    pub(super) fn pass(&mut self, us: u64) {
        self.now_us += us;
        for node in 1..=self.nodes.len() as u128 {
            self.step(node, Input::Tick);
        }
    }

    pub(super) fn ask_to_lead(&mut self, node: u128) {
        self.now_us += 10_000_000;
        self.step(node, Input::Tick);
    }

    pub(super) fn elect(&mut self, node: u128) {
        self.ask_to_lead(node);
        self.settle();
        assert!(self.node(node).is_ready());
    }

    /// Returns whether a node ever asked for votes.
    pub(super) fn asked_to_lead(&self, node: u128) -> bool {
        self.candidates.contains(&NodeId(node))
    }

    pub(super) fn restart(&mut self, node: u128) {
        self.slow.take_if(|slow| *slow == node);
        let store = self.disks[index(node)].clone();
        self.nodes[index(node)] = driver(Node::new(NodeId(node), self.options, store, self.now_us, 0));
    }

    pub(super) fn propose(&mut self, node: u128, value: u64) -> Result<Slot, Rejection> {
        let outputs = self.step(node, Input::Propose(value));
        answer(&outputs)
    }

    /// Proposes at a node with a slow disk: the client gets no answer yet.
    pub(super) fn propose_early(&mut self, node: u128, value: u64) {
        assert!(
            self.step(node, Input::Propose(value)).is_empty(),
            "a node with a slow disk answers no proposal"
        );
    }

    pub(super) fn hint(&mut self, node: u128) {
        self.step(node, Input::Campaign);
    }

    /// Asks a leader to transfer leadership, and returns the immediate outputs.
    pub(super) fn transfer_leadership(&mut self, node: u128, to: u128) -> Vec<Output<u64, u64>> {
        self.step(node, Input::TransferLeadership(NodeId(to)))
    }

    /// Advances the time and ticks a single node.
    pub(super) fn pass_for(&mut self, node: u128, us: u64) -> Vec<Output<u64, u64>> {
        self.now_us += us;
        self.step(node, Input::Tick)
    }

    pub(super) fn change(&mut self, node: u128, to: &Configuration) -> Result<Slot, Rejection> {
        let outputs = self.step(node, Input::ChangeConfiguration(to.clone()));
        answer(&outputs)
    }

    pub(super) fn compact(&mut self, node: u128, through: Slot, state: u64) {
        self.step(node, Input::Compact { through, state });
    }
}

/// Returns an arbitrary term.
pub(super) fn term_of_one() -> Term {
    Term::new(Slot(1), 1, NodeId(1))
}

fn answer(outputs: &[Output<u64, u64>]) -> Result<Slot, Rejection> {
    let answer = outputs.iter().find_map(|output| match output {
        Output::Proposed(slot, _) => Some(Ok(*slot)),
        Output::ProposalRejected(rejection) => Some(Err(*rejection)),
        _ => None,
    });
    answer.expect("the node answers each proposal")
}
