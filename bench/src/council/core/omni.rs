//! `OmniPaxos` with its storage in memory: three nodes, one of them the leader.

use omnipaxos::messages::Message;
use omnipaxos::storage::{Entry, NoSnapshot};
use omnipaxos::{ClusterConfig, OmniPaxos, ServerConfig};
use omnipaxos_storage::memory_storage::MemoryStorage;

use super::Three;

/// The largest number of ticks until a leader is elected.
const TICKS: u32 = 1000;

#[derive(Clone, Debug)]
pub(super) struct Number(#[expect(dead_code, reason = "it is carried, and nobody reads it")] u64);

impl Entry for Number {
    type Snapshot = NoSnapshot;
}

pub(super) struct Omni {
    nodes: Vec<OmniPaxos<Number, MemoryStorage<Number>>>,
    leader: usize,
    post: Vec<Message<Number>>,
    delivered: Vec<Message<Number>>,
}

impl Omni {
    pub(super) fn new() -> Option<Self> {
        let cluster = ClusterConfig { configuration_id: 1, nodes: vec![1, 2, 3], ..ClusterConfig::default() };
        let node = |pid| {
            let server = ServerConfig { pid, ..ServerConfig::default() };
            cluster.clone().build_for_server(server, MemoryStorage::default()).ok()
        };
        let nodes = [1, 2, 3].map(node).into_iter().collect::<Option<Vec<_>>>()?;
        let mut omni = Self { nodes, leader: 0, post: Vec::new(), delivered: Vec::new() };
        for _ in 0..TICKS {
            omni.nodes.iter_mut().for_each(OmniPaxos::tick);
            omni.deliver();
            if let Some((pid, true)) = omni.nodes.first()?.get_current_leader() {
                omni.leader = place(pid);
                return omni.decide(0).then_some(omni);
            }
        }
        None
    }

    fn deliver(&mut self) {
        loop {
            for node in &mut self.nodes {
                node.take_outgoing_messages(&mut self.post);
            }
            if self.post.is_empty() {
                return;
            }
            std::mem::swap(&mut self.post, &mut self.delivered);
            for message in self.delivered.drain(..) {
                if let Some(node) = self.nodes.get_mut(place(message.get_receiver())) {
                    node.handle_incoming(message);
                }
            }
        }
    }

    fn decided(&self) -> usize {
        self.nodes.get(self.leader).map_or(0, OmniPaxos::get_decided_idx)
    }
}

impl Three for Omni {
    fn decide(&mut self, value: u64) -> bool {
        let before = self.decided();
        let appended = self.nodes.get_mut(self.leader).map(|leader| leader.append(Number(value)));
        self.deliver();
        appended.is_some_and(|appended| appended.is_ok()) && self.decided() == before + 1
    }

    fn forget(&mut self) {
        let through = self.decided();
        if let Some(leader) = self.nodes.get_mut(self.leader) {
            let trimmed = leader.trim(Some(through));
            assert!(trimmed.is_ok(), "OmniPaxos does not trim its log: {trimmed:?}");
        }
        self.deliver();
    }
}

/// Returns the index of the node with this id.
fn place(pid: u64) -> usize {
    usize::try_from(pid).map_or(usize::MAX, |pid| pid - 1)
}
