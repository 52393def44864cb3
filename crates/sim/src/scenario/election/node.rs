//! The common part of the nodes of all algorithms: their configuration, their observable state, and their keys.

use holdoff_gossip::{Electorate, Group, PublicKey, Signature, Signer, Verifier};
use holdoff_paxos::log::Term;

use super::{Algorithm, Params};
use crate::kernel::{self, NodeContext, NodeId, World, mix};

/// The bytes that a frame and TLS add to each message.
const FRAMING_BYTES: u64 = 64;

/// The configuration of a node.
#[derive(Clone, Debug)]
pub(super) struct NodeConfig {
    pub(super) seed: u64,
    pub(super) algorithm: Algorithm,
    pub(super) voters: u32,
    pub(super) electorate: Electorate,
    pub(super) named_campaigns: bool,
    /// All other nodes.
    pub(super) others: Vec<NodeId>,
}

impl NodeConfig {
    /// Creates the configuration of a node. Returns `None` if there are no voters.
    pub(super) fn of(node: NodeId, params: &Params, algorithm: Algorithm, seed: u64) -> Option<Self> {
        let voters = params.voters();
        Some(Self {
            seed,
            algorithm,
            voters,
            electorate: Electorate::new((0..voters).map(|voter| key(seed, voter))).ok()?,
            named_campaigns: params.named_campaigns,
            others: (0..params.nodes).filter(|other| *other != node).collect(),
        })
    }
}

/// The traffic that a node has sent in all its incarnations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentTraffic {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

impl SentTraffic {
    pub(super) fn count(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64 + FRAMING_BYTES;
    }
}

/// The leader, and its term if the algorithm has terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Leadership {
    pub(super) leader: NodeId,
    pub(super) term: Option<Term>,
}

/// A node whose view of the leader can be observed.
pub(super) trait ElectionNode: kernel::SimNode {
    /// The state needed to detect two leaders at once.
    type CommitObserver: Default;

    /// Creates an empty disk that holds only the configuration.
    fn disk(config: NodeConfig) -> Self::Disk;

    /// Returns the traffic that the node has sent.
    fn sent(disk: &Self::Disk) -> SentTraffic;

    /// Returns the leader in the node's view, at this time on its clock.
    fn known_leader(&self, now_us: u64) -> Option<NodeId>;

    /// Returns whether the node is a voter.
    fn is_voter(&self) -> bool;

    /// Returns the length of the node's history, if it keeps one.
    fn log_length(&self) -> Option<u64>;

    /// Returns the node that leads with authority.
    fn leadership(world: &World<Self>) -> Option<Leadership>;

    /// Returns whether two nodes have led at once since the last observation.
    fn has_two_leaders(world: &World<Self>, observer: &mut Self::CommitObserver) -> bool;

    /// Returns the number of indexes at which the histories of two nodes diverge.
    fn diverged(world: &World<Self>) -> u64;
}

/// Returns all nodes that are up.
pub(super) fn up<N: kernel::SimNode>(world: &World<N>) -> impl Iterator<Item = (NodeId, &N)> {
    (0..world.nodes()).filter_map(|node| Some((node, world.node(node)?)))
}

/// Draws 64 random bits.
pub(super) fn roll<N: kernel::SimNode>(context: &mut NodeContext<'_, N>) -> u64 {
    context.rng().between(0, u64::MAX)
}

pub(super) const GROUP: Group = Group([1; 16]);

/// Returns the key of a node in the run with this seed; the key ends with the node's number.
pub(super) fn key(seed: u64, node: NodeId) -> PublicKey {
    let mut bytes = [0; 32];
    let (random, number) = bytes.split_at_mut(28);
    for (place, chunk) in (0..).zip(random.chunks_mut(8)) {
        let word = mix(mix(seed, u64::from(node)), place).to_le_bytes();
        chunk.iter_mut().zip(word).for_each(|(byte, value)| *byte = value);
    }
    number.copy_from_slice(&node.to_le_bytes());
    PublicKey::from_bytes(bytes)
}

/// Returns the number of the key's node.
pub(super) fn number(key: &PublicKey) -> NodeId {
    let [.., a, b, c, d] = *key.as_bytes();
    NodeId::from_le_bytes([a, b, c, d])
}

/// Signs with one key, and verifies the signatures of all keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct FakeSigner(pub(super) PublicKey);

impl Signer for FakeSigner {
    fn public(&self) -> PublicKey {
        self.0
    }

    fn sign(&self, _: &[u8], message: &[u8]) -> Signature {
        let words = self.0.as_bytes().chunks(8).chain(message.chunks(8));
        let sum = words
            .fold(0, |sum, chunk| mix(sum, chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))));
        let mut bytes = [0; 64];
        bytes.iter_mut().zip(sum.to_le_bytes()).for_each(|(byte, value)| *byte = value);
        Signature::from_bytes(bytes)
    }
}

impl Verifier for FakeSigner {
    fn is_signed(&self, by: &PublicKey, _: &[u8], message: &[u8], signature: &Signature) -> bool {
        Self(*by).sign(&[], message) == *signature
    }
}
