//! Splits a byte stream into frames.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{LENGTH_BYTES, Malformed};

/// The size of one read, and the most memory allocated ahead of received bytes: an announced length is untrusted.
const STEP: usize = 16 * 1024;

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
