//! A lock on its way to a client.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use holdoff_lock::Handover;
use hyper::body::{Frame, SizeHint};

/// An answer that brings a lock. If the connection is gone before the answer is taken from here, the lock is let go;
/// if the answer is lost on its way, the lease ends by itself.
pub(super) struct Handing {
    text: Bytes,
    handover: Option<Handover>,
}

impl Handing {
    pub(super) fn answer(text: String, handover: Handover) -> Response {
        let body = Body::new(Self { text: text.into(), handover: Some(handover) });
        ([(CONTENT_TYPE, "application/json")], body).into_response()
    }
}

impl HttpBody for Handing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.handover.take().map(|handover| {
            _ = handover.accept();
            Ok(Frame::data(std::mem::take(&mut self.text)))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.handover.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.text.len() as u64)
    }
}
