//! What a node of any way has in common with the others: what it is set up with, and what can be seen of it.

use holdoff_gossip::{Electorate, Peer, Sampling};
use holdoff_paxos::log::Term;

use super::keys::{key, peer};
use super::{Params, View, Way};
use crate::kernel::{self, Around, Chance, NodeId, World, mix};

/// What a frame and TLS add to each message.
const FRAMING_BYTES: u64 = 64;

/// How many others are in the file of a node that does not know all.
const CONTACTS: usize = 4;

/// The stream of whom a node knows.
const FILES: u64 = 5;

/// What stands in a node's file.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) seed: u64,
    pub(super) way: Way,
    pub(super) voters: u32,
    pub(super) electorate: Electorate,
    pub(super) named_runs: bool,
    view: View,
    me: Peer,
    contacts: Vec<Peer>,
}

impl Home {
    /// The file of a node: it names the voters, and all others or a few of them; `None` if nobody votes.
    pub(super) fn of(node: NodeId, params: &Params, way: Way, seed: u64) -> Option<Self> {
        let mut others: Vec<NodeId> = (0..params.nodes).filter(|other| *other != node).collect();
        if params.view == View::Partial {
            let (mut chance, last) = (Chance::of(mix(seed, FILES), u64::from(node)), others.len().max(1) - 1);
            for place in 0..others.len().min(CONTACTS) {
                let drawn = chance.between(place as u64, last as u64);
                others.swap(place, usize::try_from(drawn).unwrap_or(place));
            }
            others.truncate(CONTACTS);
        }
        let voters = params.voters();
        Some(Self {
            seed,
            way,
            voters,
            electorate: Electorate::new((0..voters).map(|voter| key(seed, voter))).ok()?,
            named_runs: params.named_runs,
            view: params.view,
            me: peer(seed, node)?,
            contacts: others.into_iter().filter_map(|other| peer(seed, other)).collect(),
        })
    }

    /// What it knows of others when it starts.
    pub(super) fn sampling(&self) -> Sampling {
        Sampling::new(self.me.clone(), self.contacts.clone(), self.view == View::Mesh)
    }
}

/// What a node has sent in all its lives.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

impl Sent {
    pub(super) fn count(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64 + FRAMING_BYTES;
    }
}

/// Who leads, and in which term where there are any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reign {
    pub(super) leader: NodeId,
    pub(super) term: Option<Term>,
}

/// A node whose opinion can be seen.
pub(super) trait Citizen: kernel::Node {
    /// Remembers what is needed to find two leaders at once.
    type Witness: Default;

    /// An empty disk, but for the file.
    fn disk(home: Home) -> Self::Disk;

    /// What it has sent.
    fn sent(disk: &Self::Disk) -> Sent;

    /// Whom it takes for the leader, at this time on its clock.
    fn thinks(&self, now_us: u64) -> Option<NodeId>;

    /// Whether it has a say in who leads.
    fn is_voter(&self) -> bool;

    /// How much of the history it has, if it keeps one.
    fn head(&self) -> Option<u64>;

    /// Who leads with authority.
    fn reign(world: &World<Self>) -> Option<Reign>;

    /// Whether two have led at once since the last look.
    fn are_two(world: &World<Self>, witness: &mut Self::Witness) -> bool;

    /// Places of the history in which two nodes have something else.
    fn torn(world: &World<Self>) -> u64;
}

/// All nodes that are up.
pub(super) fn up<N: kernel::Node>(world: &World<N>) -> impl Iterator<Item = (NodeId, &N)> {
    (0..world.nodes()).filter_map(|node| Some((node, world.node(node)?)))
}

/// A number for a machine that wants 64 bits of chance.
pub(super) fn roll<N: kernel::Node>(around: &mut Around<'_, N>) -> u64 {
    around.chance().between(0, u64::MAX)
}
