//! The keys of locks.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use holdoff_policy::is_unprintable;
use sha2::{Digest as _, Sha256};

/// The maximum length of a key in bytes.
const MAX_KEY_BYTES: usize = 64 * 1024;
/// The maximum length of a namespace in bytes.
const MAX_NAMESPACE_BYTES: usize = 200;
/// The maximum length of the readable form of a key.
const MAX_READABLE_BYTES: usize = 200;

/// The key of a lock: any bytes, in a namespace.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LockKey(Arc<Parts>);

#[derive(PartialEq, Eq, Hash, Debug)]
struct Parts {
    namespace: String,
    readable: String,
    digest: [u8; 32],
}

/// An invalid key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKey {
    /// The key is empty.
    #[error("the key is empty: pass the name of the resource to lock")]
    Empty,
    /// The key is too long.
    #[error("the key has {0} bytes, and the limit is {MAX_KEY_BYTES}: use a digest of it as the key")]
    TooLong(usize),
    /// The namespace is empty or too long.
    #[error("the namespace has {0} bytes, and must have 1 to {MAX_NAMESPACE_BYTES} bytes")]
    Namespace(usize),
    /// The namespace contains a control or bidi character.
    #[error("the namespace {0:?} contains {1:?}, and must not contain control or bidi characters")]
    Unprintable(String, char),
}

impl LockKey {
    /// Returns the key of these bytes.
    pub fn new(namespace: &str, bytes: impl AsRef<[u8]>) -> Result<Self, InvalidKey> {
        let bytes = bytes.as_ref();
        if let Some(character) = namespace.chars().find(|character| is_unprintable(*character)) {
            return Err(InvalidKey::Unprintable(namespace.to_owned(), character));
        }
        match (namespace.len(), bytes.len()) {
            (length, _) if length == 0 || length > MAX_NAMESPACE_BYTES => Err(InvalidKey::Namespace(length)),
            (_, 0) => Err(InvalidKey::Empty),
            (_, length) if length > MAX_KEY_BYTES => Err(InvalidKey::TooLong(length)),
            _ => Ok(Self(Arc::new(Parts {
                namespace: namespace.to_owned(),
                readable: readable(bytes),
                digest: digest(namespace, bytes),
            }))),
        }
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// Returns the key for display: truncated, with unprintable characters escaped.
    pub fn readable(&self) -> &str {
        &self.0.readable
    }

    /// Returns the SHA-256 of the namespace and the bytes, which identifies the lock in a store.
    pub fn digest(&self) -> &[u8; 32] {
        &self.0.digest
    }

    /// Returns the digest in hexadecimal digits.
    pub(crate) fn hex(&self) -> String {
        to_hex(self.digest())
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.readable())
    }
}

/// Returns bytes in hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut digits, byte| {
        // Writing to a string cannot fail.
        _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// Returns the digest with these hexadecimal digits.
#[cfg(any(feature = "kubernetes", feature = "ledger", feature = "postgres"))]
pub(crate) fn digest_from_hex(digits: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if digits.len() != 2 * digest.len() {
        return None;
    }
    for (index, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(digest)
}

/// Hashes the namespace's length, the namespace and the bytes. The length keeps different pairs from colliding.
fn digest(namespace: &str, bytes: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update((namespace.len() as u64).to_be_bytes());
    hash.update(namespace);
    hash.update(bytes);
    hash.finalize().into()
}

fn readable(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if is_unprintable(letter) {
                shown.extend(letter.escape_default());
            } else {
                shown.push(letter);
            }
            if shown.len() >= MAX_READABLE_BYTES {
                shown.push('…');
                return shown;
            }
        }
        for byte in chunk.invalid() {
            _ = write!(shown, "\\x{byte:02x}");
        }
        if shown.len() >= MAX_READABLE_BYTES {
            shown.push('…');
            return shown;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_any_nonempty_sequence_of_bytes() {
        assert_eq!(LockKey::new("default", ""), Err(InvalidKey::Empty));
        assert_eq!(LockKey::new("", "a"), Err(InvalidKey::Namespace(0)));
        assert!(LockKey::new("default", vec![0_u8; 10_000]).is_ok());
        assert!(LockKey::new("default", vec![0_u8; MAX_KEY_BYTES + 1]).is_err());
        let key = LockKey::new("default", [b'a', 0, 0xff, b'\n']).unwrap();
        assert_eq!(key.readable(), "a\\u{0}\\xff\\n");
        assert_eq!(LockKey::new("a", "a\u{202e}b").unwrap().readable(), "a\\u{202e}b");
        for namespace in ["a\n", "\u{1b}[2J", "a\u{202e}b"] {
            assert!(
                matches!(LockKey::new(namespace, "a"), Err(InvalidKey::Unprintable(..))),
                "{namespace:?}"
            );
        }
        let long = LockKey::new("default", [0xff; 10_000]).unwrap();
        assert!(long.readable().len() < MAX_READABLE_BYTES + 20, "{}", long.readable().len());
    }

    #[test]
    fn different_pairs_of_namespace_and_key_have_different_digests() {
        let [one, other] =
            [("ab", "c"), ("a", "bc")].map(|(namespace, key)| LockKey::new(namespace, key).unwrap());
        assert_ne!(one.digest(), other.digest());
    }
}
