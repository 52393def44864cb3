//! The wire format: frames, each a length and a postcard-encoded body.
//!
//! A frame is a length of four bytes, most significant first, and that many bytes of [`Frame`]. The order of the
//! variants and of their fields is the protocol: new ones go to the end, under a new version.

pub(crate) mod decoder;
#[cfg(test)]
mod fuzz;

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize, Serializer};

pub(crate) use decoder::Decoder;

use crate::refusal::Refusal;

/// The protocol version. There is no other yet.
pub(crate) const VERSION: u16 = 1;

/// The size of the length before a frame.
pub(crate) const LENGTH_BYTES: usize = 4;

/// The most bytes that a frame adds to its payload.
pub(crate) const OVERHEAD: usize = 24;

/// The size limit of a hello, a welcome or a refusal, independent of the limit for later frames.
pub(crate) const MAX_GREETING: usize = 512;

/// The size limit of a role name.
pub(crate) const MAX_ROLE: usize = 64;

/// The size limit of a fault's message; a longer message is cut.
pub(crate) const MAX_FAULT: usize = 1024;

/// One frame of the protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Frame<'a> {
    /// The first frame of the client: its versions, its role and its limits.
    Hello { oldest: u16, newest: u16, role: &'a str, terms: Terms },
    /// The first frame of the server, which proves that the server accepts the client.
    Welcome { version: u16, terms: Terms },
    /// The closing frame: the server refuses or disconnects the client, or either side leaves.
    Bye { reason: Refusal },
    /// A request that expects a reply.
    Call {
        id: u64,
        #[serde(borrow)]
        payload: Payload<'a>,
    },
    /// The reply to the call with this id.
    Reply {
        id: u64,
        #[serde(borrow)]
        payload: Payload<'a>,
    },
    /// The failure of the call with this id.
    Fault { id: u64, is_transient: bool, message: &'a str },
    /// A message of the client that expects no reply.
    Tell {
        #[serde(borrow)]
        payload: Payload<'a>,
    },
    /// A message of the server that expects no reply. The numbers start at 0 and include dropped pushes.
    Push {
        number: u64,
        #[serde(borrow)]
        payload: Payload<'a>,
    },
    /// A keep-alive.
    Alive,
}

/// The limits that one side announces to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// The longest frame that the side reads.
    pub(crate) max_frame: u32,
    /// The idle timeout of the side, in milliseconds.
    pub(crate) idle_ms: u32,
}

impl Terms {
    pub(crate) fn new(max_frame: usize, idle: Duration) -> Self {
        Self {
            max_frame: u32::try_from(max_frame).unwrap_or(u32::MAX),
            idle_ms: u32::try_from(idle.as_millis()).unwrap_or(u32::MAX),
        }
    }

    /// Returns the longest payload that the side reads.
    pub(crate) fn max_payload(self) -> usize {
        usize::try_from(self.max_frame).unwrap_or(usize::MAX).saturating_sub(OVERHEAD)
    }

    /// Returns the interval of keep-alives to the side: a third of its idle timeout, but at least 10 ms, so that no
    /// peer can demand an excessive rate.
    pub(crate) fn sign_every(self) -> Duration {
        const SHORTEST: Duration = Duration::from_millis(10);
        (Duration::from_millis(self.idle_ms.into()) / 3).max(SHORTEST)
    }
}

/// The opaque bytes of an application.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Payload<'a>(#[serde(borrow)] pub(crate) &'a [u8]);

/// Serializes the payload as one byte string, not as a sequence of numbers.
impl Serialize for Payload<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl Payload<'_> {
    /// Returns the bytes as a separate buffer. A small part of a large buffer is copied, so that it does not keep the
    /// whole buffer alive.
    pub(crate) fn part_of(self, body: &Bytes) -> Bytes {
        const SMALL: usize = 1024;
        if self.0.len() <= SMALL { Bytes::copy_from_slice(self.0) } else { body.slice_ref(self.0) }
    }
}

impl<'a> Frame<'a> {
    /// Decodes a frame. The bytes must hold nothing else.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let (frame, rest) = postcard::take_from_bytes(body).map_err(|_| Malformed::Garbage)?;
        if rest.is_empty() { Ok(frame) } else { Err(Malformed::Garbage) }
    }

    /// Encodes the frame with its length before it.
    pub(crate) fn to_bytes(&self) -> Bytes {
        let mut room = Vec::with_capacity(LENGTH_BYTES + OVERHEAD + self.payload_len());
        room.extend([0; LENGTH_BYTES]);
        // Writing to memory cannot fail.
        let mut bytes = postcard::to_extend(self, room).unwrap_or_default();
        let length = u32::try_from(bytes.len().saturating_sub(LENGTH_BYTES)).unwrap_or(u32::MAX);
        for (to, from) in bytes.iter_mut().zip(length.to_be_bytes()) {
            *to = from;
        }
        bytes.into()
    }

    fn payload_len(&self) -> usize {
        match self {
            Self::Call { payload, .. }
            | Self::Reply { payload, .. }
            | Self::Tell { payload }
            | Self::Push { payload, .. } => payload.0.len(),
            Self::Fault { message, .. } => message.len(),
            Self::Hello { role, .. } => role.len(),
            Self::Welcome { .. } | Self::Bye { .. } | Self::Alive => 0,
        }
    }
}

/// The protocol violation of the other side. Only that connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Malformed {
    /// The announced length of a frame exceeds the limit.
    #[error("a frame of {size} bytes was announced, and at most {limit} are read")]
    TooLarge { size: usize, limit: usize },
    /// The bytes are not a frame of this protocol.
    #[error("something came that is no frame")]
    Garbage,
    /// The stream ended within a frame.
    #[error("the connection ended within a frame")]
    Truncated,
    /// The frame is not allowed in this state.
    #[error("a frame came out of turn")]
    OutOfTurn,
}

impl Malformed {
    /// Returns the label value used in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::Garbage => "garbage",
            Self::Truncated => "truncated",
            Self::OutOfTurn => "out_of_turn",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are the protocol: a change requires a new version.
    #[test]
    fn the_bytes_of_version_1() {
        let terms = Terms { max_frame: 1 << 20, idle_ms: 30_000 };
        let of = |frame: Frame<'_>| frame.to_bytes().to_vec();
        let hello = Frame::Hello { oldest: 1, newest: 1, role: "device", terms };
        assert_eq!(of(hello), b"\0\0\0\x10\0\x01\x01\x06device\x80\x80\x40\xb0\xea\x01");
        assert_eq!(of(Frame::Welcome { version: 1, terms }), b"\0\0\0\x08\x01\x01\x80\x80\x40\xb0\xea\x01");
        assert_eq!(of(Frame::Bye { reason: Refusal::NotAllowed }), b"\0\0\0\x02\x02\0");
        assert_eq!(of(Frame::Call { id: 300, payload: Payload(b"hi") }), b"\0\0\0\x06\x03\xac\x02\x02hi");
        assert_eq!(of(Frame::Reply { id: 1, payload: Payload(b"") }), b"\0\0\0\x03\x04\x01\0");
        let fault = Frame::Fault { id: 1, is_transient: true, message: "no" };
        assert_eq!(of(fault), b"\0\0\0\x06\x05\x01\x01\x02no");
        assert_eq!(of(Frame::Tell { payload: Payload(b"x") }), b"\0\0\0\x03\x06\x01x");
        assert_eq!(of(Frame::Push { number: 0, payload: Payload(b"x") }), b"\0\0\0\x04\x07\0\x01x");
        assert_eq!(of(Frame::Alive), b"\0\0\0\x01\x08");
    }

    #[test]
    fn the_overhead_is_never_more_than_is_said() {
        let payload = vec![7; 1 << 20];
        for payload in [&payload[..], &[]] {
            let frame = Frame::Push { number: u64::MAX, payload: Payload(payload) };
            assert!(frame.to_bytes().len() - LENGTH_BYTES - payload.len() <= OVERHEAD);
        }
        let role = "r".repeat(MAX_ROLE);
        let terms = Terms { max_frame: u32::MAX, idle_ms: u32::MAX };
        let hello = Frame::Hello { oldest: u16::MAX, newest: u16::MAX, role: &role, terms };
        assert!(hello.to_bytes().len() <= MAX_GREETING);
    }

    #[test]
    fn what_follows_a_frame_inside_its_length_is_garbage() {
        assert_eq!(Frame::read(&[8]), Ok(Frame::Alive));
        assert_eq!(Frame::read(&[8, 0]), Err(Malformed::Garbage));
        assert_eq!(Frame::read(&[]), Err(Malformed::Garbage));
        assert_eq!(Frame::read(&[9]), Err(Malformed::Garbage));
        assert_eq!(Frame::read(&[6, 5, 1]), Err(Malformed::Garbage), "a payload shorter than it says");
    }
}
