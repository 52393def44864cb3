//! The members of a council as its acceptors know them: the founding record, and the signed changes after it.

use std::collections::{BTreeSet, VecDeque};

use holdoff_paxos::Slot;
use serde::{Deserialize, Serialize};

use crate::value::{CONTEXT, signed_part};
use crate::{AcceptorRequest, CouncilId, Digest, PublicKey, Signature, Signer, Verifier};

/// The founding record of a council. The id of the council is a hash of it, so an acceptor that receives the record can
/// check it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Founding {
    /// The first members.
    pub members: BTreeSet<PublicKey>,
    /// The hash of the first state of the machine, which contains the first acceptors.
    pub state: Digest,
    /// A random number, which distinguishes councils with the same members and acceptors.
    pub nonce: [u8; 16],
    /// The history from which the council was recovered, if it was.
    pub recovered: Option<RecoveredFrom>,
}

/// The end of a council that has lost a majority of its acceptors for good. The council that continues it is founded on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecoveredFrom {
    /// The council.
    pub council: CouncilId,
    /// The last slot of its history. The slots of the council that continues it come after it.
    pub slot: Slot,
    /// The hash of its history.
    pub chain: Digest,
}

/// A member's statement that it recovers its council elsewhere. An acceptor that has it accepts no further value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Closing {
    /// The member.
    pub by: PublicKey,
    signature: Signature,
}

impl Closing {
    /// Closes a council.
    pub fn sign(council: CouncilId, signer: &dyn Signer) -> Self {
        Self { by: signer.public(), signature: signer.sign(CONTEXT, &Self::message(council)) }
    }

    /// Returns whether the member has signed the closing of this council.
    pub fn is_signed(&self, council: CouncilId, verifier: &dyn Verifier) -> bool {
        verifier.is_signed(&self.by, CONTEXT, &Self::message(council), &self.signature)
    }

    fn message(council: CouncilId) -> Vec<u8> {
        [b"holdoff closing", &council.0[..]].concat()
    }
}

impl Founding {
    /// The maximum number of first members.
    pub const MAX_MEMBERS: usize = 1000;

    /// Returns the id of the council.
    pub fn council(&self) -> CouncilId {
        let members: Vec<&[u8]> = self.members.iter().map(|key| &key.as_bytes()[..]).collect();
        let recovered = self.recovered.map_or_else(Digest::default, |recovered| {
            let RecoveredFrom { council, slot, chain } = recovered;
            Digest::of(&[b"holdoff recovered", &council.0, &slot.0.to_le_bytes(), &chain.0])
        });
        let fixed = [b"holdoff founding", &self.state.0[..], &self.nonce, &recovered.0];
        let parts = [&fixed, members.as_slice()].concat();
        let Digest(digest) = Digest::of(&parts);
        let mut id = [0; 16];
        for (to, from) in id.iter_mut().zip(digest) {
            *to = from;
        }
        CouncilId(id)
    }

    /// Returns the request that introduces the new council to an acceptor.
    pub fn introduction(&self) -> AcceptorRequest {
        let members = self.members.iter().copied().collect();
        AcceptorRequest::Introduce {
            founding: self.clone(),
            access: self.base(),
            members,
            changes: Vec::new(),
        }
    }

    /// Returns the slot before the first one.
    pub(crate) fn base(&self) -> Slot {
        self.recovered.map_or(Slot(0), |recovered| recovered.slot)
    }
}

/// A change of the members in one slot.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct AccessChange {
    /// The slot of the previous change, so that an acceptor detects a missing one. Slot 0 stands for the founding.
    pub after: Slot,
    /// The keys that become members.
    pub added: Vec<PublicKey>,
    /// The keys that are members no longer.
    pub removed: Vec<PublicKey>,
}

impl AccessChange {
    /// Returns the change from some members to others; `None` if they are the same.
    pub(crate) fn between(after: Slot, old: &BTreeSet<PublicKey>, new: &BTreeSet<PublicKey>) -> Option<Self> {
        let added: Vec<_> = new.difference(old).copied().collect();
        let removed: Vec<_> = old.difference(new).copied().collect();
        (!added.is_empty() || !removed.is_empty()).then_some(Self { after, added, removed })
    }

    /// Restores the members before the change.
    pub(crate) fn undo(&self, members: &mut BTreeSet<PublicKey>) {
        members.retain(|key| !self.added.contains(key));
        members.extend(&self.removed);
    }

    /// Returns the number of keys that become members or stop being members.
    pub(crate) fn keys(&self) -> usize {
        self.added.len() + self.removed.len()
    }

    pub(crate) fn digest(&self) -> Digest {
        let [added, removed] = [&self.added, &self.removed].map(|keys| {
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key.as_bytes()[..]).collect();
            Digest::of(&keys)
        });
        Digest::of(&[b"holdoff access", &self.after.0.to_le_bytes(), &added.0, &removed.0])
    }
}

/// The change of the members by a decided value, with the signature of its author and without its operations.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SignedAccess {
    /// The slot of the value.
    pub slot: Slot,
    /// The author of the value.
    pub author: PublicKey,
    /// The change.
    pub change: AccessChange,
    /// The hash of the operations, and whether they compact the history.
    pub(crate) batch: Digest,
    pub(crate) compacts: bool,
    pub(crate) signature: Signature,
}

impl SignedAccess {
    /// Returns whether the author has signed a value with this change for its slot of this council.
    pub fn is_signed(&self, council: CouncilId, verifier: &dyn Verifier) -> bool {
        let message =
            signed_part(council, self.slot, &self.author, self.batch, Some(&self.change), self.compacts);
        verifier.is_signed(&self.author, CONTEXT, &message, &self.signature)
    }
}

/// A member's statement that it has the state after this slot, and that the snapshot of this state has this hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Endorsement {
    /// The last slot that the snapshot covers.
    pub slot: Slot,
    /// The hash of the snapshot.
    pub digest: Digest,
    /// The slot of the last change of the members up to this slot. An acceptor that does not know it cannot tell yet who
    /// the members are.
    pub access: Slot,
    /// The member.
    pub by: PublicKey,
    pub(crate) signature: Signature,
}

impl Endorsement {
    /// Endorses the snapshot with this hash.
    pub fn sign(council: CouncilId, slot: Slot, digest: Digest, access: Slot, signer: &dyn Signer) -> Self {
        let signature = signer.sign(CONTEXT, &Self::message(council, slot, digest, access));
        Self { slot, digest, access, by: signer.public(), signature }
    }

    /// Returns whether the member has signed the endorsement for this council.
    pub fn is_signed(&self, council: CouncilId, verifier: &dyn Verifier) -> bool {
        let message = Self::message(council, self.slot, self.digest, self.access);
        verifier.is_signed(&self.by, CONTEXT, &message, &self.signature)
    }

    fn message(council: CouncilId, slot: Slot, digest: Digest, access: Slot) -> Vec<u8> {
        let [slot, access] = [slot, access].map(|slot| slot.0.to_le_bytes());
        [b"holdoff endorsement", &council.0[..], &slot, &digest.0, &access].concat()
    }
}

/// The members that an acceptor knows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Access {
    /// The slot before the first one.
    pub(crate) base: Slot,
    /// The slot of the last change.
    slot: Slot,
    members: BTreeSet<PublicKey>,
    /// The latest changes, from which the acceptor knows earlier members.
    changes: VecDeque<(Slot, AccessChange)>,
    /// A member's statement that the council is closed.
    closed: Option<Closing>,
}

/// The relation of a key to a council.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    Member,
    /// A former member, removed in this slot.
    Removed(Slot),
    Stranger,
}

/// The maximum number of members that an acceptor knows, of changes that it remembers, and of keys in them.
const MAX_MEMBERS: usize = 4096;
const MAX_CHANGES: usize = 256;
const MAX_CHANGED_KEYS: usize = 1024;

impl Access {
    /// Creates the access of a council that a member introduces. Before the first slot these are the first members.
    pub(crate) fn introduced(
        founding: &Founding,
        council: CouncilId,
        slot: Slot,
        members: Vec<PublicKey>,
    ) -> Option<Self> {
        let is_founding = founding.council() == council && founding.members.len() <= Founding::MAX_MEMBERS;
        let members: BTreeSet<_> = members.into_iter().collect();
        let is_known = slot > founding.base() || members == founding.members;
        let is_sane = slot >= founding.base() && !members.is_empty() && members.len() <= MAX_MEMBERS;
        let access = || Self { base: founding.base(), slot, members, changes: VecDeque::new(), closed: None };
        (is_founding && is_known && is_sane).then(access)
    }

    pub(crate) fn closed(&self) -> Option<Closing> {
        self.closed
    }

    /// Closes the council, if a member does so. Returns `false` otherwise.
    pub(crate) fn close(&mut self, closing: Closing) -> bool {
        let is_member = self.members.contains(&closing.by);
        self.closed = self.closed.or(Some(closing).filter(|_| is_member));
        is_member
    }

    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    pub(crate) fn standing(&self, key: &PublicKey) -> Standing {
        if self.members.contains(key) {
            return Standing::Member;
        }
        let removed = self.changes.iter().rev().find(|(_, change)| change.removed.contains(key));
        removed.map_or(Standing::Stranger, |(slot, _)| Standing::Removed(*slot))
    }

    /// Returns whether these keys contain a majority of the members after this slot, or of the earliest later members that
    /// the acceptor knows.
    pub(crate) fn is_majority<'k>(&self, slot: Slot, keys: impl Iterator<Item = &'k PublicKey>) -> bool {
        let mut members = self.members.clone();
        for (_, change) in self.changes.iter().rev().take_while(|(changed, _)| *changed > slot) {
            change.undo(&mut members);
        }
        keys.filter(|key| members.contains(*key)).count() * 2 > members.len()
    }

    /// Applies a decided change. Returns `false` if it does not continue the changes so far, or its author was not a
    /// member. An earlier change is applied already.
    pub(crate) fn apply(&mut self, decided: &SignedAccess) -> bool {
        let SignedAccess { slot, author, change, .. } = decided;
        if *slot <= self.slot {
            return true;
        }
        let members = self.members.len() + change.added.len();
        if change.after != self.slot || !self.members.contains(author) || members > MAX_MEMBERS {
            return false;
        }
        self.slot = *slot;
        self.members.retain(|key| !change.removed.contains(key));
        self.members.extend(&change.added);
        self.changes.push_back((*slot, change.clone()));
        let mut keys: usize = self.changes.iter().map(|(_, change)| change.keys()).sum();
        while (self.changes.len() > MAX_CHANGES || keys > MAX_CHANGED_KEYS)
            && let Some((_, oldest)) = self.changes.pop_front()
        {
            keys -= oldest.keys();
        }
        true
    }

    /// Makes all former members members again: an injected defect.
    #[cfg(test)]
    pub(crate) fn forget_removals(&mut self) {
        self.members.extend(self.changes.iter().flat_map(|(_, change)| change.removed.clone()));
    }

    /// Returns the approximate memory of the members.
    pub(crate) fn memory(&self) -> usize {
        let keys: usize = self.changes.iter().map(|(_, change)| change.keys()).sum();
        (self.members.len() + keys) * 2 * size_of::<PublicKey>()
    }
}
