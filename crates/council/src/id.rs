//! The ids of councils, operations and nodes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The id of a council: a hash of its [`Founding`](crate::Founding).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CouncilId(pub [u8; 16]);

/// The short id of a council, for display. It does not reveal the council's id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortId([u8; 6]);

impl CouncilId {
    /// Returns the short id of the council.
    pub fn short_id(&self) -> ShortId {
        let Digest(digest) = Digest::of(&[b"holdoff council mark", &self.0]);
        let mut short_id = [0; 6];
        for (to, from) in short_id.iter_mut().zip(digest) {
            *to = from;
        }
        ShortId(short_id)
    }
}

/// The permanent id of an operation. No matter how often the operation is sent, it is applied at most once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OperationId(pub [u8; 16]);

/// A BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Hashes these parts, each with its length, so that no two different lists of parts have the same input.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }
}

/// Implements the text form of ids: lower-case hexadecimal digits.
macro_rules! in_hex {
    ($($id:ident),*) => {$(
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl std::str::FromStr for $id {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                read_hex(text).map(Self)
            }
        }
    )*};
}
in_hex!(CouncilId, OperationId, Digest, ShortId);

/// The error for a text that is not an id.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid id: an id has {expected} hexadecimal digits")]
pub struct BadId {
    expected: usize,
}

fn read_hex<const N: usize>(text: &str) -> Result<[u8; N], BadId> {
    let bad = BadId { expected: 2 * N };
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return Err(bad);
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| bad.clone())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| bad.clone())?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_id_parses_to_the_same_id() {
        let id = CouncilId(*b"0123456789abcdef");
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in ["", "00", "zz23456789abcdef0123456789abcdef", "+123456789abcdef0123456789abcdeé"] {
            assert!(wrong.parse::<CouncilId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_short_id_distinguishes_councils_and_does_not_reveal_their_ids() {
        let [one, other] = [CouncilId([1; 16]), CouncilId([2; 16])];
        assert_eq!(one.short_id(), one.short_id());
        assert_ne!(one.short_id(), other.short_id());
        let short_id = one.short_id().to_string();
        assert_eq!((short_id.len(), short_id.parse()), (12, Ok(one.short_id())));
        assert!(!one.to_string().contains(&short_id));
    }
}
