//! The built-in machine: the list of a council's members, and of its acceptors.

use std::collections::BTreeMap;

use bytes::Bytes;
use holdoff_paxos::{MAX_ACCEPTORS, NodeId, Slot};
use serde::{Deserialize, Serialize};

use super::{Acceptor, Around, Effect, Invalid, Machine, Standing};
use crate::PublicKey;

/// The members of a council, and the acceptors that decide its slots.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Members {
    members: BTreeMap<PublicKey, Member>,
    acceptors: BTreeMap<NodeId, Acceptor>,
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
pub enum Change {
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
    AddAcceptor(Acceptor),
    /// Removes an acceptor, which takes no part in decisions from the next slot on.
    RemoveAcceptor(NodeId),
    /// Replaces all slots so far by a snapshot.
    Compact {
        /// The last slot that was applied when the change was requested. Any later snapshot satisfies the request.
        since: Slot,
    },
}

impl Change {
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
    pub fn found(
        founder: PublicKey,
        name: impl Into<String>,
        acceptors: impl IntoIterator<Item = Acceptor>,
    ) -> Result<Self, Invalid> {
        let mut members = Self { members: BTreeMap::new(), acceptors: BTreeMap::new() };
        members.add(founder, name.into(), Slot(0))?;
        for acceptor in acceptors {
            members.add_acceptor(acceptor)?;
        }
        if members.acceptors.is_empty() {
            return Err(Invalid::because("a council needs at least one acceptor"));
        }
        Ok(members)
    }

    /// Returns the members.
    pub fn members(&self) -> &BTreeMap<PublicKey, Member> {
        &self.members
    }

    /// Adds a member from the start, before the first slot.
    #[cfg(test)]
    pub(crate) fn admit(&mut self, key: PublicKey, name: &str) {
        self.add(key, name.to_owned(), Slot(0)).unwrap();
    }

    fn change(&mut self, author: &PublicKey, change: Change, around: &Around) -> Result<Effect, Invalid> {
        match change {
            Change::Add { key, name } => self.add(key, name, around.slot)?,
            Change::Remove { key } => self.remove(&key)?,
            Change::Rotate { to } => self.rotate(author, to)?,
            Change::AddAcceptor(acceptor) => self.add_acceptor(acceptor)?,
            Change::RemoveAcceptor(id) => self.remove_acceptor(id)?,
            Change::Compact { since } if around.compacted > since => {}
            Change::Compact { .. } => return Ok(Effect::Compact),
        }
        Ok(Effect::Nothing)
    }

    fn add(&mut self, key: PublicKey, name: String, since: Slot) -> Result<(), Invalid> {
        if self.members.contains_key(&key) {
            return Err(Invalid::because("this key is a member already"));
        }
        if self.members.len() >= MAX_MEMBERS {
            return Err(Invalid(format!("a council has at most {MAX_MEMBERS} members")));
        }
        check_text(&name, "name")?;
        self.members.insert(key, Member { name, since });
        Ok(())
    }

    fn remove(&mut self, key: &PublicKey) -> Result<(), Invalid> {
        if !self.members.contains_key(key) {
            return Err(Invalid::because("this key is not a member"));
        }
        if self.members.len() == 1 {
            return Err(Invalid::because("the last member cannot be removed: nobody could add another"));
        }
        self.members.remove(key);
        Ok(())
    }

    fn rotate(&mut self, from: &PublicKey, to: PublicKey) -> Result<(), Invalid> {
        if self.members.contains_key(&to) {
            return Err(Invalid::because("the new key is a member's already"));
        }
        let member =
            self.members.remove(from).ok_or_else(|| Invalid::because("the old key is not a member"))?;
        self.members.insert(to, member);
        Ok(())
    }

    fn add_acceptor(&mut self, acceptor: Acceptor) -> Result<(), Invalid> {
        if self.acceptors.contains_key(&acceptor.id()) {
            return Err(Invalid::because("this acceptor decides already"));
        }
        if let Some(other) = self.acceptors.values().find(|other| other.key == acceptor.key) {
            let reason = format!("this acceptor was there with other storage: remove {} first", other.id());
            return Err(Invalid(reason));
        }
        if self.acceptors.len() >= MAX_ACCEPTORS {
            return Err(Invalid(format!("a council has at most {MAX_ACCEPTORS} acceptors")));
        }
        check_text(&acceptor.address, "address")?;
        self.acceptors.insert(acceptor.id(), acceptor);
        Ok(())
    }

    fn remove_acceptor(&mut self, id: NodeId) -> Result<(), Invalid> {
        if !self.acceptors.contains_key(&id) {
            return Err(Invalid::because("this acceptor does not decide here"));
        }
        if self.acceptors.len() == 1 {
            return Err(Invalid::because("the last acceptor cannot be removed: nobody could decide"));
        }
        self.acceptors.remove(&id);
        Ok(())
    }

    /// Returns whether the requested state already holds.
    fn is_satisfied(&self, change: &Change, around: &Around) -> bool {
        match change {
            Change::Add { key, .. } | Change::Rotate { to: key } => self.members.contains_key(key),
            Change::Remove { key } => !self.members.contains_key(key),
            Change::AddAcceptor(acceptor) => self.acceptors.contains_key(&acceptor.id()),
            Change::RemoveAcceptor(id) => !self.acceptors.contains_key(id),
            Change::Compact { since } => around.compacted > *since,
        }
    }
}

impl Machine for Members {
    type Wish = Change;

    fn build(&self, wish: &Change, _: &Around) -> Result<Bytes, Invalid> {
        let body = postcard::to_allocvec(wish).map_err(|error| Invalid(error.to_string()))?;
        Ok(body.into())
    }

    fn revalidate(&self, wish: &Change, around: &Around) -> Standing {
        if self.is_satisfied(wish, around) {
            return Standing::Satisfied;
        }
        // The author of a rotation is unknown here. `apply` checks whether the author may rotate its key.
        if matches!(wish, Change::Rotate { .. }) {
            return Standing::Wanted;
        }
        let nobody = PublicKey::from_bytes([0; 32]);
        match self.clone().change(&nobody, wish.clone(), around) {
            Ok(_) => Standing::Wanted,
            Err(invalid) => Standing::Invalid(invalid),
        }
    }

    fn is_shareable(&self, _: &Change) -> bool {
        true
    }

    fn successor(&self, wish: &Change) -> Option<PublicKey> {
        match wish {
            Change::Rotate { to } => Some(*to),
            _ => None,
        }
    }

    fn apply(&mut self, author: &PublicKey, body: &[u8], around: &Around) -> Result<Effect, Invalid> {
        // A member that was removed and added again is another member: its earlier operations are never applied.
        if self.members.get(author).is_none_or(|member| member.since > around.born) {
            return Err(Invalid::because("its author is not a member, or was none when it was wanted"));
        }
        let change = postcard::from_bytes(body).map_err(|_| Invalid::because("it cannot be read"))?;
        self.change(author, change, around)
    }

    fn may_propose(&self, key: &PublicKey) -> bool {
        self.members.contains_key(key)
    }

    fn acceptors(&self) -> &BTreeMap<NodeId, Acceptor> {
        &self.acceptors
    }

    fn compaction(&self, since: Slot) -> Option<Change> {
        Some(Change::Compact { since })
    }

    fn snapshot(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    fn restore(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok().filter(|members: &Self| !members.acceptors.is_empty())
    }
}

fn check_text(text: &str, what: &str) -> Result<(), Invalid> {
    match text.len() {
        0 => Err(Invalid(format!("the {what} is empty"))),
        1..=MAX_TEXT if !text.chars().any(char::is_control) => Ok(()),
        1..=MAX_TEXT => Err(Invalid(format!("the {what} has control characters in it"))),
        _ => Err(Invalid(format!("the {what} is longer than {MAX_TEXT} bytes"))),
    }
}
