//! The part of a connection that both ends share: reading frames, writing frames, keep-alives and the closing frame.

use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::queue::Receiver;
use crate::wire::{AnnouncedLimits, Decoder, Frame, LENGTH_BYTES, Malformed, NoFrame};
use crate::{CloseReason, clock, metrics};

/// The time limit for the closing handshake.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The writer combines queued frames into one write of about this size.
const BATCH_BYTES: usize = 64 * 1024;

/// The reason why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionEnd {
    /// The other side closed the connection without a reason.
    #[error("the peer closed the connection")]
    Closed,
    /// The other side closed the connection and gave a reason.
    #[error("{0}")]
    ClosedByPeer(#[source] CloseReason),
    /// The other side sent bytes that violate the protocol.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// The other side sent nothing within the idle timeout.
    #[error("the peer sent nothing for {0:?}")]
    IdleTimeout(Duration),
    /// The other side read nothing within the idle timeout.
    #[error("the peer read nothing for {0:?}")]
    WriteTimeout(Duration),
    /// The stream failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// This side closed the connection.
    #[error("this side closed the connection")]
    ClosedLocally(CloseReason),
}

impl ConnectionEnd {
    /// Returns the reason to send to the other side, or `None` if the other side cannot receive one.
    fn reason_to_send(&self) -> Option<CloseReason> {
        match self {
            Self::Malformed(Malformed::Truncated)
            | Self::Closed
            | Self::ClosedByPeer(_)
            | Self::Io(_)
            | Self::WriteTimeout(_) => None,
            Self::Malformed(_) => Some(CloseReason::Malformed),
            Self::IdleTimeout(_) => Some(CloseReason::IdleTimeout),
            Self::ClosedLocally(reason) => Some(*reason),
        }
    }
}

/// A request to end a connection, with the reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct CloseRequest {
    token: CancellationToken,
    reason: std::sync::Arc<std::sync::OnceLock<CloseReason>>,
}

impl CloseRequest {
    /// Requests the end of the connection. The first reason counts.
    pub(crate) fn request(&self, reason: CloseReason) {
        let _ = self.reason.set(reason);
        self.token.cancel();
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.token.is_cancelled()
    }

    pub(crate) async fn requested(&self) -> CloseReason {
        self.token.cancelled().await;
        self.reason.get().copied().unwrap_or(CloseReason::ShuttingDown)
    }
}

/// Reads frames. A frame must arrive completely within the idle timeout.
pub(crate) struct FrameReader<R> {
    stream: R,
    decoder: Decoder,
    idle: Duration,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(stream: R, decoder: Decoder, idle: Duration) -> Self {
        Self { stream, decoder, idle }
    }

    pub(crate) async fn next(&mut self) -> Result<Bytes, ConnectionEnd> {
        let body = match clock::within(self.idle, self.decoder.next(&mut self.stream)).await {
            Ok(Ok(body)) => body,
            Ok(Err(NoFrame::End)) => return Err(ConnectionEnd::Closed),
            Ok(Err(NoFrame::Malformed(malformed))) => return Err(malformed.into()),
            Ok(Err(NoFrame::Failed(error))) => return Err(ended_by(error)),
            Err(_) => return Err(ConnectionEnd::IdleTimeout(self.idle)),
        };
        metrics::received(LENGTH_BYTES + body.len());
        Ok(body)
    }

    /// Reads and discards the bytes still in flight. Closing a socket with unread bytes resets the connection and would
    /// destroy the closing frame.
    pub(crate) async fn drain(mut self) {
        drain(&mut self.stream).await;
    }
}

/// See [`FrameReader::drain`].
pub(crate) async fn drain(stream: &mut (impl AsyncRead + Unpin)) {
    const MOST: u64 = 2 * 1024 * 1024;
    let mut rest = stream.take(MOST);
    let discard = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
    drop(discard);
}

/// Converts an I/O error. TLS has a closing message of its own; a peer that closes the stream without it counts as
/// closed, not as failed.
pub(crate) fn ended_by(error: io::Error) -> ConnectionEnd {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ConnectionEnd::Closed,
        _ => ConnectionEnd::Io(error),
    }
}

/// The frames to be written: replies first, pushes second.
pub(crate) struct Outbox {
    first: Receiver<Bytes>,
    second: Option<Receiver<Bytes>>,
}

impl Outbox {
    pub(crate) fn new(first: Receiver<Bytes>, second: Option<Receiver<Bytes>>) -> Self {
        Self { first, second }
    }

    /// Returns the next frame. If both queues are closed, the future never completes.
    async fn next(&mut self) -> Bytes {
        let Self { first, second } = self;
        let second = async {
            match second {
                Some(second) => second.recv().await,
                None => None,
            }
        };
        tokio::select! {
            biased;
            Some(frame) = first.recv() => frame,
            Some(frame) = second => frame,
            else => std::future::pending().await,
        }
    }

    /// Adds waiting frames to the batch, one from each queue in turn, until the batch is full, and returns their
    /// number. Every batch takes at least one frame from each non-empty queue, so that neither queue starves the other.
    fn fill(&mut self, batch: &mut BytesMut) -> u64 {
        let mut frames = 0;
        loop {
            let waiting = [self.first.try_recv(), self.second.as_mut().and_then(Receiver::try_recv)];
            let before = frames;
            for frame in waiting.into_iter().flatten() {
                batch.extend_from_slice(&frame);
                frames += 1;
            }
            if frames == before || batch.len() >= BATCH_BYTES {
                return frames;
            }
        }
    }
}

/// Writes frames.
pub(crate) struct FrameWriter<W> {
    pub(crate) stream: W,
    pub(crate) outbox: Outbox,
    /// The limits that the other side has announced.
    pub(crate) theirs: AnnouncedLimits,
    /// The time limit of one write.
    pub(crate) stall: Duration,
    /// Cancelled when this side announces its departure; the connection stays open for now.
    pub(crate) leaving: CancellationToken,
    /// Set when this side closes the connection.
    pub(crate) close_request: CloseRequest,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    /// Writes frames until the connection ends.
    pub(crate) async fn run(mut self) -> ConnectionEnd {
        let mut batch = BytesMut::new();
        let mut has_warned = false;
        loop {
            batch.clear();
            let mut frames = 1;
            tokio::select! {
                biased;
                reason = self.close_request.requested() => return self.leave(reason, batch).await,
                () = self.leaving.cancelled(), if !has_warned => {
                    has_warned = true;
                    batch.extend_from_slice(&Frame::Close { reason: CloseReason::ShuttingDown }.to_bytes());
                }
                frame = self.outbox.next() => {
                    batch.extend_from_slice(&frame);
                    frames += self.outbox.fill(&mut batch);
                }
                () = clock::sleep(self.theirs.keep_alive_interval()) => batch.extend_from_slice(&Frame::KeepAlive.to_bytes()),
            }
            if let Err(ended) = self.write(&batch, frames).await {
                return ended;
            }
            // Releases the memory of an unusually large frame.
            if batch.capacity() > 2 * BATCH_BYTES {
                batch = BytesMut::new();
            }
        }
    }

    async fn leave(mut self, reason: CloseReason, mut batch: BytesMut) -> ConnectionEnd {
        // On an orderly shutdown the writer sends the queued frames first. Otherwise the peer receives only the reason.
        let is_orderly = reason == CloseReason::ShuttingDown;
        let mut frames = if is_orderly { self.outbox.fill(&mut batch) } else { 0 };
        while frames > 0 {
            if let Err(ended) = self.write(&batch, frames).await {
                return ended;
            }
            batch.clear();
            frames = self.outbox.fill(&mut batch);
        }
        let close = Frame::Close { reason }.to_bytes();
        let written = self.write(&close, 1).await;
        let closed = clock::within(CLOSE_TIMEOUT, self.stream.shutdown()).await;
        drop((written, closed));
        ConnectionEnd::ClosedLocally(reason)
    }

    async fn write(&mut self, bytes: &[u8], frames: u64) -> Result<(), ConnectionEnd> {
        let stream = &mut self.stream;
        let written = async {
            stream.write_all(bytes).await?;
            stream.flush().await
        };
        match clock::within(self.stall, written).await {
            Ok(Ok(())) => {
                metrics::sent(frames, bytes.len());
                Ok(())
            }
            Ok(Err(error)) => Err(ended_by(error)),
            Err(_) => Err(ConnectionEnd::WriteTimeout(self.stall)),
        }
    }
}

/// The future that sends the closing frame and drains the stream. It takes no longer than [`CLOSE_TIMEOUT`].
pub(crate) type Closing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Reads and writes until either side of the connection ends. The caller gets the outcome at once and may run the
/// closing separately.
///
/// `reading` runs until the connection ends, and returns the reader.
pub(crate) async fn run<R: AsyncRead + Send + Unpin + 'static>(
    reading: impl Future<Output = (ConnectionEnd, FrameReader<R>)>,
    writer: FrameWriter<impl AsyncWrite + Send + Unpin + 'static>,
) -> (ConnectionEnd, Option<Closing>) {
    let close_request = writer.close_request.clone();
    let overdue = async {
        close_request.requested().await;
        clock::sleep(CLOSE_TIMEOUT).await;
    };
    let mut writing = Box::pin(writer.run());
    let (ended, reader) = tokio::select! {
        biased;
        () = overdue => (ConnectionEnd::ClosedLocally(CloseReason::Disconnected), None),
        first = first_of(&mut writing, reading) => match first {
            Either::Left(ended) => (ended, None),
            Either::Right((ended, reader)) => (ended, Some(reader)),
        },
    };
    if let ConnectionEnd::Malformed(malformed) = &ended {
        metrics::malformed(*malformed);
    }
    let (Some(reason), Some(reader)) = (ended.reason_to_send(), reader) else { return (ended, None) };
    close_request.request(reason);
    let closing = async move {
        writing.await;
        reader.drain().await;
    };
    (ended, Some(Box::pin(async move { drop(clock::within(CLOSE_TIMEOUT, closing).await) })))
}

enum Either<L, R> {
    Left(L),
    Right(R),
}

/// Returns the outcome of the future that is ready first. The two are polled first in turn, so that a busy future does
/// not starve the other and the order is deterministic.
async fn first_of<L, R>(left: impl Future<Output = L>, right: impl Future<Output = R>) -> Either<L, R> {
    let (mut left, mut right) = (std::pin::pin!(left), std::pin::pin!(right));
    let mut is_lefts_turn = false;
    std::future::poll_fn(move |context| {
        is_lefts_turn = !is_lefts_turn;
        for ask_left in [is_lefts_turn, !is_lefts_turn] {
            let polled = if ask_left {
                left.as_mut().poll(context).map(Either::Left)
            } else {
                right.as_mut().poll(context).map(Either::Right)
            };
            if polled.is_ready() {
                return polled;
            }
        }
        Poll::Pending
    })
    .await
}
