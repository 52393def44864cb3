//! The built-in machine: a list of members, and of the acceptors that decide about it.

use std::collections::BTreeMap;

use bytes::Bytes;
use holdoff_paxos::{MAX_ACCEPTORS, NodeId, Slot};
use serde::{Deserialize, Serialize};

use super::{Acceptor, Around, Effect, Invalid, Machine, Standing};
use crate::PublicKey;

/// Who belongs to a council, and who decides for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Members {
    members: BTreeMap<PublicKey, Member>,
    acceptors: BTreeMap<NodeId, Acceptor>,
}

/// A member, as the others know it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// What its people call it.
    pub name: String,
    /// The slot it came in.
    pub since: Slot,
}

/// A change of the list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Change {
    /// Somebody becomes a member. The message for it stays with who adds it, until it is in.
    Add {
        /// Who.
        key: PublicKey,
        /// What its people call it.
        name: String,
    },
    /// Somebody is no member any more.
    Remove {
        /// Who.
        key: PublicKey,
    },
    /// The author goes by another key.
    Rotate {
        /// The new one.
        to: PublicKey,
    },
    /// Somebody decides from the next slot on.
    AddAcceptor(Acceptor),
    /// Somebody does not decide any more, from the next slot on.
    RemoveAcceptor(NodeId),
    /// A snapshot shall stand for everything so far.
    Compact {
        /// The last slot that was applied when this was wished for: any later snapshot will do.
        since: Slot,
    },
}

impl Change {
    /// The change that an operation's body holds.
    pub fn read(body: &[u8]) -> Option<Self> {
        postcard::from_bytes(body).ok()
    }
}

/// As many members as a council may have.
const MAX_MEMBERS: usize = 1000;
/// The longest name of a member, and address of an acceptor, in bytes.
const MAX_TEXT: usize = 200;

impl Members {
    /// A council of one, with its first acceptors.
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

    /// The members.
    pub fn members(&self) -> &BTreeMap<PublicKey, Member> {
        &self.members
    }

    /// Lets somebody be there from the beginning.
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

    /// Whether what a change wants is so already.
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
        // Whoever rotates is not known here; whether it may is found when the change is carried out.
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
        // Whoever was removed and added again is another member: what it wanted before never happens.
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
