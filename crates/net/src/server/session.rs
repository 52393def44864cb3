//! The connection of one peer: reads its frames, runs the handler, writes the replies.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::io::AsyncRead;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admission::{Admission, Admitted, ConnectionPermit};
use super::{Handler, Peer};
use crate::connection::{self, CloseRequest, ConnectionEnd, FrameReader, FrameWriter, Outbox};
use crate::queue::{Receiver, Sender, queue};
use crate::transport::Stream;
use crate::wire::{AnnouncedLimits, Decoder, Frame, MAX_ERROR_MESSAGE, Malformed, Payload};
use crate::{CloseReason, ConnectionLimits, HandlerError, metrics};

pub(super) struct Session {
    peer: Peer,
    theirs: AnnouncedLimits,
    limits: ConnectionLimits,
    handler: Arc<dyn Handler>,
    tasks: TaskTracker,
    leaving: CancellationToken,
    close_request: CloseRequest,
    stream: tokio_rustls::server::TlsStream<Box<dyn Stream>>,
    decoder: Decoder,
    replies: (Sender<Bytes>, Receiver<Bytes>),
    pushes: Receiver<Bytes>,
    permit: ConnectionPermit,
}

/// Notifies the handler when the peer disconnects, for whatever reason.
struct SessionGuard<'a> {
    peer: &'a Peer,
    handler: &'a dyn Handler,
    _permit: ConnectionPermit,
}

impl Drop for SessionGuard<'_> {
    fn drop(&mut self) {
        // If the connection ends because the handler panicked, a second panic must not abort the process.
        drop(catch_unwind(AssertUnwindSafe(|| self.handler.on_disconnect(self.peer))));
    }
}

impl Session {
    pub(super) fn new(admission: &Admission, admitted: Admitted) -> Self {
        let Admitted { stream, decoder, handshake, permit } = admitted;
        let (limits, theirs) = (admission.options.limits.clone(), handshake.terms);
        let (pushes, pushed) = queue(limits.max_queued, limits.max_queued_bytes);
        let replies = queue(limits.max_queued, limits.max_queued_bytes);
        let close_request = CloseRequest::default();
        let peer =
            Peer::new(permit.id(), handshake, admission.options.allow.clone(), pushes, close_request.clone());
        let (handler, tasks, leaving) =
            (admission.handler.clone(), admission.tasks.clone(), admission.leaving.clone());
        Self {
            peer,
            theirs,
            limits,
            handler,
            tasks,
            leaving,
            close_request,
            stream,
            decoder,
            replies,
            pushes: pushed,
            permit,
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
            close_request,
            stream,
            decoder,
            replies,
            pushes,
            permit,
        } = self;
        permit.register(&peer);
        let _guard = SessionGuard { peer: &peer, handler: &*handler, _permit: permit };
        handler.on_connect(&peer);
        let (read, write) = tokio::io::split(stream);
        let reader = FrameReader::new(read, decoder, limits.idle_timeout);
        let (replies, written) = replies;
        let outbox = Outbox::new(written, Some(pushes));
        let writer =
            FrameWriter { stream: write, outbox, theirs, stall: limits.idle_timeout, leaving, close_request };
        let permits = Arc::new(Semaphore::new(limits.max_in_flight));
        let max_payload = theirs.max_payload();
        let requests =
            RequestReader { peer: &peer, handler: &handler, tasks: &tasks, permits, replies, max_payload };
        let (ended, closing) = connection::run(requests.read_all(reader), writer).await;
        if let Some(closing) = closing {
            closing.await;
        }
        tracing::debug!(peer = peer.key().short(), why = %ended, "disconnected a peer");
    }
}

/// Reads the requests of one peer.
struct RequestReader<'a> {
    peer: &'a Peer,
    handler: &'a Arc<dyn Handler>,
    tasks: &'a TaskTracker,
    permits: Arc<Semaphore>,
    replies: Sender<Bytes>,
    max_payload: usize,
}

impl RequestReader<'_> {
    async fn read_all<R: AsyncRead + Unpin>(
        self,
        mut reader: FrameReader<R>,
    ) -> (ConnectionEnd, FrameReader<R>) {
        loop {
            if let Err(ended) = self.read_one(&mut reader).await {
                return (ended, reader);
            }
        }
    }

    async fn read_one<R: AsyncRead + Unpin>(&self, reader: &mut FrameReader<R>) -> Result<(), ConnectionEnd> {
        let body = reader.next().await?;
        // The allow list may have changed.
        if !self.peer.is_allowed() {
            return Err(ConnectionEnd::ClosedLocally(CloseReason::NotAllowed));
        }
        match Frame::read(&body)? {
            Frame::Call { id, payload } => self.handle_call(id, payload.slice_of(&body)).await,
            Frame::Message { payload } => self.handle_message(payload.slice_of(&body)).await,
            Frame::KeepAlive => {}
            Frame::Close { reason } => return Err(ConnectionEnd::ClosedByPeer(reason)),
            Frame::Hello { .. }
            | Frame::Welcome { .. }
            | Frame::Reply { .. }
            | Frame::Error { .. }
            | Frame::Push { .. } => return Err(Malformed::Unexpected.into()),
        }
        Ok(())
    }

    /// Runs the handler for a message before anything else is read. The handler runs in its own task, so that it
    /// completes even if the connection ends first, and a panic ends nothing else.
    async fn handle_message(&self, message: Bytes) {
        let (peer, handler) = (self.peer.clone(), self.handler.clone());
        drop(self.tasks.spawn(async move { handler.on_message(&peer, message).await }).await);
    }

    /// Runs the handler for a call. While the limit of calls in flight is reached, nothing more is read.
    async fn handle_call(&self, id: u64, request: Bytes) {
        let Ok(permit) = self.permits.clone().acquire_owned().await else { return };
        let (peer, handler, replies) = (self.peer.clone(), self.handler.clone(), self.replies.clone());
        let max_payload = self.max_payload;
        self.tasks
            .spawn(async move { answer(id, request, &peer, &*handler, &replies, max_payload, permit).await });
    }
}

async fn answer(
    id: u64,
    request: Bytes,
    peer: &Peer,
    handler: &dyn Handler,
    replies: &Sender<Bytes>,
    max_payload: usize,
    permit: OwnedSemaphorePermit,
) {
    let answered = AssertUnwindSafe(handler.call(peer, request)).catch_unwind().await;
    let answer = answered
        .unwrap_or_else(|_| Err(HandlerError::permanent("the handler panicked; see the log of the peer")));
    let answer = answer.and_then(|reply| {
        let size = reply.len();
        let too_large = || {
            HandlerError::permanent(format!(
                "the reply of {size} bytes exceeds your limit of {max_payload} bytes"
            ))
        };
        if size > max_payload { Err(too_large()) } else { Ok(reply) }
    });
    metrics::answered(if answer.is_ok() { "ok" } else { "error" });
    let frame = match &answer {
        Ok(reply) => Frame::Reply { id, payload: Payload(reply) }.to_bytes(),
        Err(HandlerError { is_transient, message }) => {
            let message = truncate(MAX_ERROR_MESSAGE.min(max_payload), message);
            Frame::Error { id, is_transient: *is_transient, message }.to_bytes()
        }
    };
    drop(answer);
    let bytes = frame.len();
    // If the peer has disconnected, the reply is discarded.
    let _ = replies.send(frame, bytes).await;
    drop(permit);
}

/// Returns the longest prefix of the text that has at most `most` bytes.
fn truncate(most: usize, text: &str) -> &str {
    let ends = text.char_indices().map(|(at, character)| at + character.len_utf8());
    let end = ends.take_while(|end| *end <= most).last().unwrap_or(0);
    text.get(..end).unwrap_or_default()
}
