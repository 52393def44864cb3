//! What ends an epoch: votes of a majority, which are the proof of the next one.
//!
//! A voter signs for the epoch after the one it knows to be proven, and for no other. So an epoch is at most one more
//! than some honest voter has seen proven, as long as liars are fewer than a majority: nobody can jump.

use std::collections::BTreeMap;

use holdoff_net::{PublicKey, Signature};
use serde::{Deserialize, Serialize};

use crate::key::CONTEXT;
use crate::{Claim, Electorate, Group, MAX_VOTERS, Signer, Verifier};

/// Which epoch is to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Next {
    /// Its number.
    pub epoch: u64,
    /// Who should have led in the one before, if anybody: it does not follow itself, unless all wish for it.
    pub over: Option<PublicKey>,
}

/// One voter wants this epoch to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Vote {
    /// The voter.
    pub by: PublicKey,
    /// Whom it would have, if everybody would.
    pub wish: Option<PublicKey>,
    /// Over the group, the epoch, whose time is over, and the wish.
    pub signature: Signature,
}

impl Vote {
    /// Votes for the beginning of an epoch.
    pub fn sign(group: Group, next: Next, wish: Option<PublicKey>, pen: &impl Signer) -> Self {
        Self { by: pen.public(), wish, signature: pen.sign(CONTEXT, &statement(group, next, wish)) }
    }

    /// Whether its voter signed it for this epoch.
    pub fn is_genuine(&self, group: Group, next: Next, verifier: &impl Verifier) -> bool {
        verifier.is_signed(&self.by, CONTEXT, &statement(group, next, self.wish), &self.signature)
    }
}

/// Votes of just a majority, in the order of their voters: what others say proves an epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Certificate {
    /// What they voted for.
    pub next: Next,
    /// The votes.
    pub votes: Vec<Vote>,
}

/// A certificate that holds, and what it says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proven {
    certificate: Certificate,
    claim: Claim,
}

impl Certificate {
    /// The best that can be made of these votes, if they are enough.
    pub(crate) fn gather(next: Next, votes: &BTreeMap<PublicKey, Vote>, majority: usize) -> Option<Self> {
        let around = |leader: &PublicKey, mut votes: Vec<Vote>| {
            // False comes first.
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

    /// What it says, as far as that can be said without checking it. Nobody says anything with no vote.
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

    /// Checks it: just a majority of these voters, each once and in order, and every signature.
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

    /// Whether just a majority of these have voted, in order.
    fn is_by(&self, electorate: &Electorate) -> bool {
        self.votes.len() <= MAX_VOTERS
            && self.votes.len() == electorate.majority()
            && self.votes.is_sorted_by(|one, next| one.by < next.by)
            && self.votes.iter().all(|vote| electorate.has(&vote.by))
    }
}

impl Proven {
    /// What it proves.
    pub fn claim(&self) -> Claim {
        self.claim
    }

    /// The proof, for others.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Whether it would be a proof among these voters, too.
    pub fn holds_for(&self, electorate: &Electorate) -> bool {
        self.certificate.is_by(electorate)
    }
}

impl Next {
    /// Whose time is over comes last; the others in another order in each epoch: by their keys alone, the same node would
    /// win every time, even if it is no good.
    fn luck(&self, voter: &PublicKey) -> (bool, u32, PublicKey) {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"holdoff gossip luck").update(&self.epoch.to_be_bytes()).update(voter.as_bytes());
        let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
        // All who agree outrank luck.
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
