//! Votes end an epoch: the votes of a majority are the certificate of the next epoch.
//!
//! A voter signs only for the epoch after the latest epoch proven to it. As long as the lying voters are fewer than a
//! majority, an epoch is therefore at most one higher than the latest epoch that an honest voter has seen proven: no
//! voter can skip epochs.

use std::collections::BTreeMap;

use holdoff_net::{PublicKey, Signature};
use serde::{Deserialize, Serialize};

use crate::key::CONTEXT;
use crate::{Claim, Electorate, Group, MAX_VOTERS, Signer, Verifier};

/// The epoch that is to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Next {
    /// The number of the epoch.
    pub epoch: u64,
    /// The leader of the previous epoch, if there was one. It does not succeed itself, unless all votes nominate it.
    pub over: Option<PublicKey>,
}

/// A voter's vote for the beginning of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Vote {
    /// The voter.
    pub by: PublicKey,
    /// The nominated leader. The nomination counts only if all votes of the certificate agree on it.
    pub wish: Option<PublicKey>,
    /// The signature over the group, the epoch, the previous leader and the nomination.
    pub signature: Signature,
}

impl Vote {
    /// Signs a vote for the beginning of an epoch.
    pub fn sign(group: Group, next: Next, wish: Option<PublicKey>, pen: &impl Signer) -> Self {
        Self { by: pen.public(), wish, signature: pen.sign(CONTEXT, &statement(group, next, wish)) }
    }

    /// Returns whether the voter signed this vote for this epoch.
    pub fn is_genuine(&self, group: Group, next: Next, verifier: &impl Verifier) -> bool {
        verifier.is_signed(&self.by, CONTEXT, &statement(group, next, self.wish), &self.signature)
    }
}

/// A certificate: the votes of exactly a majority, sorted by voter. It proves an epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Certificate {
    /// The epoch that the votes are for.
    pub next: Next,
    /// The votes.
    pub votes: Vec<Vote>,
}

/// A verified certificate and its claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proven {
    certificate: Certificate,
    claim: Claim,
}

impl Certificate {
    /// Builds the certificate with the highest claim from these votes, if they are a majority.
    pub(crate) fn gather(next: Next, votes: &BTreeMap<PublicKey, Vote>, majority: usize) -> Option<Self> {
        let around = |leader: &PublicKey, mut votes: Vec<Vote>| {
            // `false` sorts first: the leader's own vote.
            votes.sort_by_key(|vote| vote.by != *leader);
            votes.truncate(majority);
            votes.sort_by_key(|vote| vote.by);
            let is_enough = votes.len() == majority && votes.iter().any(|vote| vote.by == *leader);
            is_enough.then_some(Self { next, votes })
        };
        let agreed = |leader: &PublicKey| {
            let agreeing = votes.values().filter(|vote| vote.wish == Some(*leader));
            around(leader, agreeing.copied().collect())
        };
        let luckiest = || {
            let leader = votes.keys().max_by_key(|voter| next.luck(voter))?;
            around(leader, votes.values().copied().collect())
        };
        votes.keys().find_map(agreed).or_else(luckiest)
    }

    /// Returns the claim of the certificate, without verifying it. None if the certificate has no votes.
    pub fn claim(&self) -> Option<Claim> {
        let Next { epoch, .. } = self.next;
        let wish = self.votes.first()?.wish;
        let agreed = wish.filter(|wish| {
            self.votes.iter().all(|vote| vote.wish == Some(*wish))
                && self.votes.iter().any(|vote| vote.by == *wish)
        });
        if let Some(leader) = agreed {
            return Some(Claim { epoch, rank: u32::MAX, leader });
        }
        let (_, rank, leader) = self.votes.iter().map(|vote| self.next.luck(&vote.by)).max()?;
        Some(Claim { epoch, rank, leader })
    }

    /// Verifies the certificate: exactly a majority of these voters, each once and sorted, and every signature.
    pub fn prove(
        self,
        group: Group,
        electorate: &Electorate,
        verifier: &impl Verifier,
    ) -> Result<Proven, Self> {
        let Some(claim) = self.claim() else { return Err(self) };
        let is_genuine = |vote: &Vote| vote.is_genuine(group, self.next, verifier);
        if self.is_by(electorate) && self.next.epoch > 0 && self.votes.iter().all(is_genuine) {
            return Ok(Proven { certificate: self, claim });
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

impl Proven {
    /// Returns the proven claim.
    pub fn claim(&self) -> Claim {
        self.claim
    }

    /// Returns the certificate, to send to other nodes.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Returns whether the certificate is also valid for another electorate.
    pub fn holds_for(&self, electorate: &Electorate) -> bool {
        self.certificate.is_by(electorate)
    }
}

impl Next {
    /// Returns the tie-breaker of a voter. The previous leader ranks last. The other voters have another order in each
    /// epoch: if keys alone decided, the same node would win every time, even if it cannot lead.
    fn luck(&self, voter: &PublicKey) -> (bool, u32, PublicKey) {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"holdoff gossip luck").update(&self.epoch.to_be_bytes()).update(voter.as_bytes());
        let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
        // The hash is halved, so that a unanimous nomination (rank `u32::MAX`) outranks it.
        (self.over != Some(*voter), u32::from_be_bytes([a, b, c, d]) / 2, *voter)
    }
}

fn statement(group: Group, Next { epoch, over }: Next, wish: Option<PublicKey>) -> Vec<u8> {
    let mut bytes = b"vote".to_vec();
    bytes.extend(group.0);
    bytes.extend(epoch.to_be_bytes());
    for somebody in [over, wish] {
        bytes.push(u8::from(somebody.is_some()));
        bytes.extend(somebody.map_or([0; 32], |key| *key.as_bytes()));
    }
    bytes
}
