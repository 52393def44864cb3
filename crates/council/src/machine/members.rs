//! The built-in machine: the list of a council's members, and of its acceptors.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use holdoff_paxos::{MAX_ACCEPTORS, NodeId, Slot};
use holdoff_policy::is_unprintable;
use serde::{Deserialize, Serialize};

use super::{AcceptorInfo, Effect, InvalidOperation, Machine, Position, Revalidation};
use crate::PublicKey;

/// The members of a council, and the acceptors that decide its slots.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Members {
    members: BTreeMap<PublicKey, Member>,
    acceptors: BTreeMap<NodeId, AcceptorInfo>,
}

/// A member, as the other members see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// The display name of the member.
    pub name: String,
    /// The slot in which the member was added.
    pub since: Slot,
}

/// A change of the members or acceptors.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum CouncilChange {
    /// Adds a member. The mail message for the new member stays on the device that adds it until the operation is
    /// committed.
    Add {
        /// The key of the new member.
        key: PublicKey,
        /// The display name of the new member.
        name: String,
    },
    /// Removes a member.
    Remove {
        /// The key of the member.
        key: PublicKey,
    },
    /// Replaces the key of the author.
    Rotate {
        /// The new key.
        to: PublicKey,
    },
    /// Adds an acceptor, which takes part in decisions from the next slot on.
    AddAcceptor(AcceptorInfo),
    /// Removes an acceptor, which takes no part in decisions from the next slot on.
    RemoveAcceptor(NodeId),
    /// Replaces all slots so far by a snapshot.
    Compact {
        /// The last slot that was applied when the change was requested. Any later snapshot satisfies the request.
        since: Slot,
    },
}

impl CouncilChange {
    /// Decodes the change in the body of an operation.
    pub fn read(body: &[u8]) -> Option<Self> {
        postcard::from_bytes(body).ok()
    }
}

/// The maximum number of members of a council.
const MAX_MEMBERS: usize = 1000;
/// The maximum length of a member's name and of an acceptor's address, in bytes.
const MAX_TEXT: usize = 200;

impl Members {
    /// Creates a council with one member and its first acceptors.
    pub fn create(
        founder: PublicKey,
        name: impl Into<String>,
        acceptors: impl IntoIterator<Item = AcceptorInfo>,
    ) -> Result<Self, InvalidOperation> {
        let mut members = Self { members: BTreeMap::new(), acceptors: BTreeMap::new() };
        members.add(founder, name.into(), Slot(0))?;
        for acceptor in acceptors {
            members.add_acceptor(acceptor)?;
        }
        if members.acceptors.is_empty() {
            return Err(InvalidOperation::because("a council needs at least one acceptor"));
        }
        Ok(members)
    }

    /// Returns the members.
    pub fn members(&self) -> &BTreeMap<PublicKey, Member> {
        &self.members
    }

    /// Returns the same members with other acceptors.
    pub fn with_acceptors(
        &self,
        acceptors: impl IntoIterator<Item = AcceptorInfo>,
    ) -> Result<Self, InvalidOperation> {
        let mut members = Self { acceptors: BTreeMap::new(), ..self.clone() };
        acceptors.into_iter().try_for_each(|acceptor| members.add_acceptor(acceptor))?;
        Ok(members)
    }

    /// Adds a member from the start, before the first slot.
    #[cfg(test)]
    pub(crate) fn admit(&mut self, key: PublicKey, name: &str) {
        self.add(key, name.to_owned(), Slot(0)).unwrap();
    }

    fn change(
        &mut self,
        author: &PublicKey,
        change: CouncilChange,
        position: &Position,
    ) -> Result<Effect, InvalidOperation> {
        match change {
            CouncilChange::Add { key, name } => self.add(key, name, position.slot)?,
            CouncilChange::Remove { key } => self.remove(&key)?,
            CouncilChange::Rotate { to } => self.rotate(author, to)?,
            CouncilChange::AddAcceptor(acceptor) => self.add_acceptor(acceptor)?,
            CouncilChange::RemoveAcceptor(id) => self.remove_acceptor(id)?,
            CouncilChange::Compact { since } if position.compacted > since => {}
            CouncilChange::Compact { .. } => return Ok(Effect::Compact),
        }
        Ok(Effect::Nothing)
    }

    fn add(&mut self, key: PublicKey, name: String, since: Slot) -> Result<(), InvalidOperation> {
        if self.members.contains_key(&key) {
            return Err(InvalidOperation::because("the key is already a member"));
        }
        if self.members.len() >= MAX_MEMBERS {
            return Err(InvalidOperation(format!("a council has at most {MAX_MEMBERS} members")));
        }
        check_text(&name, "name")?;
        self.members.insert(key, Member { name, since });
        Ok(())
    }

    fn remove(&mut self, key: &PublicKey) -> Result<(), InvalidOperation> {
        if !self.members.contains_key(key) {
            return Err(InvalidOperation::because("the key is not a member"));
        }
        if self.members.len() == 1 {
            return Err(InvalidOperation::because(
                "the last member cannot be removed: add another member first",
            ));
        }
        self.members.remove(key);
        Ok(())
    }

    fn rotate(&mut self, from: &PublicKey, to: PublicKey) -> Result<(), InvalidOperation> {
        if self.members.contains_key(&to) {
            return Err(InvalidOperation::because("the new key is already a member"));
        }
        let member = self
            .members
            .remove(from)
            .ok_or_else(|| InvalidOperation::because("the old key is not a member"))?;
        self.members.insert(to, member);
        Ok(())
    }

    fn add_acceptor(&mut self, acceptor: AcceptorInfo) -> Result<(), InvalidOperation> {
        if self.acceptors.contains_key(&acceptor.id()) {
            return Err(InvalidOperation::because("the acceptor already belongs to the council"));
        }
        if let Some(other) = self.acceptors.values().find(|other| other.key == acceptor.key) {
            let reason = format!(
                "the acceptor belongs to the council with another incarnation: remove {} first",
                other.id()
            );
            return Err(InvalidOperation(reason));
        }
        if self.acceptors.len() >= MAX_ACCEPTORS {
            return Err(InvalidOperation(format!("a council has at most {MAX_ACCEPTORS} acceptors")));
        }
        check_text(&acceptor.address, "address")?;
        self.acceptors.insert(acceptor.id(), acceptor);
        Ok(())
    }

    fn remove_acceptor(&mut self, id: NodeId) -> Result<(), InvalidOperation> {
        if !self.acceptors.contains_key(&id) {
            return Err(InvalidOperation::because("the acceptor does not belong to the council"));
        }
        if self.acceptors.len() == 1 {
            return Err(InvalidOperation::because(
                "the last acceptor cannot be removed: add another acceptor first",
            ));
        }
        self.acceptors.remove(&id);
        Ok(())
    }

    /// Returns whether the requested state already holds.
    fn is_satisfied(&self, change: &CouncilChange, position: &Position) -> bool {
        match change {
            CouncilChange::Add { key, .. } | CouncilChange::Rotate { to: key } => {
                self.members.contains_key(key)
            }
            CouncilChange::Remove { key } => !self.members.contains_key(key),
            CouncilChange::AddAcceptor(acceptor) => self.acceptors.contains_key(&acceptor.id()),
            CouncilChange::RemoveAcceptor(id) => !self.acceptors.contains_key(id),
            CouncilChange::Compact { since } => position.compacted > *since,
        }
    }
}

impl Machine for Members {
    type Change = CouncilChange;

    fn build(&self, change: &CouncilChange, _: &Position) -> Result<Bytes, InvalidOperation> {
        let body = postcard::to_allocvec(change).map_err(|error| InvalidOperation(error.to_string()))?;
        Ok(body.into())
    }

    fn revalidate(&self, change: &CouncilChange, position: &Position) -> Revalidation {
        if self.is_satisfied(change, position) {
            return Revalidation::Satisfied;
        }
        // The author of a rotation is unknown here. `apply` checks whether the author may rotate its key.
        if matches!(change, CouncilChange::Rotate { .. }) {
            return Revalidation::Valid;
        }
        let no_author = PublicKey::from_bytes([0; 32]);
        match self.clone().change(&no_author, change.clone(), position) {
            Ok(_) => Revalidation::Valid,
            Err(invalid) => Revalidation::Invalid(invalid),
        }
    }

    fn is_shareable(&self, _: &CouncilChange) -> bool {
        true
    }

    fn successor(&self, change: &CouncilChange) -> Option<PublicKey> {
        match change {
            CouncilChange::Rotate { to } => Some(*to),
            _ => None,
        }
    }

    fn apply(
        &mut self,
        author: &PublicKey,
        body: &[u8],
        position: &Position,
    ) -> Result<Effect, InvalidOperation> {
        // A member that was removed and added again is another member: its earlier operations are never applied.
        if self.members.get(author).is_none_or(|member| member.since > position.birth_slot) {
            return Err(InvalidOperation::because(
                "its author is not a member, or was not a member when it submitted the operation",
            ));
        }
        let change =
            postcard::from_bytes(body).map_err(|_| InvalidOperation::because("it cannot be decoded"))?;
        self.change(author, change, position)
    }

    fn member_keys(&self) -> BTreeSet<PublicKey> {
        self.members.keys().copied().collect()
    }

    fn may_propose(&self, key: &PublicKey) -> bool {
        self.members.contains_key(key)
    }

    fn acceptors(&self) -> &BTreeMap<NodeId, AcceptorInfo> {
        &self.acceptors
    }

    fn compaction(&self, since: Slot) -> Option<CouncilChange> {
        Some(CouncilChange::Compact { since })
    }

    fn snapshot(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    fn restore(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok().filter(|members: &Self| !members.acceptors.is_empty())
    }
}

fn check_text(text: &str, what: &str) -> Result<(), InvalidOperation> {
    match text.len() {
        0 => Err(InvalidOperation(format!("the {what} is empty"))),
        1..=MAX_TEXT if !text.chars().any(is_unprintable) => Ok(()),
        1..=MAX_TEXT => Err(InvalidOperation(format!("the {what} has control or bidi characters in it"))),
        _ => Err(InvalidOperation(format!("the {what} is longer than {MAX_TEXT} bytes"))),
    }
}
