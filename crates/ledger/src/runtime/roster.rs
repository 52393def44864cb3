//! Who belongs to a ledger, and who of them shall vote: a table in its own history.
//!
//! It says what is wanted. Whoever leads sees to it that those who vote are those who shall.

use std::collections::BTreeMap;

use holdoff_net::PublicKey;
use holdoff_paxos::NodeId;
use serde::{Deserialize, Serialize};

use super::identity::node_id;
use crate::machine::coded::{self, Coded};
use crate::machine::{Failed, Ran, Rules, Table, View};

/// A ledger has no more members.
pub const MAX_MEMBERS: usize = 128;
/// A member's name is no longer, nor its address.
pub const MAX_NAME_BYTES: usize = 64;

/// The members of a ledger, by their keys.
pub type Roster = Table<RosterRules>;

/// How members come and go.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RosterRules;

/// A member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// What people call it.
    pub name: String,
    /// Where it listens, as `host:port`.
    pub address: String,
    /// Whether it shall vote. Who does not, learns.
    pub votes: bool,
    /// The life of its storage, once it has shown itself.
    pub life: Option<u64>,
}

/// What can be done to the list of members.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Wish {
    /// This is a member. If it is one already, it moves there, is called so, and votes or not; its life stays.
    Admit(PublicKey, Member),
    /// A member has come, with this storage.
    Appear(PublicKey, u64),
    /// This is no member any more.
    Dismiss(PublicKey),
    /// A member listens there from now on; whatever else is said of it stays.
    Move(PublicKey, String),
}

impl Rules for RosterRules {
    const KIND: &'static str = "roster";
    type Key = PublicKey;
    type Value = Member;
    type Goal = Wish;
    type Answer = ();

    fn run(view: View<'_, PublicKey, Member>, wish: &Wish) -> Result<Ran<Self>, Failed> {
        let there = |key: &PublicKey| view.get(key).cloned().ok_or(Failed::NotThere(format!("member {key}")));
        let (key, after) = match wish {
            Wish::Admit(key, member) => {
                let before = view.get(key);
                member.check()?;
                if before.is_none()
                    && view.starting_at(&PublicKey::from_bytes([0; 32])).count() >= MAX_MEMBERS
                {
                    return Err(Failed::too_much("members", MAX_MEMBERS));
                }
                let life = member.life.or_else(|| before.and_then(|before| before.life));
                (key, Some(Member { life, ..member.clone() }))
            }
            Wish::Appear(key, life) => (key, Some(Member { life: Some(*life), ..there(key)? })),
            Wish::Dismiss(key) => {
                there(key)?;
                (key, None)
            }
            Wish::Move(key, address) => {
                let member = Member { address: address.clone(), ..there(key)? };
                member.check()?;
                (key, Some(member))
            }
        };
        Ok((BTreeMap::from([(*key, after)]), ()))
    }
}

impl Member {
    /// Its id, once it has shown itself.
    pub fn id(&self, key: &PublicKey) -> Option<NodeId> {
        self.life.map(|life| node_id(key, life))
    }

    fn check(&self) -> Result<(), Failed> {
        let is_long = |text: &String| text.len() > MAX_NAME_BYTES;
        if is_long(&self.name) || is_long(&self.address) {
            return Err(Failed::too_much("bytes of a name or an address", MAX_NAME_BYTES));
        }
        Ok(())
    }
}

impl Coded for PublicKey {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend(self.as_bytes());
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        coded::take(from).map(Self::from_bytes)
    }
}

impl Coded for Member {
    fn encode(&self, into: &mut Vec<u8>) {
        coded::put_text(&self.name, into);
        coded::put_text(&self.address, into);
        into.push(u8::from(self.votes));
        into.push(u8::from(self.life.is_some()));
        into.extend(self.life.unwrap_or_default().to_le_bytes());
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        let (name, address) = (coded::take_text(from)?, coded::take_text(from)?);
        let mut flag = || coded::take(from).and_then(|[byte]| (byte < 2).then_some(byte == 1));
        let (votes, is_known) = (flag()?, flag()?);
        let life = u64::from_le_bytes(coded::take(from)?);
        let life = if is_known { Some(life) } else { (life == 0).then_some(None)? };
        let member = Self { name, address, votes, life };
        member.check().ok().map(|()| member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn key(byte: u8) -> PublicKey {
        PublicKey::from_bytes([byte; 32])
    }

    fn member(name: &str, votes: bool) -> Member {
        Member { name: name.to_owned(), address: "127.0.0.1:1".to_owned(), votes, life: None }
    }

    fn run(roster: &mut Roster, wish: &Wish) -> Result<(), Failed> {
        let (diff, ()) = roster.execute(&<_>::default(), wish)?;
        roster.apply(&diff).unwrap();
        Ok(())
    }

    #[test]
    fn a_member_comes_moves_and_goes() {
        let mut roster = Roster::default();
        run(&mut roster, &Wish::Admit(key(1), member("a", true))).unwrap();
        run(&mut roster, &Wish::Appear(key(1), 7)).unwrap();
        run(&mut roster, &Wish::Admit(key(1), member("b", false))).unwrap();
        let now = roster.get(&key(1)).unwrap();
        assert_eq!((now.name.as_str(), now.votes, now.life), ("b", false, Some(7)));
        run(&mut roster, &Wish::Move(key(1), "127.0.0.1:2".to_owned())).unwrap();
        let moved = Member { address: "127.0.0.1:2".to_owned(), life: Some(7), ..member("b", false) };
        assert_eq!(roster.get(&key(1)), Some(&moved));
        assert_eq!(Roster::restore(&roster.snapshot()).unwrap(), roster);
        run(&mut roster, &Wish::Dismiss(key(1))).unwrap();
        assert!(roster.is_empty());
    }

    #[test]
    fn who_is_not_a_member_neither_comes_nor_moves_nor_goes() {
        let mut roster = Roster::default();
        let why = run(&mut roster, &Wish::Appear(key(2), 1)).unwrap_err();
        assert_eq!(why, run(&mut roster, &Wish::Move(key(2), String::new())).unwrap_err());
        assert_eq!(why, run(&mut roster, &Wish::Dismiss(key(2))).unwrap_err());
        assert!(why.to_string().contains(&key(2).to_string()), "{why}");
    }

    #[test]
    fn there_are_limits() {
        let mut roster = Roster::default();
        for byte in 0..MAX_MEMBERS {
            run(&mut roster, &Wish::Admit(key(u8::try_from(byte).unwrap()), member("x", false))).unwrap();
        }
        assert!(run(&mut roster, &Wish::Admit(key(255), member("x", false))).is_err());
        run(&mut roster, &Wish::Admit(key(0), member("y", false))).unwrap();
        assert!(run(&mut roster, &Wish::Admit(key(0), member(&"x".repeat(65), false))).is_err());
        assert!(run(&mut roster, &Wish::Move(key(0), "x".repeat(65))).is_err());
    }
}
