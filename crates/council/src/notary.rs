//! A verifier with a cache: a signature is needed in many places and checked once.
//!
//! The check of a signature takes longer than everything else in a step together, and every acceptor reports the
//! same value. So the cache keeps the last valid signatures, and the signatures that this process has made. It
//! keeps no invalid signatures: each unsigned message is checked again, and only valid signatures can evict entries
//! from the cache.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use holdoff_net::{Key, PublicKey, Signature};

use crate::{Digest, Ed25519, Signer, Verifier};

/// The maximum number of cached signatures.
const KNOWN: usize = 1024;

/// Checks signatures and caches the last valid ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notary(Arc<Mutex<Known>>);

/// A signer that adds its signatures to the cache.
pub(crate) struct Pen {
    key: Key,
    notary: Notary,
}

#[derive(Debug, Default)]
struct Known {
    genuine: HashSet<Digest>,
    in_order: VecDeque<Digest>,
}

impl Known {
    fn note(&mut self, what: Digest) {
        if !self.genuine.insert(what) {
            return;
        }
        self.in_order.push_back(what);
        if self.in_order.len() > KNOWN {
            self.in_order.pop_front().map(|oldest| self.genuine.remove(&oldest));
        }
    }
}

impl Notary {
    /// Creates a signer with this key. The cache knows its signatures as valid.
    pub(crate) fn pen(&self, key: Key) -> Pen {
        Pen { key, notary: self.clone() }
    }

    fn known<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the cache key of a signature. It covers all parts, because the same signature under another message is
/// not valid.
fn name(by: &PublicKey, context: &[u8], message: &[u8], signature: &Signature) -> Digest {
    Digest::of(&[b"holdoff signature", by.as_bytes(), context, message, &signature.to_bytes()])
}

impl Verifier for Notary {
    fn is_signed(&self, by: &PublicKey, context: &[u8], message: &[u8], signature: &Signature) -> bool {
        let name = name(by, context, message, signature);
        if self.known(|known| known.genuine.contains(&name)) {
            return true;
        }
        let is_signed = Ed25519.is_signed(by, context, message, signature);
        if is_signed {
            self.known(|known| known.note(name));
        }
        is_signed
    }
}

impl Signer for Pen {
    fn public(&self) -> PublicKey {
        self.key.public()
    }

    fn sign(&self, context: &[u8], message: &[u8]) -> Signature {
        let signature = self.key.sign(context, message);
        self.notary.known(|known| known.note(name(&self.key.public(), context, message, &signature)));
        signature
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::CONTEXT;

    fn key() -> Key {
        Key::generate().unwrap()
    }

    #[test]
    fn what_is_genuine_stays_so_and_what_is_not_never_becomes_it() {
        let (notary, key, other) = (Notary::default(), key(), key());
        let signature = key.sign(CONTEXT, b"yes");
        for _ in 0..2 {
            assert!(notary.is_signed(&key.public(), CONTEXT, b"yes", &signature));
            assert!(!notary.is_signed(&key.public(), CONTEXT, b"no", &signature));
            assert!(!notary.is_signed(&key.public(), b"another", b"yes", &signature));
            assert!(!notary.is_signed(&other.public(), CONTEXT, b"yes", &signature));
            assert!(!notary.is_signed(&key.public(), CONTEXT, b"yes", &other.sign(CONTEXT, b"yes")));
        }
    }

    #[test]
    fn what_is_signed_here_is_what_others_find_genuine() {
        let (notary, key) = (Notary::default(), key());
        let signature = notary.pen(key.clone()).sign(CONTEXT, b"mine");
        assert!(notary.is_signed(&key.public(), CONTEXT, b"mine", &signature));
        assert!(Ed25519.is_signed(&key.public(), CONTEXT, b"mine", &signature));
        assert!(!notary.is_signed(&key.public(), CONTEXT, b"yours", &signature));
    }

    #[test]
    fn it_remembers_so_many_and_no_more() {
        let (notary, key) = (Notary::default(), key());
        let pen = notary.pen(key.clone());
        let first = pen.sign(CONTEXT, b"first");
        for number in 0..2 * u32::try_from(KNOWN).unwrap() {
            pen.sign(CONTEXT, &number.to_le_bytes());
        }
        notary.known(|known| assert_eq!((known.genuine.len(), known.in_order.len()), (KNOWN, KNOWN)));
        assert!(notary.is_signed(&key.public(), CONTEXT, b"first", &first), "it is checked again");
    }
}
