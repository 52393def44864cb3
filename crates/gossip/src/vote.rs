//! Votes end an epoch: the votes of a majority are the certificate of the next epoch.
//!
//! A voter signs only for the epoch after the latest epoch proven to it. As long as the lying voters are fewer than a
//! majority, an epoch is therefore at most one higher than the latest epoch that an honest voter has seen proven: no
//! voter can skip epochs.

use std::collections::BTreeMap;

use holdoff_net::{PublicKey, Signature};
use serde::{Deserialize, Serialize};

use crate::hint::CONTEXT;
use crate::{Group, LeaderClaim, Signer, Verifier};

/// The epoch that is to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NextEpoch {
    /// The number of the epoch.
    pub epoch: u64,
    /// The leader of the previous epoch, if there was one. It does not succeed itself, unless all votes nominate it.
    pub previous_leader: Option<PublicKey>,
}

/// A voter's vote for the beginning of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EpochVote {
    /// The voter.
    pub by: PublicKey,
    /// The nominated leader. The nomination counts only if all votes of the certificate agree on it.
    pub nominee: Option<PublicKey>,
    /// The signature over the group, the epoch, the previous leader and the nomination.
    pub signature: Signature,
}

impl EpochVote {
    /// Signs a vote for the beginning of an epoch.
    pub fn sign(group: Group, next: NextEpoch, nominee: Option<PublicKey>, signer: &impl Signer) -> Self {
        Self {
            by: signer.public(),
            nominee,
            signature: signer.sign(CONTEXT, &statement(group, next, nominee)),
        }
    }

    /// Returns whether the voter signed this vote for this epoch.
    pub fn is_genuine(&self, group: Group, next: NextEpoch, verifier: &impl Verifier) -> bool {
        verifier.is_signed(&self.by, CONTEXT, &statement(group, next, self.nominee), &self.signature)
    }
}

/// A certificate: the votes of exactly a majority, sorted by voter. It proves an epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EpochCertificate {
    /// The epoch that the votes are for.
    pub next: NextEpoch,
    /// The votes.
    pub votes: Vec<EpochVote>,
}

/// A verified certificate and its claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProvenClaim {
    certificate: EpochCertificate,
    claim: LeaderClaim,
}

impl EpochCertificate {
    /// Builds the certificate with the highest claim from these votes, if they are a majority.
    pub(crate) fn gather(
        next: NextEpoch,
        votes: &BTreeMap<PublicKey, EpochVote>,
        majority: usize,
    ) -> Option<Self> {
        let around = |leader: &PublicKey, mut votes: Vec<EpochVote>| {
            // `false` sorts first: the leader's own vote.
            votes.sort_by_key(|vote| vote.by != *leader);
            votes.truncate(majority);
            votes.sort_by_key(|vote| vote.by);
            let is_enough = votes.len() == majority && votes.iter().any(|vote| vote.by == *leader);
            is_enough.then_some(Self { next, votes })
        };
        let agreed = |leader: &PublicKey| {
            let agreeing = votes.values().filter(|vote| vote.nominee == Some(*leader));
            around(leader, agreeing.copied().collect())
        };
        let by_tie_breaker = || {
            let leader = votes.keys().max_by_key(|voter| next.tie_breaker(voter))?;
            around(leader, votes.values().copied().collect())
        };
        votes.keys().find_map(agreed).or_else(by_tie_breaker)
    }

    /// Returns the claim of the certificate, without verifying it. None if the certificate has no votes.
    pub fn claim(&self) -> Option<LeaderClaim> {
        let NextEpoch { epoch, .. } = self.next;
        let nominee = self.votes.first()?.nominee;
        let agreed = nominee.filter(|nominee| {
            self.votes.iter().all(|vote| vote.nominee == Some(*nominee))
                && self.votes.iter().any(|vote| vote.by == *nominee)
        });
        if let Some(leader) = agreed {
            return Some(LeaderClaim { epoch, rank: u32::MAX, leader });
        }
        let (_, rank, leader) = self.votes.iter().map(|vote| self.next.tie_breaker(&vote.by)).max()?;
        Some(LeaderClaim { epoch, rank, leader })
    }

    /// Verifies the certificate: exactly a majority of these voters, each once and sorted, and every signature.
    pub fn prove(
        self,
        group: Group,
        electorate: &Electorate,
        verifier: &impl Verifier,
    ) -> Result<ProvenClaim, Self> {
        let Some(claim) = self.claim() else { return Err(self) };
        let is_genuine = |vote: &EpochVote| vote.is_genuine(group, self.next, verifier);
        if self.is_by(electorate) && self.next.epoch > 0 && self.votes.iter().all(is_genuine) {
            return Ok(ProvenClaim { certificate: self, claim });
        }
        Err(self)
    }

    /// Returns whether exactly a majority of these voters has voted, in sorted order.
    fn is_by(&self, electorate: &Electorate) -> bool {
        self.votes.len() <= MAX_VOTERS
            && self.votes.len() == electorate.majority()
            && self.votes.is_sorted_by(|one, next| one.by < next.by)
            && self.votes.iter().all(|vote| electorate.has(&vote.by))
    }
}

impl ProvenClaim {
    /// Returns the proven claim.
    pub fn claim(&self) -> LeaderClaim {
        self.claim
    }

    /// Returns the certificate, to send to other nodes.
    pub fn certificate(&self) -> &EpochCertificate {
        &self.certificate
    }

    /// Returns whether the certificate is also valid for another electorate.
    pub fn holds_for(&self, electorate: &Electorate) -> bool {
        self.certificate.is_by(electorate)
    }
}

impl NextEpoch {
    /// Returns the tie-breaker of a voter. The previous leader ranks last. The other voters have another order in each
    /// epoch: if keys alone decided, the same node would win every time, even if it cannot lead.
    fn tie_breaker(&self, voter: &PublicKey) -> (bool, u32, PublicKey) {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"holdoff gossip luck").update(&self.epoch.to_be_bytes()).update(voter.as_bytes());
        let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
        // The hash is halved, so that a unanimous nomination (rank `u32::MAX`) outranks it.
        (self.previous_leader != Some(*voter), u32::from_be_bytes([a, b, c, d]) / 2, *voter)
    }
}

fn statement(
    group: Group,
    NextEpoch { epoch, previous_leader }: NextEpoch,
    nominee: Option<PublicKey>,
) -> Vec<u8> {
    let mut bytes = b"vote".to_vec();
    bytes.extend(group.0);
    bytes.extend(epoch.to_be_bytes());
    for key in [previous_leader, nominee] {
        bytes.push(u8::from(key.is_some()));
        bytes.extend(key.map_or([0; 32], |key| *key.as_bytes()));
    }
    bytes
}

/// The maximum number of voters of a log.
pub const MAX_VOTERS: usize = 15;

/// The set of voters, as the log's configuration names them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Electorate(Box<[PublicKey]>);

/// The reason why a list of keys is not a valid electorate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadElectorate {
    /// The list has no voters: no node could ever lead.
    #[error("an electorate needs at least one voter")]
    Empty,
    /// The list has more voters than a log may have.
    #[error("{0} voters are too many: a log has at most {MAX_VOTERS}")]
    TooMany(usize),
}

/// The electorate of one voter.
impl From<PublicKey> for Electorate {
    fn from(voter: PublicKey) -> Self {
        Self(Box::new([voter]))
    }
}

impl Electorate {
    /// Creates an electorate. Repeated keys count once.
    pub fn new(voters: impl IntoIterator<Item = PublicKey>) -> Result<Self, BadElectorate> {
        let mut voters: Vec<_> = voters.into_iter().collect();
        voters.sort_unstable();
        voters.dedup();
        match voters.len() {
            0 => Err(BadElectorate::Empty),
            1..=MAX_VOTERS => Ok(Self(voters.into())),
            many => Err(BadElectorate::TooMany(many)),
        }
    }

    /// Returns whether a node votes.
    pub fn has(&self, node: &PublicKey) -> bool {
        self.0.binary_search(node).is_ok()
    }

    /// Returns the size of a majority.
    pub fn majority(&self) -> usize {
        self.0.len() / 2 + 1
    }

    /// Returns whether there is a single voter.
    pub fn is_single(&self) -> bool {
        self.0.len() == 1
    }
}
