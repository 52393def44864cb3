//! The keys of locks.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

/// The maximum length of a key in bytes.
const LONGEST: usize = 64 * 1024;
/// The maximum length of a namespace in bytes.
const LONGEST_NAMESPACE: usize = 200;
/// The maximum length of the readable form of a key.
const READABLE: usize = 200;

/// The key of a lock: any bytes, in a namespace.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Key(Arc<Parts>);

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
    #[error("the key is empty: name what is locked")]
    Empty,
    /// The key is too long.
    #[error("the key has {0} bytes, and may have {LONGEST}: lock a digest of it")]
    TooLong(usize),
    /// The namespace is empty or too long.
    #[error("the namespace has {0} bytes, and must have 1 to {LONGEST_NAMESPACE}")]
    Namespace(usize),
}

impl Key {
    /// Returns the key of these bytes.
    pub fn new(namespace: &str, bytes: impl AsRef<[u8]>) -> Result<Self, InvalidKey> {
        let bytes = bytes.as_ref();
        match (namespace.len(), bytes.len()) {
            (length, _) if length == 0 || length > LONGEST_NAMESPACE => Err(InvalidKey::Namespace(length)),
            (_, 0) => Err(InvalidKey::Empty),
            (_, length) if length > LONGEST => Err(InvalidKey::TooLong(length)),
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
        self.digest().iter().fold(String::with_capacity(64), |mut hex, byte| {
            _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.readable())
    }
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
            if letter.is_control() {
                shown.extend(letter.escape_default());
            } else {
                shown.push(letter);
            }
            if shown.len() >= READABLE {
                shown.push('…');
                return shown;
            }
        }
        for byte in chunk.invalid() {
            _ = write!(shown, "\\x{byte:02x}");
        }
        if shown.len() >= READABLE {
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
    fn keys_are_any_bytes_but_none() {
        assert_eq!(Key::new("default", ""), Err(InvalidKey::Empty));
        assert_eq!(Key::new("", "a"), Err(InvalidKey::Namespace(0)));
        assert!(Key::new("default", vec![0_u8; 10_000]).is_ok());
        assert!(Key::new("default", vec![0_u8; LONGEST + 1]).is_err());
        let key = Key::new("default", [b'a', 0, 0xff, b'\n']).unwrap();
        assert_eq!(key.readable(), "a\\u{0}\\xff\\n");
        let long = Key::new("default", [0xff; 10_000]).unwrap();
        assert!(long.readable().len() < READABLE + 20, "{}", long.readable().len());
    }

    #[test]
    fn a_namespace_does_not_run_into_its_key() {
        let [one, other] =
            [("ab", "c"), ("a", "bc")].map(|(namespace, key)| Key::new(namespace, key).unwrap());
        assert_ne!(one.digest(), other.digest());
    }
}
