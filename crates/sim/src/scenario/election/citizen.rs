//! The common part of the nodes of all algorithms: their configuration and their observable state.

use holdoff_gossip::{Electorate, Peer, Sampling};
use holdoff_paxos::log::Term;

use super::keys::{key, peer};
use super::{Params, View, Way};
use crate::kernel::{self, Around, Chance, NodeId, World, mix};

/// The bytes that a frame and TLS add to each message.
const FRAMING_BYTES: u64 = 64;

/// The number of contacts of a node that does not know all nodes.
const CONTACTS: usize = 4;

/// The random number stream of the contacts.
const FILES: u64 = 5;

/// The configuration of a node.
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
    /// Creates the configuration of a node, with the voters, and with all other nodes or a few of them. Returns `None`
    /// if there are no voters.
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

    /// Returns the node's initial knowledge of other nodes.
    pub(super) fn sampling(&self) -> Sampling {
        Sampling::new(self.me.clone(), self.contacts.clone(), self.view == View::Mesh)
    }
}

/// The traffic that a node has sent in all its incarnations.
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

/// The leader, and its term if the algorithm has terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reign {
    pub(super) leader: NodeId,
    pub(super) term: Option<Term>,
}

/// A node whose view of the leader can be observed.
pub(super) trait Citizen: kernel::Node {
    /// The state needed to detect two leaders at once.
    type Witness: Default;

    /// Creates an empty disk that holds only the configuration.
    fn disk(home: Home) -> Self::Disk;

    /// Returns the traffic that the node has sent.
    fn sent(disk: &Self::Disk) -> Sent;

    /// Returns the leader in the node's view, at this time on its clock.
    fn thinks(&self, now_us: u64) -> Option<NodeId>;

    /// Returns whether the node is a voter.
    fn is_voter(&self) -> bool;

    /// Returns the length of the node's history, if it keeps one.
    fn head(&self) -> Option<u64>;

    /// Returns the node that leads with authority.
    fn reign(world: &World<Self>) -> Option<Reign>;

    /// Returns whether two nodes have led at once since the last observation.
    fn are_two(world: &World<Self>, witness: &mut Self::Witness) -> bool;

    /// Returns the number of indexes at which the histories of two nodes diverge.
    fn torn(world: &World<Self>) -> u64;
}

/// Returns all nodes that are up.
pub(super) fn up<N: kernel::Node>(world: &World<N>) -> impl Iterator<Item = (NodeId, &N)> {
    (0..world.nodes()).filter_map(|node| Some((node, world.node(node)?)))
}

/// Draws 64 random bits.
pub(super) fn roll<N: kernel::Node>(around: &mut Around<'_, N>) -> u64 {
    around.chance().between(0, u64::MAX)
}
