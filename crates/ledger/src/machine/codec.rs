//! An encoding in which equal rows have equal bytes and different rows have different bytes.
//!
//! Hashes and snapshots consist of these bytes. The encoding is therefore defined here and does not depend on the
//! version of a library. A length precedes every item of variable length, so that two rows cannot run into each other.

/// A type that rows consist of, with its encoding.
pub trait Codec: Sized {
    /// Appends the encoding to `into`.
    fn encode(&self, into: &mut Vec<u8>);

    /// Removes an item from the front of `from`. Returns `None` if the bytes were not written by [`Codec::encode`].
    fn decode(from: &mut &[u8]) -> Option<Self>;
}

/// The value of a row that consists of its key only.
impl Codec for () {
    fn encode(&self, _into: &mut Vec<u8>) {}

    fn decode(_from: &mut &[u8]) -> Option<Self> {
        Some(())
    }
}

pub(crate) fn put_length(length: usize, into: &mut Vec<u8>) {
    into.extend((length as u64).to_le_bytes());
}

pub(crate) fn put_text(text: &str, into: &mut Vec<u8>) {
    put_length(text.len(), into);
    into.extend(text.as_bytes());
}

pub(crate) fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*taken)
}

pub(crate) fn take_length(from: &mut &[u8]) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(take(from)?)).ok()
}

pub(crate) fn take_text(from: &mut &[u8]) -> Option<String> {
    let length = take_length(from)?;
    let (taken, rest) = from.split_at_checked(length)?;
    *from = rest;
    String::from_utf8(taken.to_vec()).ok()
}
