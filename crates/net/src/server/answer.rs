//! The connection of one peer: reads its frames, runs the handler, writes the replies.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::io::AsyncRead;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::door::{Door, Entered};
use super::guests::Seat;
use super::{Handler, Peer};
use crate::connection::{self, Cut, Ended, Outbox, Reader, Writer};
use crate::queue::{Receiver, Sender, queue};
use crate::transport::Stream;
use crate::wire::{Decoder, Frame, MAX_FAULT, Malformed, Payload, Terms};
use crate::{Fault, Limits, Refusal, metrics};

pub(super) struct Visit {
    peer: Peer,
    theirs: Terms,
    limits: Limits,
    handler: Arc<dyn Handler>,
    tasks: TaskTracker,
    leaving: CancellationToken,
    cut: Cut,
    stream: tokio_rustls::server::TlsStream<Box<dyn Stream>>,
    decoder: Decoder,
    replies: (Sender<Bytes>, Receiver<Bytes>),
    pushes: Receiver<Bytes>,
    seat: Seat,
}

/// Notifies the handler when the peer disconnects, for whatever reason.
struct Stay<'a> {
    peer: &'a Peer,
    handler: &'a dyn Handler,
    _seat: Seat,
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        // If the connection ends because the handler panicked, a second panic must not abort the process.
        drop(catch_unwind(AssertUnwindSafe(|| self.handler.left(self.peer))));
    }
}

impl Visit {
    pub(super) fn new(door: &Door, entered: Entered) -> Self {
        let Entered { stream, decoder, arrival, seat } = entered;
        let (limits, theirs) = (door.options.limits.clone(), arrival.terms);
        let (pushes, pushed) = queue(limits.max_queued, limits.max_queued_bytes);
        let replies = queue(limits.max_queued, limits.max_queued_bytes);
        let cut = Cut::default();
        let peer = Peer::new(seat.id(), arrival, door.options.allow.clone(), pushes, cut.clone());
        let (handler, tasks, leaving) = (door.handler.clone(), door.tasks.clone(), door.leaving.clone());
        Self {
            peer,
            theirs,
            limits,
            handler,
            tasks,
            leaving,
            cut,
            stream,
            decoder,
            replies,
            pushes: pushed,
            seat,
        }
    }

    pub(super) async fn run(self) {
        let Self {
            peer,
            theirs,
            limits,
            handler,
            tasks,
            leaving,
            cut,
            stream,
            decoder,
            replies,
            pushes,
            seat,
        } = self;
        seat.taken_by(&peer);
        let _stay = Stay { peer: &peer, handler: &*handler, _seat: seat };
        handler.joined(&peer);
        let (read, write) = tokio::io::split(stream);
        let reader = Reader::new(read, decoder, limits.idle_timeout);
        let (replies, written) = replies;
        let outbox = Outbox::new(written, Some(pushes));
        let writer = Writer { stream: write, outbox, theirs, stall: limits.idle_timeout, leaving, cut };
        let places = Arc::new(Semaphore::new(limits.max_in_flight));
        let max_payload = theirs.max_payload();
        let desk = Desk { peer: &peer, handler: &handler, tasks: &tasks, places, replies, max_payload };
        let (ended, farewell) = connection::run(desk.read_all(reader), writer).await;
        if let Some(farewell) = farewell {
            farewell.await;
        }
        tracing::debug!(peer = peer.key().short(), why = %ended, "a peer has left");
    }
}

/// Reads the requests of one peer.
struct Desk<'a> {
    peer: &'a Peer,
    handler: &'a Arc<dyn Handler>,
    tasks: &'a TaskTracker,
    places: Arc<Semaphore>,
    replies: Sender<Bytes>,
    max_payload: usize,
}

impl Desk<'_> {
    async fn read_all<R: AsyncRead + Unpin>(self, mut reader: Reader<R>) -> (Ended, Reader<R>) {
        loop {
            if let Err(ended) = self.read_one(&mut reader).await {
                return (ended, reader);
            }
        }
    }

    async fn read_one<R: AsyncRead + Unpin>(&self, reader: &mut Reader<R>) -> Result<(), Ended> {
        let body = reader.next().await?;
        // The allow list may have changed.
        if !self.peer.is_allowed() {
            return Err(Ended::Left(Refusal::NotAllowed));
        }
        match Frame::read(&body)? {
            Frame::Call { id, payload } => self.take(id, payload.part_of(&body)).await,
            Frame::Tell { payload } => self.hear(payload.part_of(&body)).await,
            Frame::Alive => {}
            Frame::Bye { reason } => return Err(Ended::Bye(reason)),
            Frame::Hello { .. }
            | Frame::Welcome { .. }
            | Frame::Reply { .. }
            | Frame::Fault { .. }
            | Frame::Push { .. } => return Err(Malformed::OutOfTurn.into()),
        }
        Ok(())
    }

    /// Runs the handler for a message before anything else is read. The handler runs in its own task, so that it
    /// completes even if the connection ends first, and a panic ends nothing else.
    async fn hear(&self, message: Bytes) {
        let (peer, handler) = (self.peer.clone(), self.handler.clone());
        drop(self.tasks.spawn(async move { handler.told(&peer, message).await }).await);
    }

    /// Runs the handler for a call. While the limit of calls in flight is reached, nothing more is read.
    async fn take(&self, id: u64, request: Bytes) {
        let Ok(place) = self.places.clone().acquire_owned().await else { return };
        let (peer, handler, replies) = (self.peer.clone(), self.handler.clone(), self.replies.clone());
        let max_payload = self.max_payload;
        self.tasks
            .spawn(async move { answer(id, request, &peer, &*handler, &replies, max_payload, place).await });
    }
}

async fn answer(
    id: u64,
    request: Bytes,
    peer: &Peer,
    handler: &dyn Handler,
    replies: &Sender<Bytes>,
    max_payload: usize,
    place: OwnedSemaphorePermit,
) {
    let answered = AssertUnwindSafe(handler.call(peer, request)).catch_unwind().await;
    let answer =
        answered.unwrap_or_else(|_| Err(Fault::permanent("the handler has failed; its log says why")));
    let answer = answer.and_then(|reply| {
        let size = reply.len();
        let too_large =
            || Fault::permanent(format!("the reply has {size} bytes, and you read {max_payload}"));
        if size > max_payload { Err(too_large()) } else { Ok(reply) }
    });
    metrics::answered(if answer.is_ok() { "ok" } else { "fault" });
    let frame = match &answer {
        Ok(reply) => Frame::Reply { id, payload: Payload(reply) }.to_bytes(),
        Err(Fault { is_transient, message }) => {
            let message = cut_to(MAX_FAULT.min(max_payload), message);
            Frame::Fault { id, is_transient: *is_transient, message }.to_bytes()
        }
    };
    drop(answer);
    let bytes = frame.len();
    // If the peer has disconnected, the reply is discarded.
    let _ = replies.send(frame, bytes).await;
    drop(place);
}

/// Returns the longest prefix of the text that has at most `most` bytes.
fn cut_to(most: usize, text: &str) -> &str {
    let ends = text.char_indices().map(|(at, character)| at + character.len_utf8());
    let end = ends.take_while(|end| *end <= most).last().unwrap_or(0);
    text.get(..end).unwrap_or_default()
}
