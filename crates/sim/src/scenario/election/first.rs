//! The first system's way: an opinion, made of three others' opinions, that is the authority at the same time.
//!
//! A node begins by taking itself for the leader. Once a round it looks at the votes of its neighbours that are no older
//! than the time news could take to all and back, draws three of them, and takes whom two name; if all differ, one of
//! the three at random. Then it tells its neighbours. Whether the leader itself lives nobody asks. How many votes an
//! option counts, and how it breaks a tie, is written at [`Asker::choose`].

use std::collections::BTreeMap;

use fastrand::Rng;
use holdoff_gossip::{Counts, Message, PublicKey, Sampling};

use super::Way;
use super::citizen::{Citizen, Home, Reign, Sent, roll, up};
use super::keys::{key, number};
use crate::kernel::{self, Around, NodeId, World};

const ROUND_US: u64 = 300_000;
const SLOW_ROUND_US: u64 = 1_000_000;
/// Over how many nodes news travels at most, as it was set there.
const DIAMETER: u64 = 8;
const CLOCK_TOLERANCE_US: u64 = 50_000;
/// How many votes are looked at.
const ASKED: usize = 3;
const STICKS_FOR_US: u64 = 10_000_000;
/// By how many votes another must be ahead.
const AHEAD: usize = 2;
/// The voter, its choice, and the time.
const VOTE_BYTES: usize = 72;
const EXCHANGE_ROUNDS: u32 = 20;

/// A node of the first system.
pub(super) struct Asker {
    home: Home,
    me: NodeId,
    sampling: Sampling,
    chosen: NodeId,
    /// When it last looked at votes; never, before its first round.
    looked_us: Option<u64>,
    /// What each neighbour said last: whom it takes for the leader, and when that was by its own clock.
    votes: BTreeMap<NodeId, (NodeId, u64)>,
}

pub(super) struct Disk {
    home: Home,
    sent: Sent,
}

#[derive(Clone)]
pub(super) enum Said {
    Vote { leader: NodeId, at_us: u64 },
    Peers(Box<Message>),
}

impl kernel::Node for Asker {
    type Message = Said;
    type Timer = ();
    type Disk = Disk;

    fn start(disk: &mut Disk, around: &mut Around<'_, Self>) -> Self {
        let (home, me) = (disk.home.clone(), around.me());
        let sampling = home.sampling();
        let asker = Self { sampling, me, chosen: me, looked_us: None, votes: BTreeMap::new(), home };
        let phase_us = around.chance().between(0, asker.round_us());
        around.remind(phase_us, ());
        let join = asker.sampling.join();
        Self::exchange(join, disk, around);
        asker
    }

    fn receive(&mut self, disk: &mut Disk, from: NodeId, said: Said, around: &mut Around<'_, Self>) {
        match said {
            Said::Vote { leader, at_us } => {
                let latest = self.votes.entry(from).or_insert((leader, at_us));
                if at_us >= latest.1 {
                    *latest = (leader, at_us);
                }
            }
            Said::Peers(message) => {
                let mut rng = Rng::with_seed(roll(around));
                let sends = self.sampling.receive(key(self.home.seed, from), *message, &mut rng);
                Self::exchange(sends, disk, around);
            }
        }
    }

    fn wake(&mut self, disk: &mut Disk, (): (), around: &mut Around<'_, Self>) {
        around.remind(self.round_us(), ());
        let mut rng = Rng::with_seed(roll(around));
        let sends = self.sampling.tick(EXCHANGE_ROUNDS, &mut rng, &mut Counts::default());
        Self::exchange(sends, disk, around);
        self.choose(around.now_us(), &mut rng);
        let mut neighbours: Vec<NodeId> =
            self.sampling.peers().into_iter().map(|peer| number(&peer.key)).collect();
        neighbours.sort_unstable();
        neighbours.dedup();
        for to in neighbours {
            disk.sent.count(VOTE_BYTES);
            around.send(to, Said::Vote { leader: self.chosen, at_us: around.now_us() });
        }
    }
}

impl Asker {
    fn round_us(&self) -> u64 {
        if self.home.way == Way::SlowRounds { SLOW_ROUND_US } else { ROUND_US }
    }

    /// One round. Whatever its way, a node takes what it finds in its first one. Later a sticky node looks again when
    /// its ten seconds are over, and with hysteresis another must have two votes of the three more than the one before.
    fn choose(&mut self, now_us: u64, rng: &mut Rng) {
        let sticks = |us: u64| now_us < us + STICKS_FOR_US;
        if self.home.way == Way::Sticky && self.looked_us.is_some_and(sticks) {
            return;
        }
        let is_first = self.looked_us.replace(now_us).is_none();
        let oldest_us = now_us.saturating_sub(CLOCK_TOLERANCE_US + 2 * DIAMETER * self.round_us());
        let mut valid: Vec<NodeId> =
            self.votes.values().filter(|(_, at_us)| *at_us >= oldest_us).map(|(leader, _)| *leader).collect();
        rng.shuffle(&mut valid);
        valid.truncate(ASKED);
        let votes_for = |leader: NodeId| valid.iter().filter(|vote| **vote == leader).count();
        let agreed = valid.iter().copied().find(|leader| votes_for(*leader) >= 2);
        let chosen = agreed.or_else(|| rng.choice(&valid).copied()).unwrap_or(self.me);
        let is_ahead = votes_for(chosen) >= votes_for(self.chosen) + AHEAD;
        if self.home.way != Way::Hysteresis || is_first || is_ahead {
            self.chosen = chosen;
        }
    }

    fn exchange(
        sends: impl IntoIterator<Item = (PublicKey, Message)>,
        disk: &mut Disk,
        around: &mut Around<'_, Self>,
    ) {
        for (to, message) in sends {
            disk.sent.count(message.encode().map_or(0, |bytes| bytes.len()));
            around.send(number(&to), Said::Peers(Box::new(message)));
        }
    }
}

impl Citizen for Asker {
    type Witness = ();

    fn disk(home: Home) -> Disk {
        Disk { home, sent: Sent::default() }
    }

    fn sent(disk: &Disk) -> Sent {
        disk.sent
    }

    fn thinks(&self, _: u64) -> Option<NodeId> {
        Some(self.chosen)
    }

    fn is_voter(&self) -> bool {
        true
    }

    fn head(&self) -> Option<u64> {
        None
    }

    /// Whoever takes itself for the leader, if more than half of those who are up do so, too.
    fn reign(world: &World<Self>) -> Option<Reign> {
        let all = up(world).count();
        let is_followed =
            |leader: NodeId| up(world).filter(|(_, node)| node.chosen == leader).count() * 2 > all;
        let mut candidates = up(world).filter(|(node, asker)| asker.chosen == *node).map(|(node, _)| node);
        candidates.find(|leader| is_followed(*leader)).map(|leader| Reign { leader, term: None })
    }

    /// Whoever takes itself for the leader runs what it is asked to, and tells the others what came of it.
    fn are_two(world: &World<Self>, (): &mut ()) -> bool {
        up(world).filter(|(node, asker)| asker.chosen == *node).nth(1).is_some()
    }

    fn torn(_: &World<Self>) -> u64 {
        0
    }
}
