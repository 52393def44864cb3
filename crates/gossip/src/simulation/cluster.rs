//! A simulated cluster of gossip nodes, and a model of the log that elects among them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use holdoff_sim::kernel::{Incident, LinkModel, NodeId, World};

use super::node::{Setup, SimulatedNode};
use super::node::{key, number};
use crate::{LogRole, TransferError};

type Faults = BTreeMap<&'static str, u64>;

thread_local! {
    static FAULTS: RefCell<Faults> = const { RefCell::new(BTreeMap::new()) };
}

/// Returns the faults that occurred in all clusters that were dropped.
pub(super) fn faults() -> Faults {
    FAULTS.with_borrow(Clone::clone)
}

pub(super) fn forget_faults() {
    FAULTS.take();
}

impl Drop for Cluster {
    fn drop(&mut self) {
        FAULTS.with_borrow_mut(|faults| {
            for (fault, times) in self.world.faults().named() {
                *faults.entry(fault).or_default() += times;
            }
        });
    }
}

/// The interval at which the log reads the hint and the test checks the state.
const STEP_US: u64 = 50_000;

pub(super) struct Cluster {
    pub(super) world: World<SimulatedNode>,
    setup: Setup,
    /// The log's leader: a node that a majority of voters wants and that reaches them.
    pub(super) log: Option<NodeId>,
}

impl Cluster {
    pub(super) fn new(seed: u64, nodes: u32, setup: Setup, loss: f64) -> Self {
        setup.begin();
        let link = LinkModel { loss, duplication: loss, delay: loss, ..LinkModel::default() };
        Self { world: World::new(seed, nodes, link), setup, log: None }
    }

    /// Creates a cluster in which up to ten nodes vote, and seven of more nodes.
    pub(super) fn sized(seed: u64, nodes: u32, loss: f64) -> Self {
        let voters = if nodes <= 10 { nodes } else { 7 };
        Self::new(seed, nodes, Setup { voters, liar: None }, loss)
    }

    pub(super) fn now_us(&self) -> u64 {
        self.world.now_us()
    }

    /// Returns the node's settled hint.
    pub(super) fn leader(&self, node: NodeId) -> Option<NodeId> {
        let machine = self.world.node(node)?;
        machine.node.leader(machine.looked_us).map(|leader| number(&leader))
    }

    pub(super) fn epoch(&self, node: NodeId) -> u64 {
        self.world.node(node).and_then(|machine| machine.node.hint()).map_or(0, |hint| hint.claim.epoch)
    }

    pub(super) fn up(&self) -> Vec<NodeId> {
        (0..self.world.nodes()).filter(|node| self.world.node(*node).is_some()).collect()
    }

    /// Returns the leader that all of these nodes name, if it is up.
    pub(super) fn agreed(&self, among: &[NodeId]) -> Option<NodeId> {
        let first = self.leader(*among.first()?)?;
        let is_agreed = among.iter().all(|node| self.leader(*node) == Some(first));
        (is_agreed && self.world.node(first).is_some()).then_some(first)
    }

    pub(super) fn step(&mut self) {
        self.world.run_until(self.now_us() + STEP_US);
        self.decide();
        for node in self.up() {
            let log_role = match self.log {
                Some(leader) if leader == node => LogRole::Leader,
                Some(leader) if !self.world.is_cut(leader, node) => LogRole::Follower(key(leader)),
                _ => LogRole::Unknown,
            };
            self.world.act(node, |machine, (), context| {
                machine.looked_us = context.now_us();
                machine.node.set_log_role(context.now_us(), log_role);
            });
        }
    }

    pub(super) fn run_for(&mut self, us: u64) {
        let end_us = self.now_us() + us;
        while self.now_us() < end_us {
            self.step();
        }
    }

    /// Runs until the condition holds, for `most_us` at most, and returns the time that it took.
    pub(super) fn until(&mut self, most_us: u64, is_so: impl Fn(&Self) -> bool) -> Option<u64> {
        let began_us = self.now_us();
        while !is_so(self) {
            if self.now_us() - began_us >= most_us {
                return None;
            }
            self.step();
        }
        Some(self.now_us() - began_us)
    }

    /// Runs until all nodes that are up agree, and returns the leader.
    pub(super) fn settle(&mut self, most_us: u64) -> Option<NodeId> {
        self.until(most_us, |cluster| cluster.agreed(&cluster.up()).is_some())?;
        self.agreed(&self.up())
    }

    /// Changes the set of voters. All nodes learn it at once.
    pub(super) fn set_electorate(&mut self, voters: u32) {
        self.setup.voters = voters;
        self.setup.begin();
        for node in self.up() {
            let electorate = self.setup.electorate();
            self.world
                .act(node, |machine, (), context| machine.node.set_electorate(context.now_us(), electorate));
        }
    }

    pub(super) fn transfer_leadership(&mut self, from: NodeId, to: NodeId) -> Result<(), TransferError> {
        let handed = self.world.act(from, |machine, (), context| {
            let roll = context.rng().between(0, u64::MAX);
            let sends = machine.node.transfer_leadership(context.now_us(), roll, key(to))?;
            machine.transmit(sends, context);
            Ok(())
        });
        handed.unwrap()
    }

    pub(super) fn crash(&mut self, node: NodeId) {
        self.world.inject(Incident::Crash(node));
    }

    /// Lets the log elect: the node that a majority wants, or else the current leader while it has a quorum. A liar
    /// cannot lead the log, because it does not answer as the protocol requires.
    fn decide(&mut self) {
        let majority = |supporters: usize| supporters > self.setup.voters as usize / 2;
        let with = |leader: NodeId, counts: &dyn Fn(NodeId) -> bool| {
            let reaches =
                |node: &NodeId| !self.world.is_cut(leader, *node) && !self.world.is_cut(*node, leader);
            let voters = self.up().into_iter().filter(|node| *node < self.setup.voters);
            majority(voters.filter(reaches).filter(|node| counts(*node)).count())
        };
        let is_up = |node: &NodeId| self.world.node(*node).is_some() && self.setup.liar != Some(*node);
        let kept = self.log.filter(is_up).filter(|leader| with(*leader, &|_| true));
        let wanted = (0..self.setup.voters)
            .filter(is_up)
            .find(|wanted| with(*wanted, &|node| self.leader(node) == Some(*wanted)));
        self.log = wanted.or(kept);
    }
}
