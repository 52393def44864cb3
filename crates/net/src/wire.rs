//! The wire format: frames, each a length and a postcard-encoded body; and the encoding of typed values.
//!
//! A frame is a length of four bytes, most significant first, and that many bytes of [`Frame`]. The order of the
//! variants and of their fields is the protocol: new ones go to the end, under a new version.

#[cfg(test)]
mod fuzz;

use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::role::RoleOffer;
use crate::{CloseReason, Error};

/// The protocol version. There is no other yet.
pub(crate) const VERSION: u16 = 1;

/// The size of the length before a frame.
pub(crate) const LENGTH_BYTES: usize = 4;

/// The most bytes that a frame adds to its payload.
pub(crate) const OVERHEAD: usize = 24;

/// The size limit of a hello, a welcome or a refusal, independent of the limit for later frames.
pub(crate) const MAX_HANDSHAKE_FRAME: usize = 512;

/// The size limit of a handler error's message; a longer message is truncated.
pub(crate) const MAX_ERROR_MESSAGE: usize = 1024;

/// The size of one read, and the most memory allocated ahead of received bytes: an announced length is untrusted.
const STEP: usize = 16 * 1024;

/// One frame of the protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Frame<'a> {
    /// The first frame of the client: its versions, its role and its limits.
    Hello {
        oldest: u16,
        newest: u16,
        #[serde(borrow)]
        role: RoleOffer<'a>,
        terms: AnnouncedLimits,
    },
    /// The first frame of the server, which proves that the server accepts the client, and names the versions of the protocol
    /// and of the role.
    Welcome { version: u16, role_version: u16, terms: AnnouncedLimits },
    /// The closing frame: the server refuses or disconnects the client, or either side leaves.
    Close { reason: CloseReason },
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
    Error { id: u64, is_transient: bool, message: &'a str },
    /// A message of the client that expects no reply.
    Message {
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
    KeepAlive,
}

/// The limits that one side announces to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AnnouncedLimits {
    /// The longest frame that the side reads.
    pub(crate) max_frame: u32,
    /// The idle timeout of the side, in milliseconds.
    pub(crate) idle_ms: u32,
}

impl AnnouncedLimits {
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
    pub(crate) fn keep_alive_interval(self) -> Duration {
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
    pub(crate) fn slice_of(self, body: &Bytes) -> Bytes {
        const SMALL: usize = 1024;
        if self.0.len() <= SMALL { Bytes::copy_from_slice(self.0) } else { body.slice_ref(self.0) }
    }
}

impl<'a> Frame<'a> {
    /// Decodes a frame. The bytes must hold nothing else.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let (frame, rest) = postcard::take_from_bytes(body).map_err(|_| Malformed::Invalid)?;
        if rest.is_empty() { Ok(frame) } else { Err(Malformed::Invalid) }
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
            | Self::Message { payload }
            | Self::Push { payload, .. } => payload.0.len(),
            Self::Error { message, .. } => message.len(),
            Self::Hello { role, .. } => role.name.len(),
            Self::Welcome { .. } | Self::Close { .. } | Self::KeepAlive => 0,
        }
    }
}

/// The protocol violation of the other side. Only that connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Malformed {
    /// The announced length of a frame exceeds the limit.
    #[error("the peer announced a frame of {size} bytes, which exceeds the limit of {limit} bytes")]
    TooLarge { size: usize, limit: usize },
    /// The bytes are not a frame of this protocol.
    #[error("the peer sent bytes that are not a frame")]
    Invalid,
    /// The stream ended within a frame.
    #[error("the connection ended within a frame")]
    Truncated,
    /// The frame is not allowed in this state.
    #[error("the peer sent a frame that is not allowed in this state")]
    Unexpected,
}

impl Malformed {
    /// Returns the label value used in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::Invalid => "invalid",
            Self::Truncated => "truncated",
            Self::Unexpected => "unexpected",
        }
    }
}

/// The received bytes that do not belong to a returned frame yet.
#[derive(Debug)]
pub(crate) struct Decoder {
    buffer: BytesMut,
    limit: usize,
}

/// The reason why there is no next frame.
#[derive(Debug)]
pub(crate) enum NoFrame {
    /// The other side ended the stream after a complete frame.
    End,
    /// The other side violated the protocol.
    Malformed(Malformed),
    /// The stream failed.
    Failed(io::Error),
}

impl Decoder {
    /// Creates a decoder for frames of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), limit }
    }

    /// Sets the limit for all further frames.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Waits for the next complete frame.
    ///
    /// Cancel-safe: if the future is dropped, the bytes received so far are kept.
    pub(crate) async fn next(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<Bytes, NoFrame> {
        loop {
            if let Some(body) = self.take().map_err(NoFrame::Malformed)? {
                return Ok(body);
            }
            self.buffer.reserve(STEP);
            match stream.read_buf(&mut self.buffer).await.map_err(NoFrame::Failed)? {
                0 if self.buffer.is_empty() => return Err(NoFrame::End),
                0 => return Err(NoFrame::Malformed(Malformed::Truncated)),
                _ => {}
            }
        }
    }

    /// Returns the next frame if it is complete.
    pub(crate) fn take(&mut self) -> Result<Option<Bytes>, Malformed> {
        let Some(length) = self.buffer.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let size = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if size > self.limit {
            return Err(Malformed::TooLarge { size, limit: self.limit });
        }
        if self.buffer.len() - LENGTH_BYTES < size {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_BYTES);
        Ok(Some(self.buffer.split_to(size).freeze()))
    }

    #[cfg(test)]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.buffer.len()
    }
}

/// Encodes a value.
pub fn encode(value: &impl Serialize) -> Result<Bytes, Error> {
    postcard::to_stdvec(value).map(Bytes::from).map_err(Error::Encode)
}

/// Decodes a value. The bytes must hold nothing else.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(Error::Decode(format!("{} bytes too many", rest.len()).into())),
        Err(error) => Err(Error::Decode(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are the protocol: a change requires a new version.
    #[test]
    fn the_bytes_of_version_1() {
        let terms = AnnouncedLimits { max_frame: 1 << 20, idle_ms: 30_000 };
        let of = |frame: Frame<'_>| frame.to_bytes().to_vec();
        let hello = Frame::Hello {
            oldest: 1,
            newest: 1,
            role: RoleOffer { name: "device", oldest: 1, newest: 2 },
            terms,
        };
        assert_eq!(of(hello), b"\0\0\0\x12\0\x01\x01\x06device\x01\x02\x80\x80\x40\xb0\xea\x01");
        let welcome = Frame::Welcome { version: 1, role_version: 2, terms };
        assert_eq!(of(welcome), b"\0\0\0\x09\x01\x01\x02\x80\x80\x40\xb0\xea\x01");
        assert_eq!(of(Frame::Close { reason: CloseReason::NotAllowed }), b"\0\0\0\x02\x02\0");
        assert_eq!(of(Frame::Call { id: 300, payload: Payload(b"hi") }), b"\0\0\0\x06\x03\xac\x02\x02hi");
        assert_eq!(of(Frame::Reply { id: 1, payload: Payload(b"") }), b"\0\0\0\x03\x04\x01\0");
        let error = Frame::Error { id: 1, is_transient: true, message: "no" };
        assert_eq!(of(error), b"\0\0\0\x06\x05\x01\x01\x02no");
        assert_eq!(of(Frame::Message { payload: Payload(b"x") }), b"\0\0\0\x03\x06\x01x");
        assert_eq!(of(Frame::Push { number: 0, payload: Payload(b"x") }), b"\0\0\0\x04\x07\0\x01x");
        assert_eq!(of(Frame::KeepAlive), b"\0\0\0\x01\x08");
    }

    #[test]
    fn a_frame_adds_at_most_the_overhead() {
        let payload = vec![7; 1 << 20];
        for payload in [&payload[..], &[]] {
            let frame = Frame::Push { number: u64::MAX, payload: Payload(payload) };
            assert!(frame.to_bytes().len() - LENGTH_BYTES - payload.len() <= OVERHEAD);
        }
        let name = "r".repeat(64);
        let role = RoleOffer { name: &name, oldest: u16::MAX, newest: u16::MAX };
        let terms = AnnouncedLimits { max_frame: u32::MAX, idle_ms: u32::MAX };
        let hello = Frame::Hello { oldest: u16::MAX, newest: u16::MAX, role, terms };
        assert!(hello.to_bytes().len() <= MAX_HANDSHAKE_FRAME);
    }

    #[test]
    fn trailing_bytes_in_a_frame_are_invalid() {
        assert_eq!(Frame::read(&[8]), Ok(Frame::KeepAlive));
        assert_eq!(Frame::read(&[8, 0]), Err(Malformed::Invalid));
        assert_eq!(Frame::read(&[]), Err(Malformed::Invalid));
        assert_eq!(Frame::read(&[9]), Err(Malformed::Invalid));
        assert_eq!(
            Frame::read(&[6, 5, 1]),
            Err(Malformed::Invalid),
            "the payload is shorter than its length"
        );
    }
}
