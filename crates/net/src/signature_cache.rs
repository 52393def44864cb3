//! A verifier with a cache: many components need the same signature, and one check is enough.
//!
//! The check of a signature takes longer than the rest of a protocol step, and several peers report the same signed
//! value. The cache keeps the last valid signatures, and the signatures that this process has made. It keeps no invalid
//! signatures: each unsigned message is checked again, and only valid signatures can evict entries from the cache.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Ed25519, PublicKey, SecretKey, Signature, Signer, Verifier};

/// The maximum number of cached signatures.
const CAPACITY: usize = 1024;

/// Verifies signatures and caches the last valid ones. Clones share the cache.
#[derive(Clone, Debug, Default)]
pub struct SignatureCache(Arc<Mutex<Entries>>);

/// A signer that adds its signatures to a cache.
#[derive(Clone, Debug)]
pub struct CachingSigner {
    key: SecretKey,
    cache: SignatureCache,
}

/// The hash of a signature with its key, context and message.
type EntryId = [u8; 32];

#[derive(Debug, Default)]
struct Entries {
    valid: HashSet<EntryId>,
    in_order: VecDeque<EntryId>,
}

impl Entries {
    fn insert(&mut self, entry: EntryId) {
        if !self.valid.insert(entry) {
            return;
        }
        self.in_order.push_back(entry);
        if self.in_order.len() > CAPACITY {
            self.in_order.pop_front().map(|oldest| self.valid.remove(&oldest));
        }
    }
}

impl SignatureCache {
    /// Creates a signer with this key, whose signatures the cache knows as valid.
    pub fn signer(&self, key: SecretKey) -> CachingSigner {
        CachingSigner { key, cache: self.clone() }
    }
}

/// Returns the id of a signature in the cache. It covers all parts, because the same signature under another message is
/// not valid. Each part is hashed with its length, so that no two different lists of parts have the same input.
fn entry_id(by: &PublicKey, context: &[u8], message: &[u8], signature: &Signature) -> EntryId {
    let mut hasher = blake3::Hasher::new();
    for part in [by.as_bytes(), context, message, &signature.to_bytes()] {
        hasher.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes()).update(part);
    }
    *hasher.finalize().as_bytes()
}

impl Verifier for SignatureCache {
    fn is_signed(&self, by: &PublicKey, context: &[u8], message: &[u8], signature: &Signature) -> bool {
        let entry = entry_id(by, context, message, signature);
        if self.0.lock().valid.contains(&entry) {
            return true;
        }
        let is_signed = Ed25519.is_signed(by, context, message, signature);
        if is_signed {
            self.0.lock().insert(entry);
        }
        is_signed
    }
}

impl Signer for CachingSigner {
    fn public(&self) -> PublicKey {
        self.key.public()
    }

    fn sign(&self, context: &[u8], message: &[u8]) -> Signature {
        let signature = self.key.sign(context, message);
        self.cache.0.lock().insert(entry_id(&self.key.public(), context, message, &signature));
        signature
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: &[u8] = b"tests";

    fn key() -> SecretKey {
        SecretKey::generate().unwrap()
    }

    #[test]
    fn the_cache_accepts_valid_signatures_only() {
        let (cache, key, other) = (SignatureCache::default(), key(), key());
        let signature = key.sign(CONTEXT, b"yes");
        for _ in 0..2 {
            assert!(cache.is_signed(&key.public(), CONTEXT, b"yes", &signature));
            assert!(!cache.is_signed(&key.public(), CONTEXT, b"no", &signature));
            assert!(!cache.is_signed(&key.public(), b"another", b"yes", &signature));
            assert!(!cache.is_signed(&other.public(), CONTEXT, b"yes", &signature));
            assert!(!cache.is_signed(&key.public(), CONTEXT, b"yes", &other.sign(CONTEXT, b"yes")));
        }
    }

    #[test]
    fn a_caching_signer_makes_valid_signatures() {
        let (cache, key) = (SignatureCache::default(), key());
        let signature = cache.signer(key.clone()).sign(CONTEXT, b"mine");
        assert!(cache.is_signed(&key.public(), CONTEXT, b"mine", &signature));
        assert!(Ed25519.is_signed(&key.public(), CONTEXT, b"mine", &signature));
        assert!(!cache.is_signed(&key.public(), CONTEXT, b"yours", &signature));
    }

    #[test]
    fn the_cache_evicts_the_oldest_signature() {
        let (cache, key) = (SignatureCache::default(), key());
        let signer = cache.signer(key.clone());
        let first = signer.sign(CONTEXT, b"first");
        for number in 0..2 * u32::try_from(CAPACITY).unwrap() {
            signer.sign(CONTEXT, &number.to_le_bytes());
        }
        let sizes = {
            let entries = cache.0.lock();
            (entries.valid.len(), entries.in_order.len())
        };
        assert_eq!(sizes, (CAPACITY, CAPACITY));
        assert!(
            cache.is_signed(&key.public(), CONTEXT, b"first", &first),
            "an evicted signature is checked again"
        );
    }
}
