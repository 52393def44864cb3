//! The same bytes for the same rows, and never the same for others.
//!
//! Hashes and snapshots are made of these bytes, so they are written down here rather than left to a library's version.
//! Whatever has a length says it first: no two rows run into each other.

/// What stands in rows, as bytes.
pub trait Coded: Sized {
    /// Writes it to the end.
    fn encode(&self, into: &mut Vec<u8>);

    /// Takes it off the front; none if what is there was not written by [`Coded::encode`].
    fn decode(from: &mut &[u8]) -> Option<Self>;
}

/// What has no value but that it is there.
impl Coded for () {
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
