//! Takes frames out of a stream of bytes.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{LENGTH_BYTES, Malformed};

/// How much is read at once, and how far memory runs ahead of what has come: a length is a claim, not a need.
const STEP: usize = 16 * 1024;

/// The bytes that have come and are not taken yet.
#[derive(Debug)]
pub(crate) struct Decoder {
    buffer: BytesMut,
    limit: usize,
}

/// Why there is no next frame.
#[derive(Debug)]
pub(crate) enum NoFrame {
    /// The other side has ended the stream, after a whole frame.
    End,
    /// It has sent something else.
    Malformed(Malformed),
    /// The stream has failed.
    Failed(io::Error),
}

impl Decoder {
    /// Reads frames of at most so many bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), limit }
    }

    /// From now on frames may be so long.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The next frame, when all of it has come.
    ///
    /// It may be dropped while it waits: nothing that has come is lost.
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

    /// A frame, if all of it is there.
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
