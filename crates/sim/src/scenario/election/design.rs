//! Holdoff's algorithm: gossip names the node that should lead, the voters' log decides which node leads.

use holdoff_gossip::{Message, Node, Send, Settings, Standing, Watch};
use holdoff_paxos::NodeId as VoterId;
use holdoff_paxos::Slot;
use holdoff_paxos::log::{Store, Term};

use super::citizen::{Citizen, Home, Reign, Sent, roll, up};
use super::keys::{GROUP, Pen, key, number};
use super::voter::{Letter, Turn, Value, Voter};
use crate::kernel::{self, Around, NodeId, World};

/// The tick interval of a voter's log.
const TICK_US: u64 = 50_000;

/// A node of holdoff's algorithm: all nodes gossip, some vote.
pub(super) struct Elector {
    home: Home,
    gossip: Node<Pen, Pen>,
    round_us: u64,
    voter: Option<Voter>,
    letters: Vec<(VoterId, Letter)>,
}

pub(super) struct Disk {
    home: Home,
    sent: Sent,
    store: Option<Store<Value, ()>>,
}

#[derive(Clone)]
pub(super) enum Said {
    Gossip(Message),
    Log(Letter),
}

#[derive(Clone, Copy)]
pub(super) enum Timer {
    Round,
    Tick,
}

fn voter_id(node: NodeId) -> VoterId {
    VoterId(u128::from(node))
}

fn node_of(voter: VoterId) -> NodeId {
    NodeId::try_from(voter.0).unwrap_or(NodeId::MAX)
}

impl kernel::Node for Elector {
    type Message = Said;
    type Timer = Timer;
    type Disk = Disk;

    fn start(disk: &mut Disk, around: &mut Around<'_, Self>) -> Self {
        let (home, settings, now_us) = (disk.home.clone(), Settings::default(), around.now_us());
        let pen = Pen(key(home.seed, around.me()));
        let watch = Watch::new(GROUP, pen, pen, home.electorate.clone(), &settings, now_us);
        let gossip = Node::new(watch, home.sampling(), &settings);
        let is_voter = around.me() < home.voters;
        let store = disk.store.clone().filter(|_| is_voter);
        let roll = around.chance().roll();
        let voter = store.map(|store| Voter::new(voter_id(around.me()), store, now_us, roll));
        let round_us = u64::try_from(settings.round.as_micros()).unwrap_or(u64::MAX);
        let mut elector = Self { home, gossip, round_us, voter, letters: Vec::new() };
        elector.round(disk, around);
        let phase_us = around.chance().between(0, round_us);
        around.remind(phase_us, Timer::Round);
        if is_voter {
            let phase_us = around.chance().between(1, TICK_US);
            around.remind(phase_us, Timer::Tick);
        }
        elector
    }

    fn receive(&mut self, disk: &mut Disk, from: NodeId, said: Said, around: &mut Around<'_, Self>) {
        match said {
            Said::Gossip(message) => {
                let roll = roll(around);
                let from = key(self.home.seed, from);
                let sends = self.gossip.receive(around.now_us(), roll, from, message);
                Self::say(sends, disk, around);
            }
            Said::Log(letter) => {
                self.vote(disk, around, |voter, turn| voter.hear(voter_id(from), letter, turn));
            }
        }
    }

    fn wake(&mut self, disk: &mut Disk, timer: Timer, around: &mut Around<'_, Self>) {
        match timer {
            Timer::Round => {
                around.remind(self.round_us, Timer::Round);
                self.round(disk, around);
            }
            Timer::Tick => {
                around.remind(TICK_US, Timer::Tick);
                self.heed(disk, around);
                self.vote(disk, around, Voter::tick);
            }
        }
    }
}

impl Elector {
    fn round(&mut self, disk: &mut Disk, around: &mut Around<'_, Self>) {
        let roll = roll(around);
        let sends = self.gossip.tick(around.now_us(), roll);
        Self::say(sends, disk, around);
    }

    /// Passes the hint to the log. A node that is not named yields as soon as there is a claim; the named node runs
    /// when the claim is settled.
    fn heed(&mut self, disk: &mut Disk, around: &mut Around<'_, Self>) {
        let (me, now_us) = (key(self.home.seed, around.me()), around.now_us());
        let Some(claimed) = self.gossip.hint().map(|hint| hint.claim.leader) else { return };
        if claimed != me {
            if let Some(voter) = &mut self.voter {
                voter.leave_it(now_us);
            }
        } else if self.home.named_runs && self.gossip.leader(now_us) == Some(me) {
            self.vote(disk, around, Voter::run);
        }
    }

    /// Gives the voter a turn, sends its messages, and passes the node's standing to gossip.
    fn vote(
        &mut self,
        disk: &mut Disk,
        around: &mut Around<'_, Self>,
        turn: impl FnOnce(&mut Voter, Turn<'_>),
    ) {
        let (Some(voter), Some(store)) = (&mut self.voter, &mut disk.store) else { return };
        let (now_us, roll) = (around.now_us(), around.chance().roll());
        turn(voter, Turn { now_us, roll, store, letters: &mut self.letters });
        let standing = match voter.leader() {
            Some(leader) if leader == voter_id(around.me()) => Standing::Leads,
            Some(leader) => Standing::Follows(key(self.home.seed, node_of(leader))),
            None => Standing::Nobody,
        };
        self.gossip.stand(now_us, standing);
        for (to, letter) in self.letters.drain(..) {
            disk.sent.count(postcard::experimental::serialized_size(&letter).unwrap_or(0));
            around.send(node_of(to), Said::Log(letter));
        }
    }

    fn say(sends: Vec<Send>, disk: &mut Disk, around: &mut Around<'_, Self>) {
        for Send { to, message } in sends {
            disk.sent.count(message.encode().map_or(0, |bytes| bytes.len()));
            around.send(number(&to), Said::Gossip(message));
        }
    }
}

/// The latest term in which an entry was decided, and the time of the last observed decision.
#[derive(Default)]
pub(super) struct Witness {
    latest: Option<Term>,
    looked_us: u64,
}

impl Citizen for Elector {
    type Witness = Witness;

    fn disk(home: Home) -> Disk {
        let store = Voter::empty(home.voters);
        Disk { home, sent: Sent::default(), store }
    }

    fn sent(disk: &Disk) -> Sent {
        disk.sent
    }

    /// A voter follows the log, all other nodes follow the hint.
    fn thinks(&self, now_us: u64) -> Option<NodeId> {
        match &self.voter {
            Some(voter) => voter.leader().map(node_of),
            None => self.gossip.leader(now_us).map(|leader| number(&leader)),
        }
    }

    fn is_voter(&self) -> bool {
        self.voter.is_some()
    }

    fn head(&self) -> Option<u64> {
        Some(self.voter.as_ref()?.store().decided().0)
    }

    /// Returns the node that leads the log and serves; if there are several, the one with the latest term, because the
    /// others have not noticed it yet.
    fn reign(world: &World<Self>) -> Option<Reign> {
        let serving = up(world).filter_map(|(node, elector)| {
            let term = elector.voter.as_ref()?.serves()?;
            Some(Reign { leader: node, term: Some(term) })
        });
        serving.max_by_key(|reign| reign.term)
    }

    /// Returns whether a leader decided an entry after a later leader had decided one.
    fn are_two(world: &World<Self>, witness: &mut Witness) -> bool {
        let voters = || up(world).filter_map(|(_, elector)| elector.voter.as_ref());
        let mut commits: Vec<_> = voters().flat_map(|voter| voter.commits_after(witness.looked_us)).collect();
        commits.sort_unstable();
        let mut are_two = false;
        for (at_us, term) in commits {
            are_two |= witness.latest > Some(term);
            witness.latest = witness.latest.max(Some(term));
            witness.looked_us = at_us;
        }
        are_two
    }

    fn torn(world: &World<Self>) -> u64 {
        let stores: Vec<_> =
            up(world).filter_map(|(_, elector)| Some(elector.voter.as_ref()?.store())).collect();
        let Some(longest) = stores.iter().max_by_key(|store| store.decided()) else { return 0 };
        let differs =
            |store: &&Store<Value, ()>, slot: u64| store.entry(Slot(slot)) != longest.entry(Slot(slot));
        let torn =
            |store: &&Store<Value, ()>| (1..=store.decided().0).filter(|slot| differs(store, *slot)).count();
        stores.iter().map(|store| torn(store) as u64).sum()
    }
}
