//! The log: three nodes, one of them the leader.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::hint::black_box;

use holdoff_paxos::log::{Input, Message, Node, Options, Output, Store};
use holdoff_paxos::{Configuration, NodeId, Slot};

use super::Three;

type Letter = (NodeId, NodeId, Message<u64, ()>);

pub(super) struct Log {
    nodes: [Node<u64, ()>; 3],
    post: VecDeque<Letter>,
    now_us: u64,
}

impl Log {
    /// Creates three nodes, of which the first is the leader and accepts proposals.
    pub(super) fn new() -> Option<Self> {
        let configuration = Configuration::new([1, 2, 3].map(NodeId)).ok()?;
        let node = |number| {
            let store = Store::new(configuration.clone(), ());
            Node::new(NodeId(number), Options::default(), store, 0, 0)
        };
        let mut log = Self { nodes: [1, 2, 3].map(node), post: VecDeque::new(), now_us: 0 };
        log.now_us = 3_000_000;
        log.step(NodeId(1), Input::Tick);
        log.deliver();
        log.nodes.first()?.is_ready().then_some(log)
    }

    fn step(&mut self, at: NodeId, input: Input<u64, ()>) {
        let place = usize::try_from(at.0 - 1).unwrap_or(usize::MAX);
        let Some(node) = self.nodes.get_mut(place) else { return };
        // Memory needs no sync, and the node keeps its records in memory.
        let Ok(outputs) = node.step(self.now_us, 0, input).release(|records| {
            black_box(records);
            Ok::<_, Infallible>(())
        });
        for output in outputs {
            if let Output::Send(to, message) = output {
                self.post.push_back((at, to, message));
            }
        }
    }

    fn deliver(&mut self) {
        while let Some((from, to, message)) = self.post.pop_front() {
            self.step(to, Input::Message(from, message));
        }
    }

    fn decided(&self) -> Slot {
        self.nodes.first().map_or(Slot(0), |leader| leader.store().decided())
    }
}

impl Three for Log {
    fn decide(&mut self, value: u64) -> bool {
        let before = self.decided();
        self.step(NodeId(1), Input::Propose(value));
        self.deliver();
        self.decided() == before.next()
    }

    fn forget(&mut self) {
        // A heartbeat, from which the followers also learn of the last decision.
        self.now_us += 200_000;
        self.step(NodeId(1), Input::Tick);
        self.deliver();
        let through = self.decided();
        for number in [1, 2, 3] {
            self.step(NodeId(number), Input::Compact { through, state: () });
        }
    }
}
