//! The source document's algorithm: the majority opinion of three other nodes, which is at the same time the authority.
//!
//! A node starts by considering itself the leader. Once a round it considers the votes of the other nodes that are no
//! older than the time in which news can reach all nodes and return. It draws three of these votes and takes the leader
//! that two of them name; if all differ, it takes one of the three at random. Then it sends its choice to all
//! other nodes. No node checks whether the leader itself is alive. [`BaselineNode::choose`] documents how the variants count
//! votes and break ties.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::Algorithm;
use super::node::{ElectionNode, Leadership, NodeConfig, SentTraffic, roll, up};
use crate::kernel::{self, NodeContext, NodeId, World};

const ROUND_US: u64 = 300_000;
const SLOW_ROUND_US: u64 = 1_000_000;
/// The largest number of hops that news travels, as configured in the source.
const DIAMETER: u64 = 8;
const CLOCK_TOLERANCE_US: u64 = 50_000;
/// The number of votes drawn.
const DRAWN: usize = 3;
const STICKS_FOR_US: u64 = 10_000_000;
/// The lead in votes that another node needs.
const AHEAD: usize = 2;
/// The size of a vote: the voter, its choice, and the time.
const VOTE_BYTES: usize = 72;

/// A node of this algorithm.
pub(super) struct BaselineNode {
    config: NodeConfig,
    me: NodeId,
    chosen: NodeId,
    /// The time when the node last counted votes; `None` before its first round.
    looked_us: Option<u64>,
    /// The latest vote of each other node: its leader, and the time on that node's clock.
    votes: BTreeMap<NodeId, (NodeId, u64)>,
}

pub(super) struct BaselineDisk {
    config: NodeConfig,
    sent: SentTraffic,
}

#[derive(Clone, Copy)]
pub(super) struct BaselineVote {
    leader: NodeId,
    at_us: u64,
}

impl kernel::SimNode for BaselineNode {
    type Message = BaselineVote;
    type Timer = ();
    type Disk = BaselineDisk;

    fn start(disk: &mut BaselineDisk, context: &mut NodeContext<'_, Self>) -> Self {
        let (config, me) = (disk.config.clone(), context.me());
        let node = Self { me, chosen: me, looked_us: None, votes: BTreeMap::new(), config };
        let phase_us = context.rng().between(0, node.round_us());
        context.set_timer(phase_us, ());
        node
    }

    fn receive(
        &mut self,
        _: &mut BaselineDisk,
        from: NodeId,
        BaselineVote { leader, at_us }: BaselineVote,
        _: &mut NodeContext<'_, Self>,
    ) {
        let latest = self.votes.entry(from).or_insert((leader, at_us));
        if at_us >= latest.1 {
            *latest = (leader, at_us);
        }
    }

    fn wake(&mut self, disk: &mut BaselineDisk, (): (), context: &mut NodeContext<'_, Self>) {
        context.set_timer(self.round_us(), ());
        let mut rng = Rng::with_seed(roll(context));
        self.choose(context.now_us(), &mut rng);
        for to in &self.config.others {
            disk.sent.count(VOTE_BYTES);
            context.send(*to, BaselineVote { leader: self.chosen, at_us: context.now_us() });
        }
    }
}

impl BaselineNode {
    fn round_us(&self) -> u64 {
        if self.config.algorithm == Algorithm::SlowRounds { SLOW_ROUND_US } else { ROUND_US }
    }

    /// Executes one round. In its first round a node of every variant takes the result. Later, a sticky node counts
    /// again only after ten seconds, and with hysteresis another leader needs two more of the three votes than the
    /// current one.
    fn choose(&mut self, now_us: u64, rng: &mut Rng) {
        let sticks = |us: u64| now_us < us + STICKS_FOR_US;
        if self.config.algorithm == Algorithm::Sticky && self.looked_us.is_some_and(sticks) {
            return;
        }
        let is_first = self.looked_us.replace(now_us).is_none();
        let oldest_us = now_us.saturating_sub(CLOCK_TOLERANCE_US + 2 * DIAMETER * self.round_us());
        let mut valid: Vec<NodeId> =
            self.votes.values().filter(|(_, at_us)| *at_us >= oldest_us).map(|(leader, _)| *leader).collect();
        rng.shuffle(&mut valid);
        valid.truncate(DRAWN);
        let votes_for = |leader: NodeId| valid.iter().filter(|vote| **vote == leader).count();
        let agreed = valid.iter().copied().find(|leader| votes_for(*leader) >= 2);
        let chosen = agreed.or_else(|| rng.choice(&valid).copied()).unwrap_or(self.me);
        let is_ahead = votes_for(chosen) >= votes_for(self.chosen) + AHEAD;
        if self.config.algorithm != Algorithm::Hysteresis || is_first || is_ahead {
            self.chosen = chosen;
        }
    }
}

impl ElectionNode for BaselineNode {
    type CommitObserver = ();

    fn disk(config: NodeConfig) -> BaselineDisk {
        BaselineDisk { config, sent: SentTraffic::default() }
    }

    fn sent(disk: &BaselineDisk) -> SentTraffic {
        disk.sent
    }

    fn known_leader(&self, _: u64) -> Option<NodeId> {
        Some(self.chosen)
    }

    fn is_voter(&self) -> bool {
        true
    }

    fn log_length(&self) -> Option<u64> {
        None
    }

    /// Returns the node that considers itself the leader, if more than half of the nodes that are up agree.
    fn leadership(world: &World<Self>) -> Option<Leadership> {
        let all = up(world).count();
        let is_followed =
            |leader: NodeId| up(world).filter(|(_, node)| node.chosen == leader).count() * 2 > all;
        let mut candidates = up(world).filter(|(id, node)| node.chosen == *id).map(|(id, _)| id);
        candidates.find(|leader| is_followed(*leader)).map(|leader| Leadership { leader, term: None })
    }

    /// Returns whether two nodes consider themselves the leader: each such node executes requests and sends the results
    /// to the others.
    fn has_two_leaders(world: &World<Self>, (): &mut ()) -> bool {
        up(world).filter(|(id, node)| node.chosen == *id).nth(1).is_some()
    }

    fn diverged(_: &World<Self>) -> u64 {
        0
    }
}
