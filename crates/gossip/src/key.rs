//! Keys and signatures, as far as a pure core must know them.

use holdoff_net::{Key, PublicKey, Signature};
use serde::{Deserialize, Serialize};

/// What signatures of gossip are for: one made for something else is worth nothing here.
const CONTEXT: &[u8] = b"holdoff gossip";

/// Which nodes gossip together. It is signed with everything, so that nothing said in one group counts in another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Group(pub [u8; 16]);

/// Signs for one node.
///
/// A trait, for simulations sign a million times.
pub trait Signer {
    /// Whose signatures these are.
    fn public(&self) -> PublicKey;

    /// Signs.
    fn sign(&self, message: &[u8]) -> Signature;
}

/// Checks what others have signed.
pub trait Verifier {
    /// Whether it is this key's signature of this.
    fn is_signed(&self, by: &PublicKey, message: &[u8], signature: &Signature) -> bool;
}

impl Signer for Key {
    fn public(&self) -> PublicKey {
        Key::public(self)
    }

    fn sign(&self, message: &[u8]) -> Signature {
        Key::sign(self, CONTEXT, message)
    }
}

/// Checks signatures of [`Key`]s: strictly, by Ed25519.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ed25519;

impl Verifier for Ed25519 {
    fn is_signed(&self, by: &PublicKey, message: &[u8], signature: &Signature) -> bool {
        by.verify(CONTEXT, message, signature)
    }
}
