//! What nodes send each other: packets, many in one message; what is too long for one goes in parts.

use bytes::Bytes;
use holdoff_net::PublicKey;
use holdoff_paxos::Slot;
use serde::{Deserialize, Serialize};

use super::identity::LedgerId;
use super::roster::Member;
use super::store::About;
use crate::entry::Hash;
use crate::ledger::How;

/// What nodes are called on links to each other.
pub(super) const ROLE: &str = "ledger node 1";
/// No message is longer: some packets, or one part.
pub(super) const MESSAGE_BYTES: usize = 512 * 1024;
/// A letter that is longer goes in parts of this length.
pub(super) const PART_BYTES: usize = 256 * 1024;
/// No letter is longer, put together.
pub(super) const LETTER_BYTES: usize = 256 * 1024 * 1024;

/// Something that one node says to another about one ledger.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Packet {
    pub(super) ledger: LedgerId,
    /// The life of the sender's storage: with its key, which the link proves, this is who it is.
    pub(super) life: u64,
    pub(super) said: Said,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Said {
    /// It is there, and has come so far.
    Here(Head),
    /// The core's.
    Letter(Bytes),
    /// Some of a letter, in order; the last one or not.
    Part(bool, Bytes),
    /// The hint's.
    Gossip(Bytes),
}

/// How far somebody has come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Head {
    /// The last entry that it has applied.
    pub index: Slot,
    /// The hash of that, and of all before it.
    pub hash: Hash,
}

impl Packet {
    /// How much it takes of a message, or a little less.
    pub(super) fn bytes(&self) -> usize {
        const AROUND: usize = 64;
        match &self.said {
            Said::Here(_) => AROUND,
            Said::Letter(bytes) | Said::Part(_, bytes) | Said::Gossip(bytes) => AROUND + bytes.len(),
        }
    }

    /// As packets that fit into messages.
    pub(super) fn split(self) -> Vec<Self> {
        let Self { ledger, life, said } = self;
        match said {
            Said::Letter(bytes) if bytes.len() > PART_BYTES => {
                let count = bytes.len().div_ceil(PART_BYTES);
                let part = |at: usize| {
                    let end = ((at + 1) * PART_BYTES).min(bytes.len());
                    Said::Part(at + 1 == count, bytes.slice(at * PART_BYTES..end))
                };
                (0..count).map(|at| Self { ledger, life, said: part(at) }).collect()
            }
            said => vec![Self { ledger, life, said }],
        }
    }
}

/// Parts of one letter, as they come.
#[derive(Default, Debug)]
pub(super) struct Parts(Vec<u8>);

impl Parts {
    /// The whole, when its last part has come. What is too long is dropped as a whole.
    pub(super) fn add(&mut self, is_last: bool, part: &[u8]) -> Option<Bytes> {
        if self.0.len().saturating_add(part.len()) > LETTER_BYTES {
            self.0 = Vec::new();
            return None;
        }
        self.0.extend(part);
        is_last.then(|| std::mem::take(&mut self.0).into())
    }
}

/// What a node asks another, and waits for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Which ledger has this name there?
    Who(String),
    /// A read, for whoever leads.
    Read { ledger: LedgerId, goal: Bytes, how: How },
    /// Something to be done by whoever leads.
    Lead { ledger: LedgerId, wanted: Wanted },
}

/// What only a leader can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Wanted {
    /// Let this one lead; or, if none is named, whoever has come furthest.
    HandOver(Option<PublicKey>),
}

/// The answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// That one, and its members as far as they are known there.
    Ledger { about: About, life: u64, members: Vec<(PublicKey, Member)> },
    /// What the read found, and up to where it knows.
    Read(Slot, Bytes),
    /// Whoever was asked does not lead: this one may.
    Elsewhere(Option<PublicKey>),
    /// It is done, by or for this one.
    Done(PublicKey),
    /// It is not, for this reason.
    NotDone(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(length: usize) -> Packet {
        let bytes = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect::<Vec<_>>();
        Packet { ledger: LedgerId([1; 16]), life: 2, said: Said::Letter(bytes.into()) }
    }

    #[test]
    fn long_letters_come_in_parts_and_are_whole_again() {
        for length in [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 3 * PART_BYTES + 7] {
            let whole = letter(length);
            let Said::Letter(expected) = whole.said.clone() else { unreachable!() };
            let (mut parts, mut found) = (Parts::default(), None);
            for packet in whole.split() {
                assert!(packet.bytes() < MESSAGE_BYTES);
                assert!(found.is_none());
                found = match packet.said {
                    Said::Letter(bytes) => Some(bytes),
                    Said::Part(is_last, bytes) => parts.add(is_last, &bytes),
                    other => unreachable!("{other:?}"),
                };
            }
            assert_eq!(found, Some(expected), "{length}");
        }
    }

    #[test]
    fn what_is_endless_is_dropped() {
        let (mut parts, part) = (Parts::default(), vec![0; PART_BYTES]);
        let most = LETTER_BYTES / PART_BYTES;
        for _ in 0..=most {
            assert_eq!(parts.add(false, &part), None);
        }
        assert!(parts.0.is_empty());
    }
}
