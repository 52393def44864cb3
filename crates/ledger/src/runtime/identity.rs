//! Who is who: ledgers, nodes, and what nodes sign.

use std::fmt;
use std::str::FromStr;

use holdoff_net::{Key, PublicKey};
use holdoff_paxos::{NodeId, Slot};
use serde::{Deserialize, Serialize};

use crate::certificate::{Notary, Signature};
use crate::entry::Hash;

const NODE: &str = "holdoff ledger v1: a key and the life of its storage";
/// What the signatures under histories are for.
const SEAL: &[u8] = b"holdoff ledger seal";

/// Which ledger. Drawn at random when it is founded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LedgerId(pub [u8; 16]);

/// A node: its key and the life of its storage, drawn anew when that is made.
///
/// Whoever lost its storage lost its promises with it: it comes back as somebody else.
pub fn node_id(key: &PublicKey, life: u64) -> NodeId {
    let mut hasher = blake3::Hasher::new_derive_key(NODE);
    let digest = *hasher.update(key.as_bytes()).update(&life.to_le_bytes()).finalize().as_bytes();
    let (short, _) = digest.split_first_chunk().unwrap_or((&[0; 16], &[]));
    NodeId(u128::from_be_bytes(*short))
}

/// Signs for one node of one ledger, and knows whether others did.
///
/// A signature brings the key and the life that make up its signer's id: whoever knows the id needs no list of keys.
#[derive(Clone, Debug)]
pub(super) struct Sealing {
    ledger: LedgerId,
    key: Key,
    life: u64,
}

#[derive(Serialize, Deserialize)]
struct Signed {
    key: PublicKey,
    life: u64,
    signature: holdoff_net::Signature,
}

impl Sealing {
    pub(super) fn new(ledger: LedgerId, key: Key, life: u64) -> Self {
        Self { ledger, key, life }
    }

    fn statement(&self, index: Slot, hash: Hash) -> Vec<u8> {
        let mut statement = self.ledger.0.to_vec();
        statement.extend(index.0.to_le_bytes());
        statement.extend(hash.as_bytes());
        statement
    }
}

impl Notary for Sealing {
    fn sign(&self, index: Slot, hash: Hash) -> Signature {
        let signature = self.key.sign(SEAL, &self.statement(index, hash));
        let signed = Signed { key: self.key.public(), life: self.life, signature };
        Signature(postcard::to_stdvec(&signed).unwrap_or_default())
    }

    fn is_signed(&self, by: NodeId, index: Slot, hash: Hash, signature: &Signature) -> bool {
        let Ok((Signed { key, life, signature }, [])) = postcard::take_from_bytes(&signature.0) else {
            return false;
        };
        node_id(&key, life) == by && key.verify(SEAL, &self.statement(index, hash), &signature)
    }
}

impl fmt::Display for LedgerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LedgerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is no id of a ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a ledger's id has 32 hexadecimal digits, and this is not one")]
pub struct BadLedgerId;

impl FromStr for LedgerId {
    type Err = BadLedgerId;

    fn from_str(text: &str) -> Result<Self, BadLedgerId> {
        let is_written_so = text.len() == 32 && !text.contains('+');
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_written_so);
        number.map(|number| Self(number.to_be_bytes())).ok_or(BadLedgerId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_good_for_its_signer_its_place_and_its_ledger_alone() {
        let key = |byte| Key::from_secret(&[byte; 32]);
        let (mine, theirs) =
            (Sealing::new(LedgerId([1; 16]), key(1), 7), Sealing::new(LedgerId([1; 16]), key(2), 7));
        let elsewhere = Sealing::new(LedgerId([2; 16]), key(1), 7);
        let (me, hash) = (node_id(&key(1).public(), 7), Hash::default());
        let signature = mine.sign(Slot(3), hash);
        assert!(theirs.is_signed(me, Slot(3), hash, &signature));
        assert!(!theirs.is_signed(me, Slot(4), hash, &signature));
        assert!(!elsewhere.is_signed(me, Slot(3), hash, &signature));
        for other in [node_id(&key(1).public(), 8), node_id(&key(2).public(), 7)] {
            assert!(!theirs.is_signed(other, Slot(3), hash, &signature));
        }
        assert!(!theirs.is_signed(me, Slot(3), hash, &theirs.sign(Slot(3), hash)));
        assert!(!theirs.is_signed(me, Slot(3), hash, &Signature(vec![1, 2, 3])));
    }

    #[test]
    fn ids_are_read_as_they_are_written() {
        let id = LedgerId(*b"0123456789abcdef");
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in ["", "00", "+1323334353637383961626364656667a", "zz"] {
            assert_eq!(wrong.parse::<LedgerId>(), Err(BadLedgerId), "{wrong}");
        }
    }
}
