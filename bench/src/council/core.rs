//! The core in memory: three nodes, one thread, one value at a time.
//!
//! A decision of the slot machine is a prepare and an accept, each sent to all three acceptors. A decision of
//! the log is one value that the leader appends, and the delivery of all messages until no node has any left;
//! the same holds for `OmniPaxos`. Our followers learn of a decision with the next entry, those of
//! `OmniPaxos` at once: a decision counts when the leader knows it. After a round all nodes discard the
//! decided entries, so that logs are no longer than a round.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::hint::black_box;

use holdoff_paxos::log::{Input, Message, Node, Options, Output, Store};
use holdoff_paxos::slot::{AcceptOutcome, Acceptor, PrepareOutcome, Preparing};
use holdoff_paxos::{Configuration, Deferred, NodeId, Slot};
use omnipaxos::storage::{Entry, NoSnapshot};
use omnipaxos::{ClusterConfig, OmniPaxos, ServerConfig};
use omnipaxos_storage::memory_storage::MemoryStorage;

use crate::measure::{CALLS, Contestant, contest};
use crate::row::Row;

/// The required number of decisions a second.
const BAR: f64 = 1_000_000.0;

/// Three nodes that decide values one after the other.
trait Cluster {
    /// Decides one value; returns whether it was decided.
    fn decide(&mut self, value: u64) -> bool;

    /// Discards the decided values.
    fn compact(&mut self);
}

pub(super) fn rows() -> Vec<Row> {
    let (Some(slot), Some(log), Some(omni)) = (SlotCluster::new(), LogCluster::new(), OmniCluster::new())
    else {
        eprintln!("council: core: not measured, there is no leader");
        return vec![Row::beside("core", "/s", f64::NAN, ("", f64::NAN)).bar("measured", false)];
    };
    let figures =
        contest(vec![contestant("slot", slot), contestant("log", log), contestant("OmniPaxos", omni)]);
    let [slot, log, omni] = ["slot", "log", "OmniPaxos"].map(|wanted| {
        let found = figures.iter().find(|(name, _)| *name == wanted);
        found.map_or(f64::NAN, |(_, nanoseconds)| 1e9 / nanoseconds)
    });
    let row = |name, ours| Row::beside(name, "/s", ours, ("OmniPaxos, unbatched", omni));
    vec![
        row("core: log, one by one", log).bar("≥ 1 M/s", log >= BAR),
        row("core: slot, prepare and accept", slot).bar("≥ 1 M/s", slot >= BAR),
    ]
}

fn contestant(name: &'static str, mut cluster: impl Cluster + 'static) -> Contestant<'static> {
    let mut value = 0;
    let round = move || {
        for _ in 0..CALLS {
            value += 1;
            assert!(cluster.decide(value), "{name} did not decide a value");
        }
        cluster.compact();
    };
    (name, Box::new(round))
}

/// The slot machine: a proposer and three acceptors, both phases for every slot.
struct SlotCluster {
    configuration: Configuration,
    next: Slot,
}

impl SlotCluster {
    fn new() -> Option<Self> {
        let configuration = Configuration::new([1, 2, 3].map(NodeId)).ok()?;
        Some(Self { configuration, next: Slot(1) })
    }
}

impl Cluster for SlotCluster {
    fn decide(&mut self, value: u64) -> bool {
        let slot = self.next;
        self.next = slot.next();
        let mut acceptors = [1, 2, 3].map(|node| (NodeId(node), Acceptor::default()));
        let preparing = release(Preparing::begin(slot, 1, NodeId(7), self.configuration.clone()));
        let ballot = preparing.ballot();
        let (mut preparing, mut free) = (Some(preparing), None);
        for (node, acceptor) in &mut acceptors {
            // All acceptors receive the request; replies after a majority are ignored.
            let reply = release(acceptor.prepare(ballot));
            match preparing.take().map(|preparing| preparing.answer(*node, reply)) {
                Some(PrepareOutcome::Waiting(still)) => preparing = Some(still),
                Some(PrepareOutcome::Free(now)) => free = Some(now),
                _ => {}
            }
        }
        let Some(free) = free else { return false };
        let (mut accepting, mut chosen) = (Some(free.propose(value)), None);
        for (node, acceptor) in &mut acceptors {
            let reply = release(acceptor.accept(ballot, value));
            match accepting.take().map(|accepting| accepting.answer(*node, reply)) {
                Some(AcceptOutcome::Waiting(still)) => accepting = Some(still),
                Some(AcceptOutcome::Chosen(vote)) => chosen = Some(vote),
                _ => {}
            }
        }
        black_box(&acceptors);
        chosen.is_some_and(|vote| vote.value == value)
    }

    fn compact(&mut self) {}
}

/// Releases the message at once, because memory needs no sync.
fn release<R, M>(deferred: Deferred<R, M>) -> M {
    let Ok(message) = deferred.release(|record| {
        black_box(record);
        Ok::<_, Infallible>(())
    });
    message
}

type Envelope = (NodeId, NodeId, Message<u64, ()>);

/// The log: three nodes, one of them the leader.
struct LogCluster {
    nodes: [Node<u64, ()>; 3],
    outbox: VecDeque<Envelope>,
    now_us: u64,
}

impl LogCluster {
    /// Creates three nodes, of which the first is the leader and accepts proposals.
    fn new() -> Option<Self> {
        let configuration = Configuration::new([1, 2, 3].map(NodeId)).ok()?;
        let node = |number| {
            let store = Store::new(configuration.clone(), ());
            Node::new(NodeId(number), Options::default(), store, 0, 0)
        };
        let mut log = Self { nodes: [1, 2, 3].map(node), outbox: VecDeque::new(), now_us: 0 };
        log.now_us = 3_000_000;
        log.step(NodeId(1), Input::Tick);
        log.deliver();
        log.nodes.first()?.is_ready().then_some(log)
    }

    fn step(&mut self, at: NodeId, input: Input<u64, ()>) {
        let index = usize::try_from(at.0 - 1).unwrap_or(usize::MAX);
        let Some(node) = self.nodes.get_mut(index) else { return };
        // Memory needs no sync, and the node keeps its records in memory.
        let Ok((outputs, _)) = node.step(self.now_us, 0, input).store(|records| {
            black_box(records);
            Ok::<_, Infallible>(())
        });
        for output in outputs {
            if let Output::Send(to, message) = output {
                self.outbox.push_back((at, to, message));
            }
        }
    }

    fn deliver(&mut self) {
        while let Some((from, to, message)) = self.outbox.pop_front() {
            self.step(to, Input::Message(from, message));
        }
    }

    fn decided(&self) -> Slot {
        self.nodes.first().map_or(Slot(0), |leader| leader.store().decided())
    }
}

impl Cluster for LogCluster {
    fn decide(&mut self, value: u64) -> bool {
        let before = self.decided();
        self.step(NodeId(1), Input::Propose(value));
        self.deliver();
        self.decided() == before.next()
    }

    fn compact(&mut self) {
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

/// The largest number of ticks until a leader is elected.
const TICKS: u32 = 1000;

#[derive(Clone, Debug)]
struct Number(#[expect(dead_code, reason = "the benchmark replicates the value and never reads it")] u64);

impl Entry for Number {
    type Snapshot = NoSnapshot;
}

/// `OmniPaxos` with its storage in memory: three nodes, one of them the leader.
struct OmniCluster {
    nodes: Vec<OmniPaxos<Number, MemoryStorage<Number>>>,
    leader: usize,
    outbox: Vec<omnipaxos::messages::Message<Number>>,
    delivered: Vec<omnipaxos::messages::Message<Number>>,
}

impl OmniCluster {
    fn new() -> Option<Self> {
        let cluster = ClusterConfig { configuration_id: 1, nodes: vec![1, 2, 3], ..ClusterConfig::default() };
        let node = |pid| {
            let server = ServerConfig { pid, ..ServerConfig::default() };
            cluster.clone().build_for_server(server, MemoryStorage::default()).ok()
        };
        let nodes = [1, 2, 3].map(node).into_iter().collect::<Option<Vec<_>>>()?;
        let mut omni = Self { nodes, leader: 0, outbox: Vec::new(), delivered: Vec::new() };
        for _ in 0..TICKS {
            omni.nodes.iter_mut().for_each(OmniPaxos::tick);
            omni.deliver();
            if let Some((pid, true)) = omni.nodes.first()?.get_current_leader() {
                omni.leader = index(pid);
                return omni.decide(0).then_some(omni);
            }
        }
        None
    }

    fn deliver(&mut self) {
        loop {
            for node in &mut self.nodes {
                node.take_outgoing_messages(&mut self.outbox);
            }
            if self.outbox.is_empty() {
                return;
            }
            std::mem::swap(&mut self.outbox, &mut self.delivered);
            for message in self.delivered.drain(..) {
                if let Some(node) = self.nodes.get_mut(index(message.get_receiver())) {
                    node.handle_incoming(message);
                }
            }
        }
    }

    fn decided(&self) -> usize {
        self.nodes.get(self.leader).map_or(0, OmniPaxos::get_decided_idx)
    }
}

impl Cluster for OmniCluster {
    fn decide(&mut self, value: u64) -> bool {
        let before = self.decided();
        let appended = self.nodes.get_mut(self.leader).map(|leader| leader.append(Number(value)));
        self.deliver();
        appended.is_some_and(|appended| appended.is_ok()) && self.decided() == before + 1
    }

    fn compact(&mut self) {
        let through = self.decided();
        if let Some(leader) = self.nodes.get_mut(self.leader) {
            let trimmed = leader.trim(Some(through));
            assert!(trimmed.is_ok(), "OmniPaxos does not trim its log: {trimmed:?}");
        }
        self.deliver();
    }
}

/// Returns the index of the node with this id.
fn index(pid: u64) -> usize {
    usize::try_from(pid).map_or(usize::MAX, |pid| pid - 1)
}
