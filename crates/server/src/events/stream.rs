//! The event stream of one listener.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use super::{EventDetail, Subscription};
use crate::access::Caller;
use crate::app::App;
use crate::clock;
use crate::token_store::TokenStore;

/// The interval between heartbeats of an idle stream, by which both sides detect a broken connection.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long the result of a check of a caller's token is reused.
const TOKEN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The number of messages buffered for the connection.
const BUFFER: usize = 16;

pub(crate) const HEARTBEAT_COMMENT: Bytes = Bytes::from_static(b": still here\n\n");

/// Starts the stream.
pub(super) fn open(
    subscription: Subscription,
    permit: OwnedSemaphorePermit,
    is_reconnect: bool,
    stopping: CancellationToken,
) -> Response {
    let first = if is_reconnect { "event: reset\ndata: []\n\n" } else { "event: ready\ndata: []\n\n" };
    stream_response(permit, stopping, move |sender| forward(subscription, sender, first))
}

/// Returns a streaming response. `sending` holds the permit `permit` and runs until it ends, the daemon stops, or the
/// listener disconnects.
pub(crate) fn stream_response<F: Future<Output = ()> + Send + 'static>(
    permit: OwnedSemaphorePermit,
    stopping: CancellationToken,
    sending: impl FnOnce(mpsc::Sender<Bytes>) -> F,
) -> Response {
    let (sender, receiver) = mpsc::channel(BUFFER);
    let sending = sending(sender);
    tokio::spawn(async move {
        // Ends when the daemon stops, or when `sending` finds that the listener has disconnected.
        stopping.run_until_cancelled(sending).await;
        drop(permit);
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    (headers, Body::new(StreamBody(receiver))).into_response()
}

/// The token of a caller that waits, or listens to a stream. The wait and the stream end with it.
#[derive(Default)]
pub(crate) struct TokenWatch {
    api_token: Option<(TokenStore, String)>,
    checked_at: Duration,
}

impl TokenWatch {
    pub(crate) fn of(app: &App, caller: &Caller) -> Self {
        let api_token = caller.token_id().map(|id| (app.token_store.clone(), id.to_owned()));
        Self { api_token, checked_at: clock::now() }
    }

    /// Sends a message to a listener, if its token is still valid. Returns false if the stream is over.
    pub(crate) async fn send(&mut self, sender: &mpsc::Sender<Bytes>, message: Bytes) -> bool {
        self.is_valid().await && sender.send(message).await.is_ok()
    }

    /// Completes when the token is not valid any more; never for a caller without a token. Cancel-safe.
    pub(crate) async fn ended(&mut self) {
        if self.api_token.is_none() {
            std::future::pending::<()>().await;
        }
        while self.is_valid().await {
            tokio::time::sleep(TOKEN_CHECK_INTERVAL).await;
        }
    }

    /// Returns whether the token is still valid, as of the last check.
    async fn is_valid(&mut self) -> bool {
        let Some((token_store, id)) = &self.api_token else { return true };
        if clock::now().saturating_sub(self.checked_at) < TOKEN_CHECK_INTERVAL {
            return true;
        }
        self.checked_at = clock::now();
        token_store.is_valid(id).await.unwrap_or(true)
    }
}

async fn forward(subscription: Subscription, sender: mpsc::Sender<Bytes>, first: &'static str) {
    let Subscription { mut events, mut is_primed, detail, mut token } = subscription;
    // Before the first poll there is no state to compare with, so changes would be missed.
    while !*is_primed.borrow_and_update() {
        let is_over = match tokio::time::timeout(HEARTBEAT, is_primed.changed()).await {
            Ok(changed) => changed.is_err(),
            Err(_) => !token.send(&sender, HEARTBEAT_COMMENT).await,
        };
        if is_over {
            return;
        }
    }
    let mut text = Bytes::from_static(first.as_bytes());
    while token.send(&sender, text).await {
        text = match tokio::time::timeout(HEARTBEAT, events.recv()).await {
            Ok(Ok(event)) if detail == EventDetail::KindsOnly => {
                format!("event: changed\ndata: {}\n\n", event.name).into()
            }
            Ok(Ok(event)) => {
                format!("id: {}\nevent: {}\ndata: {}\n\n", event.id, event.name, event.data).into()
            }
            Ok(Err(RecvError::Lagged(_))) => Bytes::from_static(b"event: reset\ndata: []\n\n"),
            Ok(Err(RecvError::Closed)) => return,
            Err(_) => HEARTBEAT_COMMENT,
        };
    }
}

/// A streaming body.
struct StreamBody(mpsc::Receiver<Bytes>);

impl HttpBody for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|text| text.map(|text| Ok(Frame::data(text))))
    }
}
