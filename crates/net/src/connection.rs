//! The part of a connection that both ends share: reading frames, writing frames, keep-alives and the closing frame.

use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::queue::Receiver;
use crate::wire::decoder::NoFrame;
use crate::wire::{Decoder, Frame, LENGTH_BYTES, Malformed, Terms};
use crate::{Refusal, clock, metrics};

/// The time limit for the closing handshake.
const FAREWELL: Duration = Duration::from_secs(1);

/// The writer combines queued frames into one write of about this size.
const BATCH_BYTES: usize = 64 * 1024;

/// The reason why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    /// The other side closed the connection without a reason.
    #[error("the other side has closed the connection")]
    Closed,
    /// The other side closed the connection and gave a reason.
    #[error("{0}")]
    Bye(Refusal),
    /// The other side sent bytes that violate the protocol.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// The other side sent nothing within the idle timeout.
    #[error("nothing was heard for {0:?}")]
    Silent(Duration),
    /// The other side read nothing within the idle timeout.
    #[error("nothing could be sent for {0:?}")]
    Stalled(Duration),
    /// The stream failed.
    #[error("{0}")]
    Failed(#[from] io::Error),
    /// This side closed the connection.
    #[error("the connection was closed on this side")]
    Left(Refusal),
}

impl Ended {
    /// Returns the reason to send to the other side, or `None` if the other side cannot receive one.
    fn farewell(&self) -> Option<Refusal> {
        match self {
            Self::Malformed(Malformed::Truncated)
            | Self::Closed
            | Self::Bye(_)
            | Self::Failed(_)
            | Self::Stalled(_) => None,
            Self::Malformed(_) => Some(Refusal::Malformed),
            Self::Silent(_) => Some(Refusal::Silent),
            Self::Left(reason) => Some(*reason),
        }
    }
}

/// A request to end a connection, with the reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cut {
    token: CancellationToken,
    reason: std::sync::Arc<std::sync::OnceLock<Refusal>>,
}

impl Cut {
    /// Requests the end of the connection. The first reason counts.
    pub(crate) fn cut(&self, reason: Refusal) {
        let _ = self.reason.set(reason);
        self.token.cancel();
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.token.is_cancelled()
    }

    pub(crate) async fn wished(&self) -> Refusal {
        self.token.cancelled().await;
        self.reason.get().copied().unwrap_or(Refusal::Leaving)
    }
}

/// Reads frames. A frame must arrive completely within the idle timeout.
pub(crate) struct Reader<R> {
    stream: R,
    decoder: Decoder,
    idle: Duration,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(stream: R, decoder: Decoder, idle: Duration) -> Self {
        Self { stream, decoder, idle }
    }

    pub(crate) async fn next(&mut self) -> Result<Bytes, Ended> {
        let body = match clock::within(self.idle, self.decoder.next(&mut self.stream)).await {
            Ok(Ok(body)) => body,
            Ok(Err(NoFrame::End)) => return Err(Ended::Closed),
            Ok(Err(NoFrame::Malformed(malformed))) => return Err(malformed.into()),
            Ok(Err(NoFrame::Failed(error))) => return Err(over(error)),
            Err(_) => return Err(Ended::Silent(self.idle)),
        };
        metrics::received(LENGTH_BYTES + body.len());
        Ok(body)
    }

    /// Reads and discards the bytes still in flight. Closing a socket with unread bytes resets the connection and would
    /// destroy the closing frame.
    pub(crate) async fn linger(mut self) {
        linger(&mut self.stream).await;
    }
}

/// See [`Reader::linger`].
pub(crate) async fn linger(stream: &mut (impl AsyncRead + Unpin)) {
    const MOST: u64 = 2 * 1024 * 1024;
    let mut rest = stream.take(MOST);
    let discard = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
    drop(discard);
}

/// Converts an I/O error. TLS has a closing message of its own; a peer that closes the stream without it counts as
/// closed, not as failed.
pub(crate) fn over(error: io::Error) -> Ended {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Ended::Closed,
        _ => Ended::Failed(error),
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
pub(crate) struct Writer<W> {
    pub(crate) stream: W,
    pub(crate) outbox: Outbox,
    /// The limits that the other side has announced.
    pub(crate) theirs: Terms,
    /// The time limit of one write.
    pub(crate) stall: Duration,
    /// Cancelled when this side announces its departure; the connection stays open for now.
    pub(crate) leaving: CancellationToken,
    /// Set when this side closes the connection.
    pub(crate) cut: Cut,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Writes frames until the connection ends.
    pub(crate) async fn run(mut self) -> Ended {
        let mut batch = BytesMut::new();
        let mut has_warned = false;
        loop {
            batch.clear();
            let mut frames = 1;
            tokio::select! {
                biased;
                reason = self.cut.wished() => return self.leave(reason, batch).await,
                () = self.leaving.cancelled(), if !has_warned => {
                    has_warned = true;
                    batch.extend_from_slice(&Frame::Bye { reason: Refusal::Leaving }.to_bytes());
                }
                frame = self.outbox.next() => {
                    batch.extend_from_slice(&frame);
                    frames += self.outbox.fill(&mut batch);
                }
                () = clock::sleep(self.theirs.sign_every()) => batch.extend_from_slice(&Frame::Alive.to_bytes()),
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

    async fn leave(mut self, reason: Refusal, mut batch: BytesMut) -> Ended {
        // On an orderly shutdown the writer sends the queued frames first. Otherwise the peer receives only the reason.
        let is_in_peace = reason == Refusal::Leaving;
        let mut frames = if is_in_peace { self.outbox.fill(&mut batch) } else { 0 };
        while frames > 0 {
            if let Err(ended) = self.write(&batch, frames).await {
                return ended;
            }
            batch.clear();
            frames = self.outbox.fill(&mut batch);
        }
        let bye = Frame::Bye { reason }.to_bytes();
        let said = self.write(&bye, 1).await;
        let closed = clock::within(FAREWELL, self.stream.shutdown()).await;
        drop((said, closed));
        Ended::Left(reason)
    }

    async fn write(&mut self, bytes: &[u8], frames: u64) -> Result<(), Ended> {
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
            Ok(Err(error)) => Err(over(error)),
            Err(_) => Err(Ended::Stalled(self.stall)),
        }
    }
}

/// The future that sends the closing frame and drains the stream. It takes no longer than [`FAREWELL`].
pub(crate) type Farewell = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Reads and writes until either side of the connection ends. The caller gets the outcome at once and may run the
/// farewell separately.
///
/// `reading` runs until the connection ends, and returns the reader.
pub(crate) async fn run<R: AsyncRead + Send + Unpin + 'static>(
    reading: impl Future<Output = (Ended, Reader<R>)>,
    writer: Writer<impl AsyncWrite + Send + Unpin + 'static>,
) -> (Ended, Option<Farewell>) {
    let cut = writer.cut.clone();
    let overdue = async {
        cut.wished().await;
        clock::sleep(FAREWELL).await;
    };
    let mut writing = Box::pin(writer.run());
    let (ended, reader) = tokio::select! {
        biased;
        () = overdue => (Ended::Left(Refusal::Cut), None),
        first = first_of(&mut writing, reading) => match first {
            Either::Left(ended) => (ended, None),
            Either::Right((ended, reader)) => (ended, Some(reader)),
        },
    };
    if let Ended::Malformed(malformed) = &ended {
        metrics::malformed(*malformed);
    }
    let (Some(reason), Some(reader)) = (ended.farewell(), reader) else { return (ended, None) };
    cut.cut(reason);
    let farewell = async move {
        writing.await;
        reader.linger().await;
    };
    (ended, Some(Box::pin(async move { drop(clock::within(FAREWELL, farewell).await) })))
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
