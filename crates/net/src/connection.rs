//! What both ends of a connection do alike: read frames, write frames, show that they live, and say goodbye.

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

/// How long a goodbye may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// Frames that wait are written together up to about here.
const BATCH_BYTES: usize = 64 * 1024;

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    /// The other side has closed it.
    #[error("the other side has closed the connection")]
    Closed,
    /// The other side has said why.
    #[error("{0}")]
    Bye(Refusal),
    /// What came was not the protocol.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// Nothing came for too long.
    #[error("nothing was heard for {0:?}")]
    Silent(Duration),
    /// The other side has not read for too long.
    #[error("nothing could be sent for {0:?}")]
    Stalled(Duration),
    /// The stream has failed.
    #[error("{0}")]
    Failed(#[from] io::Error),
    /// This side has ended it.
    #[error("the connection was closed on this side")]
    Left(Refusal),
}

impl Ended {
    /// What the other side is told, if it can still hear it.
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

/// A wish to end a connection, with the reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cut {
    token: CancellationToken,
    reason: std::sync::Arc<std::sync::OnceLock<Refusal>>,
}

impl Cut {
    /// Says that it shall end. The first reason counts.
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

/// Reads frames, none longer in coming than it may be.
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

    /// Reads what is still on its way and throws it away: closing on unread bytes would destroy our last words.
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

/// TLS wants a goodbye of its own; whoever leaves without one has just left.
pub(crate) fn over(error: io::Error) -> Ended {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Ended::Closed,
        _ => Ended::Failed(error),
    }
}

/// What is to be written: answers and what else waits.
pub(crate) struct Outbox {
    first: Receiver<Bytes>,
    second: Option<Receiver<Bytes>>,
}

impl Outbox {
    pub(crate) fn new(first: Receiver<Bytes>, second: Option<Receiver<Bytes>>) -> Self {
        Self { first, second }
    }

    /// The next frame; never, when nobody is left to write one.
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

    /// Those that wait, too, one of each in turn, until there are enough for one batch. At least one of each is among
    /// them, so that neither waits for the other for ever.
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
    /// What the other side bears.
    pub(crate) theirs: Terms,
    /// How long a write may take.
    pub(crate) stall: Duration,
    /// Told when this side will leave, but not yet.
    pub(crate) leaving: CancellationToken,
    /// Told when this side leaves.
    pub(crate) cut: Cut,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Writes what is there to write until the connection is over.
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
            // One large frame must not keep its room for ever.
            if batch.capacity() > 2 * BATCH_BYTES {
                batch = BytesMut::new();
            }
        }
    }

    async fn leave(mut self, reason: Refusal, mut batch: BytesMut) -> Ended {
        // Whoever leaves in peace has said everything before; whoever is cut off hears no more than why.
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

/// What is still to be said when a connection is over. It takes no longer than [`FAREWELL`].
pub(crate) type Farewell = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Reads and writes until either is over. Whoever is waiting for the outcome need not wait for the farewell.
///
/// `reading` goes on until something ends it, and gives the reader back.
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

/// The outcome of whichever is ready first. They take turns in being asked first: neither keeps the other waiting when it
/// is always busy, and nothing is left to chance.
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
