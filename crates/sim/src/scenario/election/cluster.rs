//! A cluster of nodes, its observation from outside, and the faults that it meets.

use super::node::{ElectionNode, Leadership, NodeConfig, up};
use super::{Algorithm, FaultKind, LeaderView, Outcome, Params};
use crate::kernel::{Incident, LinkModel, NodeId, SimRng, Skew, World, mix};

/// The interval of observations.
const STEP_US: u64 = 50_000;
/// The random number stream of a run's faults.
const RUN: u64 = 4;
/// The time for which the nodes' views of the leader are recorded.
const RECORDED_US: u64 = 120_000_000;

pub(super) struct Cluster<N: ElectionNode> {
    world: World<N>,
    rng: SimRng,
    observer: N::CommitObserver,
    had_two_leaders: bool,
    /// The last leader, whether or not there is one now.
    last: Option<Leadership>,
    leadership: Option<Leadership>,
    /// The nodes' views at the last record.
    leader_views: Vec<Option<NodeId>>,
    /// The observations since all nodes first agreed, and the observations without a leader among them.
    observations: u64,
    leaderless: u64,
    outcome: Outcome,
}

impl<N: ElectionNode> Cluster<N> {
    /// Creates a cluster; `None` without nodes.
    pub(super) fn new(params: &Params, algorithm: Algorithm, seed: u64) -> Option<Self> {
        if params.nodes == 0 {
            return None;
        }
        let configs = (0..params.nodes).map(|node| NodeConfig::of(node, params, algorithm, seed));
        let disks: Vec<N::Disk> = configs.map(|config| config.map(N::disk)).collect::<Option<_>>()?;
        let loss = params.loss;
        let link =
            LinkModel { latency: params.hop, loss, duplication: loss, delay: loss, ..LinkModel::default() };
        Some(Self {
            world: World::with_disks(seed, link, disks),
            rng: SimRng::of(mix(seed, RUN), 0),
            observer: N::CommitObserver::default(),
            had_two_leaders: false,
            last: None,
            leadership: None,
            leader_views: vec![None; params.nodes as usize],
            observations: 0,
            leaderless: 0,
            outcome: Outcome::default(),
        })
    }

    pub(super) fn run(mut self, params: &Params) -> Outcome {
        let end_us = params.duration.0;
        let mut injector = FaultInjector::new(params);
        while self.now_us() < end_us {
            self.world.run_until((self.now_us() + STEP_US).min(end_us));
            self.observe();
            injector.observe(&mut self);
        }
        injector.end(&mut self);
        self.finish(params)
    }

    pub(super) fn now_us(&self) -> u64 {
        self.world.now_us()
    }

    pub(super) fn rng(&mut self) -> &mut SimRng {
        &mut self.rng
    }

    pub(super) fn outcome(&mut self) -> &mut Outcome {
        &mut self.outcome
    }

    pub(super) fn inject(&mut self, incident: Incident) {
        self.world.inject(incident);
    }

    pub(super) fn plan(&mut self, at_us: u64, incident: Incident) {
        self.world.schedule(at_us, incident);
    }

    pub(super) fn partition(&mut self, one_side: &[NodeId], other_side: &[NodeId]) {
        self.world.partition(one_side, other_side);
    }

    pub(super) fn up(&self) -> Vec<NodeId> {
        up(&self.world).map(|(node, _)| node).collect()
    }

    /// Returns whether a node leads with authority.
    pub(super) fn has_leader(&self) -> bool {
        self.leadership.is_some()
    }

    /// Returns whether all nodes have agreed on a leader once.
    pub(super) fn has_agreed(&self) -> bool {
        self.outcome.first_us.is_some()
    }

    /// Returns the leader. If there is none, returns the running node that most running nodes consider the leader.
    pub(super) fn leader_or_favourite(&self) -> Option<NodeId> {
        let now_us = self.clock_us();
        let leader_views: Vec<NodeId> =
            up(&self.world).filter_map(|(_, node)| node.known_leader(now_us)).collect();
        let votes = |node: NodeId| leader_views.iter().filter(|view| **view == node).count();
        let most = || self.up().into_iter().max_by_key(|node| votes(*node));
        self.leadership.map(|leadership| leadership.leader).or_else(most)
    }

    /// Returns whether all running nodes consider the node with authority the leader.
    pub(super) fn agrees(&self) -> bool {
        self.all_agree(|_| true)
    }

    /// Returns whether all running voters do.
    pub(super) fn voters_agree(&self) -> bool {
        self.all_agree(N::is_voter)
    }

    fn all_agree(&self, counts: impl Fn(&N) -> bool) -> bool {
        let now_us = self.clock_us();
        let mut counted = up(&self.world).filter(|(_, node)| counts(node));
        self.leadership.is_some_and(|leadership| {
            counted.all(|(_, node)| node.known_leader(now_us) == Some(leadership.leader))
        })
    }

    /// Returns the lengths of the longest and of the shortest history.
    pub(super) fn log_lengths(&self) -> (u64, u64) {
        let log_lengths = || up(&self.world).filter_map(|(_, node)| node.log_length());
        (log_lengths().max().unwrap_or(0), log_lengths().min().unwrap_or(0))
    }

    /// Returns the time on a correct clock.
    fn clock_us(&self) -> u64 {
        Skew::EPOCH_US + self.now_us()
    }

    fn observe(&mut self) {
        self.leadership = N::leadership(&self.world);
        let has_two_leaders = N::has_two_leaders(&self.world, &mut self.observer);
        self.outcome.two_at_once += u64::from(has_two_leaders && !self.had_two_leaders);
        self.had_two_leaders = has_two_leaders;
        if !self.has_agreed() && self.agrees() {
            self.outcome.first_us = Some(self.now_us());
            self.last = self.leadership;
        }
        if self.has_agreed() {
            self.observations += 1;
            self.leaderless += u64::from(self.leadership.is_none());
            self.outcome.changes += u64::from(self.leadership.is_some() && self.leadership != self.last);
            self.last = self.leadership.or(self.last);
        }
        if self.now_us() <= RECORDED_US {
            self.record_leader_views();
        }
    }

    fn record_leader_views(&mut self) {
        let (at_us, now_us) = (self.now_us(), self.clock_us());
        for (node, noted) in (0..).zip(&mut self.leader_views) {
            let leader = self.world.node(node).and_then(|node| node.known_leader(now_us));
            if leader != *noted {
                *noted = leader;
                self.outcome.leader_views.push(LeaderView { at_us, node, leader });
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of a simulation stay far below 2^52")]
    fn finish(mut self, params: &Params) -> Outcome {
        let sent: Vec<_> =
            (0..self.world.nodes()).filter_map(|node| self.world.disk(node)).map(N::sent).collect();
        let outcome = &mut self.outcome;
        let seconds = params.duration.as_f64() / 1e6;
        let per_node_and_second = |total: u64| total as f64 / seconds / f64::from(params.nodes);
        outcome.messages = sent.iter().map(|sent| sent.messages).sum();
        outcome.messages_per_node_s = per_node_and_second(outcome.messages);
        outcome.bytes_per_node_s = per_node_and_second(sent.iter().map(|sent| sent.bytes).sum());
        outcome.most_bytes_per_s = sent.iter().map(|sent| sent.bytes).max().unwrap_or(0) as f64 / seconds;
        outcome.without_share =
            if self.observations == 0 { 1.0 } else { self.leaderless as f64 / self.observations as f64 };
        outcome.diverged = N::diverged(&self.world);
        outcome.lost_messages = self.world.faults().lost;
        self.outcome
    }
}

/// The random spread of faults, so that they are not in step with any node's rounds.
const SPREAD_US: u64 = 1_000_000;

struct FaultInjector {
    fault: FaultKind,
    every_us: u64,
    down_for_us: u64,
    cut_for_us: u64,
    end_us: u64,
    /// The time of the next fault; `None` before all nodes have agreed on a leader.
    next_us: Option<u64>,
    heal_us: Option<u64>,
    /// The time since which there is no leader, or not all nodes know it.
    leaderless_us: Option<u64>,
    unknown_us: Option<u64>,
    /// The time of the healing, and the length of the longest history then.
    healed: Option<(u64, u64)>,
}

impl FaultInjector {
    fn new(params: &Params) -> Self {
        Self {
            fault: params.fault,
            every_us: params.fault_every.0,
            down_for_us: params.down_for.0,
            cut_for_us: params.cut_for.0,
            end_us: params.duration.0,
            next_us: None,
            heal_us: None,
            leaderless_us: None,
            unknown_us: None,
            healed: None,
        }
    }

    /// Records the recoveries since the last observation, and injects the faults that are due.
    fn observe<N: ElectionNode>(&mut self, cluster: &mut Cluster<N>) {
        let now_us = cluster.now_us();
        self.recover(cluster);
        if self.heal_us.take_if(|heal_us| now_us >= *heal_us).is_some() {
            let (longest, _) = cluster.log_lengths();
            cluster.inject(Incident::Heal);
            (self.healed, self.unknown_us) = (Some((now_us, longest)), Some(now_us));
        }
        if self.next_us.is_none() && cluster.has_agreed() {
            self.schedule_next(cluster);
        }
        if self.next_us.is_some_and(|next_us| now_us >= next_us) {
            self.record_unrecovered(cluster);
            self.inject_fault(cluster);
            self.schedule_next(cluster);
        }
    }

    /// Counts each fault without a recovery until the next fault, or the end, with the time that it had.
    fn end<N: ElectionNode>(&mut self, cluster: &mut Cluster<N>) {
        self.record_unrecovered(cluster);
    }

    /// Schedules the next fault. No fault is scheduled that would have less than the usual time to recover from.
    fn schedule_next<N: ElectionNode>(&mut self, cluster: &mut Cluster<N>) {
        let cut_for_us = if self.fault == FaultKind::Partition { self.cut_for_us } else { 0 };
        let after_us = self.every_us + cluster.rng().between(0, SPREAD_US);
        let start_us = self.next_us.map_or(cluster.now_us(), |next_us| next_us + cut_for_us) + after_us;
        let is_in_time =
            start_us + cut_for_us + self.every_us <= self.end_us && self.fault != FaultKind::None;
        self.next_us = Some(if is_in_time { start_us } else { u64::MAX });
    }

    fn inject_fault<N: ElectionNode>(&mut self, cluster: &mut Cluster<N>) {
        let now_us = cluster.now_us();
        match self.fault {
            FaultKind::None => return,
            FaultKind::Crash => {
                let Some(leader) = cluster.leader_or_favourite() else { return };
                cluster.inject(Incident::Crash(leader));
                cluster.plan(now_us + self.down_for_us, Incident::Restart(leader));
                (self.leaderless_us, self.unknown_us) = (Some(now_us), Some(now_us));
            }
            FaultKind::Churn => {
                let Some(node) = pick(cluster) else { return };
                cluster.inject(Incident::Crash(node));
                cluster.plan(now_us + self.down_for_us, Incident::Restart(node));
            }
            FaultKind::Partition => {
                let mut nodes = cluster.up();
                for place in 0..nodes.len() {
                    let other = cluster.rng().between(place as u64, nodes.len() as u64 - 1);
                    nodes.swap(place, usize::try_from(other).unwrap_or(place));
                }
                let (one_side, other_side) = nodes.split_at(nodes.len() / 2);
                cluster.partition(one_side, other_side);
                self.heal_us = Some(now_us + self.cut_for_us);
            }
        }
        cluster.outcome().faults += 1;
    }

    fn recover<N: ElectionNode>(&mut self, cluster: &mut Cluster<N>) {
        let now_us = cluster.now_us();
        // A crash strikes after the observation of its own moment, so only a later observation counts.
        if let Some(since_us) =
            self.leaderless_us.take_if(|since_us| now_us > *since_us && cluster.has_leader())
        {
            cluster.outcome().recoveries_us.push(now_us - since_us);
        }
        if let Some(since_us) = self.unknown_us.take_if(|_| cluster.agrees()) {
            cluster.outcome().known_us.push(now_us - since_us);
        }
        let is_well = |log_length: u64| cluster.voters_agree() && cluster.log_lengths().1 >= log_length;
        if let Some((since_us, _)) = self.healed.take_if(|(_, log_length)| is_well(*log_length)) {
            cluster.outcome().healings_us.push(now_us - since_us);
        }
    }

    fn record_unrecovered<N: ElectionNode>(&mut self, cluster: &mut Cluster<N>) {
        let now_us = cluster.now_us();
        let (leaderless, unknown) = (self.leaderless_us.take(), self.unknown_us.take());
        let healed = self.healed.take().map(|(since_us, _)| since_us);
        let outcome = cluster.outcome();
        outcome.unrecovered += u64::from(leaderless.is_some()) + u64::from(healed.is_some());
        outcome.unknown += u64::from(unknown.is_some());
        outcome.recoveries_us.extend(leaderless.map(|since_us| now_us - since_us));
        outcome.known_us.extend(unknown.map(|since_us| now_us - since_us));
        outcome.healings_us.extend(healed.map(|since_us| now_us - since_us));
    }
}

/// Draws a running node.
fn pick<N: ElectionNode>(cluster: &mut Cluster<N>) -> Option<NodeId> {
    let nodes = cluster.up();
    let last = nodes.len().checked_sub(1)? as u64;
    nodes.get(usize::try_from(cluster.rng().between(0, last)).ok()?).copied()
}
