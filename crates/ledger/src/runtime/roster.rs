//! The roster: the members of a ledger and their intended roles, as a table in the ledger's own history.
//!
//! The roster states the intended configuration. The leader changes the voters until they match it.

use std::collections::BTreeMap;

use holdoff_net::PublicKey;
use holdoff_paxos::{NodeId, Slot};
use holdoff_policy::is_unprintable;
use serde::{Deserialize, Serialize};

use crate::machine::codec::{self, Codec};
use crate::machine::{Execution, GoalError, Rules, Table, TableView};

/// The maximum number of members of a ledger.
pub const MAX_MEMBERS: usize = 128;
/// The maximum size of a member's name and of its address, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// The maximum size of the comment of a recovery, in bytes.
pub const MAX_COMMENT_BYTES: usize = 1024;

/// The members of a ledger, by their keys.
pub type Roster = Table<RosterRules>;

/// The rules by which membership changes modify the roster.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RosterRules;

/// A member of a ledger.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LedgerMember {
    /// The display name.
    pub name: String,
    /// The address at which it listens, as `host:port`.
    pub address: String,
    /// True if the member should vote. A member that does not vote is a learner.
    pub votes: bool,
    /// The incarnation of its storage; `None` until the member has connected.
    pub incarnation: Option<u64>,
}

/// A change of the roster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MembershipChange {
    /// Adds a member, or replaces its name, address and role. The incarnation of an existing member stays.
    Add(PublicKey, LedgerMember),
    /// Records the incarnation of a member's storage.
    Connect(PublicKey, u64),
    /// Removes a member.
    Remove(PublicKey),
    /// Replaces the address of a member.
    Move(PublicKey, String),
    /// Records that an operator has founded a new configuration from the log of one node up to an index, because a majority
    /// of the voters was lost for good. The lost voters become learners.
    Recover {
        /// The lost voters.
        lost: Vec<PublicKey>,
        /// The last index of the node's log. Later entries of the lost voters are not part of the history.
        through: Slot,
        /// The operator's reason.
        comment: String,
    },
}

impl Rules for RosterRules {
    const KIND: &'static str = "roster";
    type Key = PublicKey;
    type Value = LedgerMember;
    type Goal = MembershipChange;
    type Answer = ();

    fn run(
        view: TableView<'_, PublicKey, LedgerMember>,
        change: &MembershipChange,
    ) -> Result<Execution<Self>, GoalError> {
        let known =
            |key: &PublicKey| view.get(key).cloned().ok_or(GoalError::NotThere(format!("member {key}")));
        let (key, after) = match change {
            MembershipChange::Recover { lost, comment, .. } => {
                if comment.len() > MAX_COMMENT_BYTES {
                    return Err(GoalError::too_much("bytes of a comment", MAX_COMMENT_BYTES));
                }
                let demoted =
                    |key: &PublicKey| Ok((*key, Some(LedgerMember { votes: false, ..known(key)? })));
                return Ok((lost.iter().map(demoted).collect::<Result<_, _>>()?, ()));
            }
            MembershipChange::Add(key, member) => {
                let before = view.get(key);
                member.check()?;
                if before.is_none()
                    && view.starting_at(&PublicKey::from_bytes([0; 32])).count() >= MAX_MEMBERS
                {
                    return Err(GoalError::too_much("members", MAX_MEMBERS));
                }
                let incarnation = member.incarnation.or_else(|| before.and_then(|before| before.incarnation));
                (key, Some(LedgerMember { incarnation, ..member.clone() }))
            }
            MembershipChange::Connect(key, incarnation) => {
                (key, Some(LedgerMember { incarnation: Some(*incarnation), ..known(key)? }))
            }
            MembershipChange::Remove(key) => {
                known(key)?;
                (key, None)
            }
            MembershipChange::Move(key, address) => {
                let member = LedgerMember { address: address.clone(), ..known(key)? };
                member.check()?;
                (key, Some(member))
            }
        };
        Ok((BTreeMap::from([(*key, after)]), ()))
    }
}

/// Returns whether a text can be the address of a member: 1 to 64 bytes without whitespace.
pub(super) fn is_address(text: &str) -> bool {
    let is_blank = |character: char| character.is_whitespace() || is_unprintable(character);
    (1..=MAX_NAME_BYTES).contains(&text.len()) && !text.contains(is_blank)
}

impl LedgerMember {
    /// Returns the node id, or `None` until the member has connected.
    pub fn id(&self, key: &PublicKey) -> Option<NodeId> {
        self.incarnation.map(|incarnation| NodeId::derive(key.as_bytes(), incarnation))
    }

    fn check(&self) -> Result<(), GoalError> {
        let is_long = |text: &String| text.len() > MAX_NAME_BYTES;
        if is_long(&self.name) || is_long(&self.address) {
            return Err(GoalError::too_much("bytes of a name or an address", MAX_NAME_BYTES));
        }
        Ok(())
    }
}

impl Codec for PublicKey {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend(self.as_bytes());
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        codec::take(from).map(Self::from_bytes)
    }
}

impl Codec for LedgerMember {
    fn encode(&self, into: &mut Vec<u8>) {
        codec::put_text(&self.name, into);
        codec::put_text(&self.address, into);
        into.push(u8::from(self.votes));
        into.push(u8::from(self.incarnation.is_some()));
        into.extend(self.incarnation.unwrap_or_default().to_le_bytes());
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        let (name, address) = (codec::take_text(from)?, codec::take_text(from)?);
        let mut flag = || codec::take(from).and_then(|[byte]| (byte < 2).then_some(byte == 1));
        let (votes, is_known) = (flag()?, flag()?);
        let incarnation = u64::from_le_bytes(codec::take(from)?);
        let incarnation = if is_known { Some(incarnation) } else { (incarnation == 0).then_some(None)? };
        let member = Self { name, address, votes, incarnation };
        member.check().ok().map(|()| member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::StateMachine;

    fn key(byte: u8) -> PublicKey {
        PublicKey::from_bytes([byte; 32])
    }

    fn member(name: &str, votes: bool) -> LedgerMember {
        LedgerMember { name: name.to_owned(), address: "127.0.0.1:1".to_owned(), votes, incarnation: None }
    }

    fn run(roster: &mut Roster, change: &MembershipChange) -> Result<(), GoalError> {
        let (diff, ()) = roster.execute(&<_>::default(), change)?;
        roster.apply(&diff).unwrap();
        Ok(())
    }

    #[test]
    fn a_member_is_added_moved_and_removed() {
        let mut roster = Roster::default();
        run(&mut roster, &MembershipChange::Add(key(1), member("a", true))).unwrap();
        run(&mut roster, &MembershipChange::Connect(key(1), 7)).unwrap();
        run(&mut roster, &MembershipChange::Add(key(1), member("b", false))).unwrap();
        let now = roster.get(&key(1)).unwrap();
        assert_eq!((now.name.as_str(), now.votes, now.incarnation), ("b", false, Some(7)));
        run(&mut roster, &MembershipChange::Move(key(1), "127.0.0.1:2".to_owned())).unwrap();
        let moved =
            LedgerMember { address: "127.0.0.1:2".to_owned(), incarnation: Some(7), ..member("b", false) };
        assert_eq!(roster.get(&key(1)), Some(&moved));
        assert_eq!(Roster::restore(roster.chunks(1024)).unwrap(), roster);
        run(&mut roster, &MembershipChange::Remove(key(1))).unwrap();
        assert!(roster.is_empty());
    }

    #[test]
    fn changes_of_an_unknown_member_are_rejected() {
        let mut roster = Roster::default();
        let why = run(&mut roster, &MembershipChange::Connect(key(2), 1)).unwrap_err();
        assert_eq!(why, run(&mut roster, &MembershipChange::Move(key(2), String::new())).unwrap_err());
        assert_eq!(why, run(&mut roster, &MembershipChange::Remove(key(2))).unwrap_err());
        assert!(why.to_string().contains(&key(2).to_string()), "{why}");
    }

    #[test]
    fn members_names_and_addresses_are_limited() {
        let mut roster = Roster::default();
        for byte in 0..MAX_MEMBERS {
            run(&mut roster, &MembershipChange::Add(key(u8::try_from(byte).unwrap()), member("x", false)))
                .unwrap();
        }
        assert!(run(&mut roster, &MembershipChange::Add(key(255), member("x", false))).is_err());
        run(&mut roster, &MembershipChange::Add(key(0), member("y", false))).unwrap();
        assert!(run(&mut roster, &MembershipChange::Add(key(0), member(&"x".repeat(65), false))).is_err());
        assert!(run(&mut roster, &MembershipChange::Move(key(0), "x".repeat(65))).is_err());
    }
}
