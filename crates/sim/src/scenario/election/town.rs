//! A cluster of nodes, its faults, and its observation from outside.

use super::citizen::{Citizen, Home, Reign, up};
use super::trouble::Trouble;
use super::{Outcome, Params, Thought, Way};
use crate::kernel::{Chance, Incident, Link, NodeId, Skew, World, mix};

/// The interval of observations.
const STEP_US: u64 = 50_000;
/// The random number stream of a run's faults.
const RUN: u64 = 4;
/// The time for which the nodes' views of the leader are recorded.
const THOUGHTS_US: u64 = 120_000_000;

pub(super) struct Town<N: Citizen> {
    world: World<N>,
    chance: Chance,
    witness: N::Witness,
    were_two: bool,
    /// The last leader, whether or not there is one now.
    last: Option<Reign>,
    reign: Option<Reign>,
    /// The nodes' views at the last record.
    thoughts: Vec<Option<NodeId>>,
    /// The observations since all nodes first agreed, and the observations without a leader among them.
    looks: u64,
    without: u64,
    outcome: Outcome,
}

impl<N: Citizen> Town<N> {
    /// Creates a cluster; `None` without nodes.
    pub(super) fn new(params: &Params, way: Way, seed: u64) -> Option<Self> {
        if params.nodes == 0 {
            return None;
        }
        let homes = (0..params.nodes).map(|node| Home::of(node, params, way, seed));
        let disks: Vec<N::Disk> = homes.map(|home| home.map(N::disk)).collect::<Option<_>>()?;
        let loss = params.loss;
        let link = Link { latency: params.hop, loss, duplication: loss, delay: loss, ..Link::default() };
        Some(Self {
            world: World::with_disks(seed, link, disks),
            chance: Chance::of(mix(seed, RUN), 0),
            witness: N::Witness::default(),
            were_two: false,
            last: None,
            reign: None,
            thoughts: vec![None; params.nodes as usize],
            looks: 0,
            without: 0,
            outcome: Outcome::default(),
        })
    }

    pub(super) fn run(mut self, params: &Params) -> Outcome {
        let end_us = params.duration.0;
        let mut trouble = Trouble::new(params);
        while self.now_us() < end_us {
            self.world.run_until((self.now_us() + STEP_US).min(end_us));
            self.look();
            trouble.look(&mut self);
        }
        trouble.end(&mut self);
        self.sum_up(params)
    }

    pub(super) fn now_us(&self) -> u64 {
        self.world.now_us()
    }

    pub(super) fn chance(&mut self) -> &mut Chance {
        &mut self.chance
    }

    pub(super) fn outcome(&mut self) -> &mut Outcome {
        &mut self.outcome
    }

    pub(super) fn befall(&mut self, incident: Incident) {
        self.world.befall(incident);
    }

    pub(super) fn plan(&mut self, at_us: u64, incident: Incident) {
        self.world.plan(at_us, incident);
    }

    pub(super) fn part(&mut self, one_side: &[NodeId], other_side: &[NodeId]) {
        self.world.partition(one_side, other_side);
    }

    pub(super) fn up(&self) -> Vec<NodeId> {
        up(&self.world).map(|(node, _)| node).collect()
    }

    /// Returns whether a node leads with authority.
    pub(super) fn is_led(&self) -> bool {
        self.reign.is_some()
    }

    /// Returns whether all nodes have agreed on a leader once.
    pub(super) fn has_begun(&self) -> bool {
        self.outcome.first_us.is_some()
    }

    /// Returns the leader. If there is none, returns the running node that most running nodes consider the leader.
    pub(super) fn foremost(&self) -> Option<NodeId> {
        let now_us = self.clock_us();
        let thoughts: Vec<NodeId> =
            up(&self.world).filter_map(|(_, citizen)| citizen.thinks(now_us)).collect();
        let votes = |node: NodeId| thoughts.iter().filter(|thought| **thought == node).count();
        let most = || self.up().into_iter().max_by_key(|node| votes(*node));
        self.reign.map(|reign| reign.leader).or_else(most)
    }

    /// Returns whether all running nodes consider the node with authority the leader.
    pub(super) fn agrees(&self) -> bool {
        self.do_agree(|_| true)
    }

    /// Returns whether all running voters do.
    pub(super) fn voters_agree(&self) -> bool {
        self.do_agree(N::is_voter)
    }

    fn do_agree(&self, counts: impl Fn(&N) -> bool) -> bool {
        let now_us = self.clock_us();
        let mut counted = up(&self.world).filter(|(_, citizen)| counts(citizen));
        self.reign
            .is_some_and(|reign| counted.all(|(_, citizen)| citizen.thinks(now_us) == Some(reign.leader)))
    }

    /// Returns the lengths of the longest and of the shortest history.
    pub(super) fn heads(&self) -> (u64, u64) {
        let heads = || up(&self.world).filter_map(|(_, citizen)| citizen.head());
        (heads().max().unwrap_or(0), heads().min().unwrap_or(0))
    }

    /// Returns the time on a correct clock.
    fn clock_us(&self) -> u64 {
        Skew::EPOCH_US + self.now_us()
    }

    fn look(&mut self) {
        self.reign = N::reign(&self.world);
        let are_two = N::are_two(&self.world, &mut self.witness);
        self.outcome.two_at_once += u64::from(are_two && !self.were_two);
        self.were_two = are_two;
        if !self.has_begun() && self.agrees() {
            self.outcome.first_us = Some(self.now_us());
            self.last = self.reign;
        }
        if self.has_begun() {
            self.looks += 1;
            self.without += u64::from(self.reign.is_none());
            self.outcome.changes += u64::from(self.reign.is_some() && self.reign != self.last);
            self.last = self.reign.or(self.last);
        }
        if self.now_us() <= THOUGHTS_US {
            self.note_thoughts();
        }
    }

    fn note_thoughts(&mut self) {
        let (at_us, now_us) = (self.now_us(), self.clock_us());
        for (node, noted) in (0..).zip(&mut self.thoughts) {
            let leader = self.world.node(node).and_then(|citizen| citizen.thinks(now_us));
            if leader != *noted {
                *noted = leader;
                self.outcome.thoughts.push(Thought { at_us, node, leader });
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of a simulation stay far below 2^52")]
    fn sum_up(mut self, params: &Params) -> Outcome {
        let sent: Vec<_> =
            (0..self.world.nodes()).filter_map(|node| self.world.disk(node)).map(N::sent).collect();
        let outcome = &mut self.outcome;
        let seconds = params.duration.as_f64() / 1e6;
        let per_node_and_second = |total: u64| total as f64 / seconds / f64::from(params.nodes);
        outcome.messages = sent.iter().map(|sent| sent.messages).sum();
        outcome.messages_per_node_s = per_node_and_second(outcome.messages);
        outcome.bytes_per_node_s = per_node_and_second(sent.iter().map(|sent| sent.bytes).sum());
        outcome.most_bytes_per_s = sent.iter().map(|sent| sent.bytes).max().unwrap_or(0) as f64 / seconds;
        outcome.without_share = if self.looks == 0 { 1.0 } else { self.without as f64 / self.looks as f64 };
        outcome.torn = N::torn(&self.world);
        outcome.lost_messages = self.world.faults().lost;
        self.outcome
    }
}
