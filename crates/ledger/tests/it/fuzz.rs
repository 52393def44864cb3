//! A million mutated goal texts, and as many mutated snapshots and messages: no input causes a panic, and no node
//! accepts anything without a proof.
//!
//! A seed determines all inputs. To replay a seed or to run more cases:
//!
//! `HOLDOFF_SEED=… HOLDOFF_SEEDS=… cargo test -p holdoff-ledger --test it fuzz`

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::mem::discriminant;

use bytes::Bytes;
use fastrand::Rng;
use holdoff_driver::{Driver, WriteOptions};
use holdoff_ledger::machine::{Command, Facts, Goal, Key, KeyValue, Overlay, StateMachine};
use holdoff_ledger::{
    Consistency, Hash, Head, HeadSignature, Input, Ledger, Message, MessageOf, Notary, Options, Output,
    OutputOf, ReadId, Recovered, SnapshotContent, Store, SubmissionId, TxId, TxKey, snapshot_id,
};
use holdoff_paxos::{Configuration, NodeId, Slot, log};
use holdoff_testbed::fuzz::{cases, mutate, run_seeds};

const REPLAY: &str = "cargo test -p holdoff-ledger --test it fuzz";

const CORPUS: &[&str] = &[
    "balance(alice, ?a), ?a >= 10 => -balance(alice, ?a), +balance(alice, ?a - 10)",
    "all: job(?id, waiting, ?n), not held(?id, _) => -job(?id, waiting, ?n), +job(?id, \"r\\u{e4}n\\n\", 0)",
    "only: p(?x, ?x * (2 + -3) % 7), ?x != \"text\", a < b\n=> +q()",
    "=> +p(-9223372036854775808, \"\", x)",
];

const WORDS: &[&str] = &[
    "=>",
    "!=",
    "<=",
    "(",
    ")",
    ",",
    ":",
    "+",
    "-",
    "*",
    "/",
    "%",
    "=",
    "_",
    "?",
    "?a",
    "not ",
    "all:",
    "only:",
    "\"",
    "\\",
    "\\u{",
    "}",
    "p(",
    "p()",
    "((((((((",
    "9223372036854775808",
    "-1",
    "0",
    "ä",
    "\u{0}",
    "\u{2028}",
    "\n",
];

#[test]
fn mutated_goals_are_parsed_or_rejected() {
    let facts = Facts::default();
    let read = Cell::new(0_u64);
    let cases = cases(1_000_000);
    run_seeds(REPLAY, cases, |rng| {
        let goal = CORPUS[rng.usize(0..CORPUS.len())];
        let text = mutate(rng, goal, WORDS);
        match text.parse::<Goal>() {
            Ok(goal) => {
                read.set(read.get() + 1);
                assert_eq!(goal.to_string().parse::<Goal>().unwrap(), goal);
                drop(facts.execute(&Overlay::default(), &goal));
            }
            Err(problems) if rng.u8(..) < 16 => assert!(problems.to_string().contains("expected")),
            Err(_) => {}
        }
    });
    // Both outcomes must be common, or the mutations test too little.
    let percent = read.get() * 100 / cases;
    assert!((2..98).contains(&percent) || cases < 1000, "{percent} % of the inputs were goals");
}

#[test]
fn mutated_snapshots_are_restored_exactly_or_rejected() {
    let mut facts = Facts::default();
    let goal = "=> +p(1, two, \"three\"), +p(1), +q(-1, \"\")".parse().unwrap();
    let (diff, _) = facts.execute(&Overlay::default(), &goal).unwrap();
    facts.apply(&diff).unwrap();
    let chunk = facts.chunks(1 << 20).next().unwrap();
    run_seeds(REPLAY, cases(1_000_000), |rng| {
        let mut bytes = chunk.clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(0..bytes.len());
            bytes[at] = rng.u8(..);
        }
        if rng.bool() {
            bytes.truncate(rng.usize(0..=bytes.len()));
        }
        if let Ok(state) = Facts::restore([&bytes]) {
            assert!(state.chunks(1 << 20).eq([bytes]));
        }
    });
}

type TestMessage = MessageOf<KeyValue>;
type Node = Ledger<KeyValue, TestNotary>;

/// Signs with a hash that any node could compute; no node in this test forges one.
struct TestNotary(NodeId);

fn sign(by: NodeId, index: Slot, hash: Hash) -> HeadSignature {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&by.0.to_le_bytes()).update(&index.0.to_le_bytes()).update(hash.to_string().as_bytes());
    HeadSignature(hasher.finalize().as_bytes().to_vec())
}

impl Notary for TestNotary {
    fn sign(&self, index: Slot, hash: Hash) -> HeadSignature {
        sign(self.0, index, hash)
    }

    fn is_signed(&self, by: NodeId, index: Slot, hash: Hash, signature: &HeadSignature) -> bool {
        sign(by, index, hash) == *signature
    }
}

/// Three voters, and a fourth node that is a learner.
struct Cluster {
    nodes: Vec<(Driver<Node>, Store<KeyValue>)>,
    chunks: Vec<Chunks>,
    /// All messages that were ever sent.
    sent: Vec<TestMessage>,
    /// The head of the history, at each index at which a node stopped.
    heads: BTreeMap<Slot, Head>,
    queue: VecDeque<(NodeId, NodeId, TestMessage)>,
    now_us: u64,
    is_learner_cut: bool,
    /// True if signature shares are lost in transit.
    is_unsigned: bool,
}

/// The chunks of snapshots on the disk of a node.
#[derive(Clone, Default)]
struct Chunks(BTreeMap<(Hash, u64), Bytes>);

impl Chunks {
    fn load(&self, snapshot: Hash, chunks: u64) -> Result<Box<SnapshotContent<KeyValue>>, u64> {
        let chunks: Result<Vec<_>, _> =
            (0..chunks).map(|number| self.0.get(&(snapshot, number)).ok_or(number)).collect();
        let mut content = SnapshotContent::default();
        drop(chunks?.into_iter().try_for_each(|chunk| content.add_chunk(chunk)));
        Ok(Box::new(content))
    }

    /// Returns the content of a disk with this log.
    fn recover(&self, store: Store<KeyValue>) -> Recovered<KeyValue> {
        let id = snapshot_id(store.snapshot()).unwrap();
        let content = *self.load(id, store.snapshot().state.chunks()).unwrap();
        Recovered { content, ..store.into() }
    }

    /// Performs the outputs that concern chunks. Returns the input that a task leads to, or the other outputs.
    fn perform(
        &mut self,
        node: &Node,
        output: OutputOf<KeyValue>,
    ) -> Result<Input<KeyValue>, Box<OutputOf<KeyValue>>> {
        match output {
            Output::SaveSnapshot(snapshot) => {
                let content = node.unsaved_snapshot(snapshot);
                let chunks: Vec<_> = content.iter().flat_map(|content| content.chunks(CHUNK_BYTES)).collect();
                let count = chunks.len() as u64;
                self.0.extend((0..).zip(chunks).map(|(number, chunk)| ((snapshot, number), chunk.into())));
                Ok(Input::SnapshotSaved { snapshot, chunks: count })
            }
            Output::StoreChunk { snapshot, number, bytes } => {
                self.0.insert((snapshot, number), bytes);
                Ok(Input::ChunkStored { snapshot, number })
            }
            Output::LoadSnapshot(snapshot, chunks) => {
                Ok(Input::SnapshotLoaded { snapshot, loaded: self.load(snapshot, chunks) })
            }
            Output::ReadChunk { to, snapshot, number } => {
                let bytes = self.0.get(&(snapshot, number)).cloned();
                Err(Box::new(Output::Send(to, Message::Chunk { snapshot, number, bytes })))
            }
            other => Err(Box::new(other)),
        }
    }
}

/// The size of the chunks of snapshots: small, so that a snapshot has several.
const CHUNK_BYTES: usize = 64;

fn node(me: u128, recovered: Recovered<KeyValue>, now_us: u64) -> Node {
    let options = Options { kept: 8, batch: 4, chunk_bytes: CHUNK_BYTES, ..Options::default() };
    let roll = u32::MAX / 5 * u32::try_from(me).unwrap();
    Ledger::new(NodeId(me), options, TestNotary(NodeId(me)), recovered, now_us, roll).unwrap()
}

fn driver(node: Node) -> Driver<Node> {
    Driver::new(node, WriteOptions::default())
}

impl Cluster {
    fn new() -> Self {
        let store = Node::empty(Configuration::new([1, 2, 3].map(NodeId)).unwrap());
        Self {
            nodes: (1..=4).map(|me| (driver(node(me, store.clone().into(), 0)), store.clone())).collect(),
            chunks: vec![Chunks::default(); 4],
            sent: Vec::new(),
            heads: BTreeMap::new(),
            queue: VecDeque::new(),
            now_us: 0,
            is_learner_cut: false,
            is_unsigned: false,
        }
    }

    fn step(&mut self, me: usize, input: Input<KeyValue>) {
        let (driver, store) = &mut self.nodes[me - 1];
        let roll = &mut || u32::MAX / 5 * u32::try_from(me).unwrap();
        driver.step(self.now_us, roll, input);
        let stored = driver.write_through(self.now_us, roll, |records| {
            for record in records {
                store.apply(record);
            }
            Ok::<_, Infallible>(())
        });
        let Ok(()) = stored;
        let head = driver.core().state().head();
        assert_eq!(*self.heads.entry(head.index).or_insert(head.clone()), head);
        for output in driver.take_outputs() {
            match self.chunks[me - 1].perform(self.nodes[me - 1].0.core(), output) {
                Ok(input) => self.step(me, input),
                Err(output) => self.send(me, *output),
            }
        }
    }

    fn send(&mut self, me: usize, output: OutputOf<KeyValue>) {
        if let Output::Send(to, message) = output {
            self.sent.push(message.clone());
            let is_cut = self.is_learner_cut && (me == 4 || to.0 == 4);
            let is_lost = self.is_unsigned && matches!(message, Message::SignatureShare(_));
            if to.0 <= 4 && !is_cut && !is_lost {
                self.queue.push_back((NodeId(me as u128), to, message));
            }
        }
    }

    fn deliver(&mut self) {
        while let Some((from, to, message)) = self.queue.pop_front() {
            self.step(usize::try_from(to.0).unwrap(), Input::Message(from, message));
        }
    }

    fn pass(&mut self, times: u32) {
        for _ in 0..times {
            self.now_us += 50_000;
            for me in 1..=4 {
                self.step(me, Input::Tick);
                self.deliver();
            }
        }
    }

    fn leader(&self) -> usize {
        self.nodes.iter().position(|(driver, _)| driver.core().is_ready()).unwrap() + 1
    }

    /// Submits transactions and reads at every node.
    fn work(&mut self, first: u128, count: u128) {
        for tx_id in first..first + count {
            let goal = vec![Command::Increment(Key::new("a").unwrap(), 1)];
            let tx = TxKey { id: TxId(tx_id), birth: Slot(0) };
            self.step(
                1 + usize::try_from(tx_id % 3).unwrap(),
                Input::Submit { submission: SubmissionId(0), tx, goal, deadline_us: u64::MAX },
            );
            self.deliver();
            let (read, goal) = (ReadId(0), vec![Command::Get(Key::new("a").unwrap())]);
            self.step(self.leader(), Input::Read { read, goal, consistency: Consistency::Quorum });
            self.deliver();
            self.pass(1);
        }
    }
}

/// A node that neither votes nor leads, and that no message names.
const UNKNOWN_NODE: NodeId = NodeId(u128::MAX / 3);

/// Returns some messages of each kind, as bytes.
fn corpus(sent: &[TestMessage], is_wanted: impl Fn(&TestMessage) -> bool) -> Vec<Vec<u8>> {
    let mut kinds: Vec<(_, Vec<&TestMessage>)> = Vec::new();
    for message in sent.iter().filter(|message| is_wanted(message)) {
        let kind = match message {
            Message::Log(inner) => (discriminant(message), Some(discriminant(inner))),
            _ => (discriminant(message), None),
        };
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, messages)) => messages.push(message),
            None => kinds.push((kind, vec![message])),
        }
    }
    let some =
        kinds.iter().flat_map(|(_, messages)| messages.iter().take(4).chain(messages.iter().rev().take(4)));
    some.map(|message| holdoff_net::encode(message).unwrap().to_vec()).collect()
}

fn garble(rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    if rng.u8(0..16) == 0 {
        return (0..rng.usize(0..300)).map(|_| rng.u8(..)).collect();
    }
    let mut bytes = corpus[rng.usize(..corpus.len())].clone();
    // From time to time the message is not mutated.
    let times = if rng.u8(0..64) == 0 { 0 } else { rng.usize(1..4) };
    for _ in 0..times {
        let at = rng.usize(..=bytes.len());
        match rng.u8(0..8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.u8(..)),
            2 => bytes.splice(at..at, [0xff; 9]).for_each(drop),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << rng.u8(0..8)),
        }
    }
    bytes
}

/// Returns nodes that have exchanged messages of all kinds. The learner was disconnected for a long time.
fn cluster_with_history() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.pass(60);
    cluster.work(1, 10);
    let leader = cluster.leader();
    let voters = holdoff_paxos::Configuration::new([1, 2, 3, 4].map(NodeId)).unwrap();
    let without = holdoff_paxos::Configuration::new([1, 2, 3].map(NodeId)).unwrap();
    cluster.step(leader, Input::ChangeConfiguration(voters));
    cluster.pass(60);
    cluster.is_learner_cut = true;
    cluster.work(50, 50);
    cluster.is_learner_cut = false;
    cluster.pass(60);
    cluster.is_learner_cut = true;
    let leader = cluster.leader();
    cluster.step(leader, Input::ChangeConfiguration(without));
    cluster.pass(60);
    cluster.work(100, 100);
    cluster
}

/// Returns the parts of a node that must not change.
fn standing(node: &Node) -> (Hash, [Slot; 3], [log::Term; 2]) {
    let (state, store) = (node.state(), node.store());
    let slots = [state.index(), store.decided(), store.last()];
    (state.hash(), slots, [store.promised(), store.accepted()])
}

fn assert_most_are_read(read: u64, cases: u64) {
    println!("{read} of {cases} could be decoded");
    assert!(cases < 1000 || read * 4 > cases, "most inputs must be decodable");
}

/// Votes and other messages of voters and leaders: mutated, or from a node that is neither.
#[test]
fn mutated_votes_and_certificates_do_not_change_a_node() {
    let mut cluster = cluster_with_history();
    let leader = cluster.leader();
    let follower = leader % 3 + 1;
    cluster.is_learner_cut = false;
    cluster.pass(100);
    // The leader waits for the signature shares that have not arrived.
    cluster.is_unsigned = true;
    cluster.work(300, 3);
    let log = corpus(&cluster.sent, |message| matches!(message, Message::Log(_)));
    let rest = corpus(&cluster.sent, |message| {
        matches!(
            message,
            Message::SignatureShare(_)
                | Message::Certificate(_)
                | Message::ConfirmTerm(..)
                | Message::TermConfirmed(..)
        )
    });
    assert!(
        log.len() > 32 && rest.len() == 32,
        "messages of all kinds were sent: {} {}",
        log.len(),
        rest.len()
    );
    let before = [leader, follower].map(|number| standing(cluster.nodes[number - 1].0.core()));
    let now_us = cluster.now_us;
    let (read, cluster) = (Cell::new(0_u64), RefCell::new(cluster));
    let cases = cases(1_000_000);
    run_seeds(REPLAY, cases, |rng| {
        let is_log = rng.bool();
        let Ok(message) = holdoff_net::decode::<TestMessage>(&garble(rng, if is_log { &log } else { &rest }))
        else {
            return;
        };
        // A mutated message may become a `Submit`, which this test does not cover.
        if matches!(message, Message::Submit { .. }) {
            return;
        }
        read.set(read.get() + 1);
        let to_leader = !matches!(message, Message::Log(_)) && rng.bool();
        let (index, number) = if to_leader { (0, leader) } else { (1, follower) };
        let voter = NodeId(rng.u128(1..=3));
        let from = if matches!(message, Message::Log(_)) || rng.bool() { UNKNOWN_NODE } else { voter };
        let mut cluster = cluster.borrow_mut();
        let node = &mut cluster.nodes[number - 1].0;
        node.step(now_us, &mut || rng.u32(..), Input::Message(from, message));
        // The records and outputs are of no interest here.
        node.write_through(now_us, &mut || 0, |_| Ok::<_, Infallible>(())).unwrap();
        drop(node.take_outputs());
        assert_eq!(standing(node.core()), before[index]);
    });
    assert_most_are_read(read.get(), cases);
    let counts = cluster.borrow().nodes.iter().map(|(node, _)| *node.core().counts()).collect::<Vec<_>>();
    let forged = |of: fn(&holdoff_ledger::LedgerCounters) -> u64| counts.iter().map(of).sum::<u64>();
    println!(
        "{} forged signatures, {} forged certificates",
        forged(|it| it.forged_signatures),
        forged(|it| it.forged_certificates)
    );
    assert!(cases < 1000 || forged(|it| it.forged_signatures.min(it.forged_certificates)) > 0);
}

/// Histories and states for a node that misses them: it reaches the decided state, or does not change.
#[test]
fn mutated_histories_lead_only_to_decided_states() {
    let mut cluster = cluster_with_history();
    let (store, disk) = (cluster.nodes[3].1.clone(), cluster.chunks[3].clone());
    let behind = cluster.nodes[3].0.core().state().index();
    let first = cluster.sent.len();
    cluster.is_learner_cut = false;
    // A node that was disconnected for a long time asks rarely.
    cluster.pass(600);
    assert_eq!(cluster.nodes[3].0.core().state().index(), cluster.nodes[0].0.core().state().index());
    let (heads, now_us) = (cluster.heads.clone(), cluster.now_us);
    let messages = corpus(&cluster.sent[first..], |message| {
        matches!(
            message,
            Message::Fetch { .. }
                | Message::History { .. }
                | Message::State(_)
                | Message::Chunk { .. }
                | Message::Submit { .. }
        )
    });
    let disks = cluster.chunks.clone();
    let restarted = || node(4, disk.recover(store.clone()), now_us);
    let learner = RefCell::new((restarted(), disk.clone()));
    let (read, reached, refused) = (Cell::new(0_u64), Cell::new(0_u64), Cell::new(0_u64));
    let cases = cases(1_000_000);
    run_seeds(REPLAY, cases, |rng| {
        let Ok(message) = holdoff_net::decode::<TestMessage>(&garble(rng, &messages)) else { return };
        // A node trusts the log messages of its leader, which this test does not cover.
        if matches!(message, Message::Log(_)) {
            return;
        }
        read.set(read.get() + 1);
        let (learner, chunks) = &mut *learner.borrow_mut();
        // The chunks come from the node that has offered the snapshot.
        let voter =
            if matches!(message, Message::Chunk { .. } | Message::State(_)) { 1 } else { rng.u128(1..=3) };
        let mut inputs = vec![Input::Message(NodeId(voter), message)];
        while let Some(input) = inputs.pop() {
            let step = learner.step(now_us, rng.u32(..), input);
            let Ok((outputs, _)) = step.store(|_| Ok::<_, Infallible>(()));
            for output in outputs {
                match chunks.perform(learner, output).map_err(|output| *output) {
                    Ok(input) => inputs.push(input),
                    Err(Output::Send(_, Message::FetchChunk { snapshot, number })) => {
                        let mut bytes = disks.iter().find_map(|it| it.0.get(&(snapshot, number)).cloned());
                        if rng.u8(..) < 8 {
                            bytes = bytes.map(|bytes| garble(rng, &[bytes.to_vec()]).into());
                        }
                        let chunk = Message::Chunk { snapshot, number, bytes };
                        inputs.push(Input::Message(NodeId(1), chunk));
                    }
                    Err(_) => {}
                }
            }
        }
        assert!(learner.divergence().is_none());
        if learner.state().index() > behind {
            let head = learner.state().head();
            assert_eq!(
                heads.get(&head.index),
                Some(&head),
                "the learner reached a head that was not decided"
            );
            reached.set(reached.get() + 1);
            refused.set(refused.get() + learner.counts().refused);
            (*learner, *chunks) = (restarted(), disk.clone());
        }
    });
    println!(
        "{} times the learner reached a decided state, {} messages were refused",
        reached.get(),
        refused.get()
    );
    assert_most_are_read(read.get(), cases);
    assert!(cases < 1000 || (reached.get() > 0 && refused.get() > 0));
}
