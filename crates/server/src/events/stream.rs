//! Events on their way to one who listens.

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

use super::{Listening, Telling};
use crate::access::Access;
use crate::app::App;
use crate::clock;
use crate::keep::Keep;

/// How often something is sent when there is nothing to tell, so that both sides know of each other.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);
/// How often is asked whether whoever listens still may.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// How many texts wait for the connection.
const IN_FLIGHT: usize = 16;

pub(crate) const STILL_HERE: Bytes = Bytes::from_static(b": still here\n\n");

/// Begins to tell.
pub(super) fn answer(
    listening: Listening,
    seat: OwnedSemaphorePermit,
    came_back: bool,
    stopping: CancellationToken,
) -> Response {
    let first = if came_back { "event: reset\ndata: []\n\n" } else { "event: ready\ndata: []\n\n" };
    told(seat, stopping, move |sender| forward(listening, sender, first))
}

/// An answer that goes on, as long as somebody sends and somebody takes what is sent; whoever sends has this seat.
pub(crate) fn told<F: Future<Output = ()> + Send + 'static>(
    seat: OwnedSemaphorePermit,
    stopping: CancellationToken,
    sending: impl FnOnce(mpsc::Sender<Bytes>) -> F,
) -> Response {
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    let sending = sending(sender);
    tokio::spawn(async move {
        // Ends when the daemon stops, or when nobody takes what is sent.
        stopping.run_until_cancelled(sending).await;
        drop(seat);
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    (headers, Body::new(Told(receiver))).into_response()
}

/// By which somebody came in who listens for long: it ends with that.
#[derive(Default)]
pub(crate) struct Welcome {
    token: Option<(Keep, String)>,
    asked_at: Duration,
}

impl Welcome {
    pub(crate) fn of(app: &App, access: &Access) -> Self {
        let token = access.token_id().map(|id| (app.keep.clone(), id.to_owned()));
        Self { token, asked_at: clock::now() }
    }

    /// Whether they may still listen, as far as was asked lately.
    pub(crate) async fn lasts(&mut self) -> bool {
        let Some((keep, id)) = &self.token else { return true };
        if clock::now().saturating_sub(self.asked_at) < ASK_AGAIN {
            return true;
        }
        self.asked_at = clock::now();
        keep.is_good(id).await.unwrap_or(true)
    }
}

async fn forward(listening: Listening, sender: mpsc::Sender<Bytes>, first: &'static str) {
    let Listening { mut events, mut knows, telling, mut welcome } = listening;
    // Before that, a change would be found by nobody.
    while !*knows.borrow_and_update() {
        let is_over = match tokio::time::timeout(HEARTBEAT, knows.changed()).await {
            Ok(changed) => changed.is_err(),
            Err(_) => sender.send(STILL_HERE).await.is_err(),
        };
        if is_over {
            return;
        }
    }
    let mut text = Bytes::from_static(first.as_bytes());
    while sender.send(text).await.is_ok() {
        text = match tokio::time::timeout(HEARTBEAT, events.recv()).await {
            Ok(Ok(event)) if telling == Telling::Names => {
                format!("event: changed\ndata: {}\n\n", event.name).into()
            }
            Ok(Ok(event)) => {
                format!("id: {}\nevent: {}\ndata: {}\n\n", event.id, event.name, event.data).into()
            }
            Ok(Err(RecvError::Lagged(_))) => Bytes::from_static(b"event: reset\ndata: []\n\n"),
            Ok(Err(RecvError::Closed)) => return,
            Err(_) => STILL_HERE,
        };
        // Whose token ends is told no more.
        if !welcome.lasts().await {
            return;
        }
    }
}

/// A body that goes on.
struct Told(mpsc::Receiver<Bytes>);

impl HttpBody for Told {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|text| text.map(|text| Ok(Frame::data(text))))
    }
}
