//! A few nodes that exchange messages of all kinds.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;

use holdoff_ledger::machine::{Command, Key, KeyValue};
use holdoff_ledger::{
    Hash, Head, How, Input, Ledger, Letter, LetterOf, Notary, Options, Output, ReadId, Signature, Store, TxId,
};
use holdoff_paxos::{Configuration, NodeId, Slot};

pub(crate) type Post = LetterOf<KeyValue>;
pub(crate) type Node = Ledger<KeyValue, Clerk>;

/// Signs with a hash that any node could compute; no node in this test forges one.
pub(crate) struct Clerk(NodeId);

fn sign(by: NodeId, index: Slot, hash: Hash) -> Signature {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&by.0.to_le_bytes()).update(&index.0.to_le_bytes()).update(hash.to_string().as_bytes());
    Signature(hasher.finalize().as_bytes().to_vec())
}

impl Notary for Clerk {
    fn sign(&self, index: Slot, hash: Hash) -> Signature {
        sign(self.0, index, hash)
    }

    fn is_signed(&self, by: NodeId, index: Slot, hash: Hash, signature: &Signature) -> bool {
        sign(by, index, hash) == *signature
    }
}

/// Three voters, and a fourth node that is a learner.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<(Node, Store<KeyValue>)>,
    /// All messages that were ever sent.
    pub(crate) said: Vec<Post>,
    /// The head of the history, at each index at which a node stopped.
    pub(crate) heads: BTreeMap<Slot, Head>,
    queue: VecDeque<(NodeId, NodeId, Post)>,
    pub(crate) now_us: u64,
    pub(crate) is_learner_cut: bool,
    /// True if signature shares are lost in transit.
    pub(crate) is_unsealed: bool,
}

pub(crate) fn node(me: u128, store: Store<KeyValue>, now_us: u64) -> Node {
    let options = Options { kept: 8, batch: 4, ..Options::default() };
    let roll = u32::MAX / 5 * u32::try_from(me).unwrap();
    Ledger::new(NodeId(me), options, Clerk(NodeId(me)), store, now_us, roll).unwrap()
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let store = Node::empty(Configuration::new([1, 2, 3].map(NodeId)).unwrap());
        Self {
            nodes: (1..=4).map(|me| (node(me, store.clone(), 0), store.clone())).collect(),
            said: Vec::new(),
            heads: BTreeMap::new(),
            queue: VecDeque::new(),
            now_us: 0,
            is_learner_cut: false,
            is_unsealed: false,
        }
    }

    pub(crate) fn step(&mut self, me: usize, input: Input<KeyValue>) {
        let (ledger, store) = &mut self.nodes[me - 1];
        let roll = u32::MAX / 5 * u32::try_from(me).unwrap();
        let stored = ledger.step(self.now_us, roll, input).release(|records| {
            for record in records {
                store.apply(record);
            }
            Ok::<_, Infallible>(())
        });
        let head = ledger.state().head();
        assert_eq!(*self.heads.entry(head.index).or_insert(head.clone()), head);
        for output in stored.unwrap() {
            if let Output::Send(to, letter) = output {
                self.said.push(letter.clone());
                let is_cut = self.is_learner_cut && (me == 4 || to.0 == 4);
                let is_lost = self.is_unsealed && matches!(letter, Letter::Seal(_));
                if to.0 <= 4 && !is_cut && !is_lost {
                    self.queue.push_back((NodeId(me as u128), to, letter));
                }
            }
        }
    }

    fn deliver(&mut self) {
        while let Some((from, to, letter)) = self.queue.pop_front() {
            self.step(usize::try_from(to.0).unwrap(), Input::Message(from, letter));
        }
    }

    pub(crate) fn pass(&mut self, times: u32) {
        for _ in 0..times {
            self.now_us += 50_000;
            for me in 1..=4 {
                self.step(me, Input::Tick);
                self.deliver();
            }
        }
    }

    pub(crate) fn leader(&self) -> usize {
        self.nodes.iter().position(|(ledger, _)| ledger.is_ready()).unwrap() + 1
    }

    /// Submits transactions and reads at every node.
    pub(crate) fn work(&mut self, first: u128, count: u128) {
        for tx_id in first..first + count {
            let goal = vec![Command::Increment(Key::new("a").unwrap(), 1)];
            self.step(1 + usize::try_from(tx_id % 3).unwrap(), Input::Submit { tx_id: TxId(tx_id), goal });
            self.deliver();
            let (read, goal) = (ReadId(0), vec![Command::Get(Key::new("a").unwrap())]);
            self.step(self.leader(), Input::Read { read, goal, how: How::Quorum });
            self.deliver();
            self.pass(1);
        }
    }
}
