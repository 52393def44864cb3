//! How a node is doing, for people.

use std::time::Duration;

use holdoff_net::PublicKey;
use holdoff_paxos::{NodeId, Slot};

use super::identity::LedgerId;
use super::roster::Member;
use super::wire::Head;
use crate::machine::StateHash;

/// What a node does in its ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Role {
    /// It leads, and takes transactions.
    Leads,
    /// It follows a leader.
    Follows,
    /// It votes, and knows of no leader.
    Looks,
    /// It does not vote.
    Learns,
}

/// The least that is worth watching.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Glance {
    /// How far it has come.
    pub head: Head,
    /// Who leads, as far as it knows.
    pub leader: Option<PublicKey>,
    /// Whether that is itself, and it takes transactions.
    pub leads: bool,
}

/// How a node is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Status {
    /// In which ledger.
    pub ledger: LedgerId,
    /// What the ledger is called.
    pub namespace: String,
    /// By which key it goes.
    pub key: PublicKey,
    /// Who it is: the key and the life of its storage.
    pub node: NodeId,
    /// What it does.
    pub role: Role,
    /// Who leads, as far as it knows.
    pub leader: Option<PublicKey>,
    /// The latest term it has promised: the first place it is for, and the number of the attempt.
    pub term: (Slot, u64),
    /// For how long that has been so.
    pub tenure: Duration,
    /// How far it has come.
    pub head: Head,
    /// The hash of the machine's state.
    pub state_hash: StateHash,
    /// Up to where a majority has signed the history.
    pub certified: Slot,
    /// How many transactions were submitted here and have not ended.
    pub pending: usize,
    /// All members.
    pub members: Vec<MemberStatus>,
    /// What it has seen since it was started.
    pub counts: Counts,
    /// What its core has done since.
    pub core: crate::Counts,
    /// What its part in gossip has done.
    pub hint: holdoff_gossip::Counts,
}

/// A member, and how it is doing as far as is known here.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Its key.
    pub key: PublicKey,
    /// What the list says of it.
    pub member: Member,
    /// Whether it votes now.
    pub votes: bool,
    /// Whether it was heard of lately.
    pub is_here: bool,
    /// How far it has come, if it has said so lately.
    pub head: Option<Head>,
}

/// What a node has seen since it was started.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Counts {
    /// Messages from whom nobody knows.
    pub strangers: u64,
    /// Messages that cannot be read.
    pub garbage: u64,
    /// Times that another node had another hash at the same place: never, unless something is broken.
    pub diverged: u64,
    /// Messages of gossip that were sent, without the link's own.
    pub gossip_messages: u64,
    /// Their bytes.
    pub gossip_bytes: u64,
}
