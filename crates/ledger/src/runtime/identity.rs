//! The ids of ledgers, and the signatures of nodes.

use std::fmt;
use std::str::FromStr;

use holdoff_net::{PublicKey, SecretKey, SignatureCache, Verifier};
use holdoff_paxos::{NodeId, Slot};
use serde::{Deserialize, Serialize};

use crate::certificate::{HeadSignature, Notary};
use crate::entry::Hash;

/// The context of signature shares: a signature made for another purpose is not valid as one.
const SIGNATURE_CONTEXT: &[u8] = b"holdoff ledger signature share";

/// The id of a ledger: a random number that is drawn when the ledger is created.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LedgerId(pub [u8; 16]);

/// Signs for one node of one ledger, and verifies the signatures of other nodes.
///
/// A signature contains the key and the incarnation that determine its signer's id, so that a verifier needs no list of
/// keys.
#[derive(Clone, Debug)]
pub(super) struct NodeNotary {
    ledger: LedgerId,
    key: SecretKey,
    incarnation: u64,
    verified: SignatureCache,
}

#[derive(Serialize, Deserialize)]
struct Signed {
    key: PublicKey,
    incarnation: u64,
    signature: holdoff_net::Signature,
}

impl NodeNotary {
    pub(super) fn new(ledger: LedgerId, key: SecretKey, incarnation: u64) -> Self {
        Self { ledger, key, incarnation, verified: SignatureCache::default() }
    }

    fn statement(&self, index: Slot, hash: Hash) -> Vec<u8> {
        let mut statement = self.ledger.0.to_vec();
        statement.extend(index.0.to_le_bytes());
        statement.extend(hash.as_bytes());
        statement
    }
}

impl Notary for NodeNotary {
    fn sign(&self, index: Slot, hash: Hash) -> HeadSignature {
        let signature = self.key.sign(SIGNATURE_CONTEXT, &self.statement(index, hash));
        let signed = Signed { key: self.key.public(), incarnation: self.incarnation, signature };
        HeadSignature(postcard::to_stdvec(&signed).unwrap_or_default())
    }

    fn is_signed(&self, by: NodeId, index: Slot, hash: Hash, signature: &HeadSignature) -> bool {
        let Ok((Signed { key, incarnation, signature }, [])) = postcard::take_from_bytes(&signature.0) else {
            return false;
        };
        NodeId::derive(key.as_bytes(), incarnation) == by
            && self.verified.is_signed(&key, SIGNATURE_CONTEXT, &self.statement(index, hash), &signature)
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

/// The error for a text that is not a ledger id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid ledger id: a ledger id has 32 hexadecimal digits")]
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
    fn a_signature_is_valid_for_its_signer_its_index_and_its_ledger_only() {
        let key = |byte| SecretKey::from_secret(&[byte; 32]);
        let (mine, theirs) =
            (NodeNotary::new(LedgerId([1; 16]), key(1), 7), NodeNotary::new(LedgerId([1; 16]), key(2), 7));
        let elsewhere = NodeNotary::new(LedgerId([2; 16]), key(1), 7);
        let (me, hash) = (NodeId::derive(key(1).public().as_bytes(), 7), Hash::default());
        let signature = mine.sign(Slot(3), hash);
        assert!(theirs.is_signed(me, Slot(3), hash, &signature));
        assert!(!theirs.is_signed(me, Slot(4), hash, &signature));
        assert!(!elsewhere.is_signed(me, Slot(3), hash, &signature));
        for other in
            [NodeId::derive(key(1).public().as_bytes(), 8), NodeId::derive(key(2).public().as_bytes(), 7)]
        {
            assert!(!theirs.is_signed(other, Slot(3), hash, &signature));
        }
        assert!(!theirs.is_signed(me, Slot(3), hash, &theirs.sign(Slot(3), hash)));
        assert!(!theirs.is_signed(me, Slot(3), hash, &HeadSignature(vec![1, 2, 3])));
    }

    #[test]
    fn a_formatted_id_parses_to_the_same_id() {
        let id = LedgerId(*b"0123456789abcdef");
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in ["", "00", "+1323334353637383961626364656667a", "zz"] {
            assert_eq!(wrong.parse::<LedgerId>(), Err(BadLedgerId), "{wrong}");
        }
    }
}
