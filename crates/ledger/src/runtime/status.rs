//! The status of a node, for operators.

use std::time::Duration;

use holdoff_net::PublicKey;
use holdoff_paxos::{NodeId, Slot};

use super::identity::LedgerId;
use super::roster::LedgerMember;
use super::wire::AppliedHead;
use crate::machine::StateHash;

/// The role of a node in its ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Role {
    /// The node leads and accepts transactions.
    Leader,
    /// The node follows a leader.
    Follower,
    /// The node votes and knows no leader.
    Candidate,
    /// The node does not vote.
    Learner,
}

/// The parts of a node's status that callers watch.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeStatus {
    /// The last applied entry.
    pub head: AppliedHead,
    /// The leader, if the node knows it.
    pub leader: Option<PublicKey>,
    /// True if this node leads and accepts transactions.
    pub leads: bool,
}

/// The detailed status of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LedgerStatus {
    /// The id of the ledger.
    pub ledger: LedgerId,
    /// The name of the ledger.
    pub namespace: String,
    /// The public key of the node.
    pub key: PublicKey,
    /// The id of the node, from its key and the incarnation of its storage.
    pub node: NodeId,
    /// The role of the node.
    pub role: Role,
    /// The leader, if the node knows it.
    pub leader: Option<PublicKey>,
    /// The latest promised term: its first slot, and the number of the attempt.
    pub term: (Slot, u64),
    /// The time since the last change of the leader.
    pub tenure: Duration,
    /// The last applied entry.
    pub head: AppliedHead,
    /// The hash of the machine's state.
    pub state_hash: StateHash,
    /// The highest index that a majority has signed.
    pub certified: Slot,
    /// The number of pending transactions that were submitted at this node.
    pub pending: usize,
    /// All members of the ledger.
    pub members: Vec<MemberStatus>,
    /// The counters of the node since its start.
    pub counts: NodeCounters,
    /// The counters of the core since its start.
    pub core: crate::LedgerCounters,
    /// The counters of gossip since its start.
    pub hint: holdoff_gossip::GossipCounters,
}

/// A member, and its status as this node knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MemberStatus {
    /// The public key of the member.
    pub key: PublicKey,
    /// The row of the roster.
    pub member: LedgerMember,
    /// True if the member votes now.
    pub votes: bool,
    /// True if the member has sent its status recently.
    pub is_reachable: bool,
    /// The last entry that the member has applied, if it has sent its status recently.
    pub head: Option<AppliedHead>,
}

/// The counters of a node since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct NodeCounters {
    /// Messages from nodes that are not members, or from another incarnation of a member.
    pub unknown_senders: u64,
    /// Messages that could not be decoded.
    pub malformed: u64,
    /// Times that a peer had another hash at the same index. Always 0, unless a node is faulty.
    pub diverged: u64,
    /// Gossip messages sent.
    pub gossip_messages: u64,
    /// Bytes of the gossip messages sent, without the overhead of the link.
    pub gossip_bytes: u64,
}
