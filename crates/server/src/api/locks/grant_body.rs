//! A granted lock whose response has not been sent yet.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use holdoff_lock::DetachedLease;
use hyper::body::{Frame, SizeHint};

/// A response body that delivers a lock. If the connection closes before the body is read, the lock is released. If the
/// response is lost on the network, the lease expires.
pub(super) struct GrantBody {
    text: Bytes,
    handover: Option<DetachedLease>,
}

impl GrantBody {
    pub(super) fn response(text: String, handover: DetachedLease) -> Response {
        let body = Body::new(Self { text: text.into(), handover: Some(handover) });
        ([(CONTENT_TYPE, "application/json")], body).into_response()
    }
}

impl HttpBody for GrantBody {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdoff_lock::Locks;

    use super::*;

    async fn is_held(locks: &Locks) -> bool {
        // The release runs in the background.
        tokio::time::sleep(Duration::from_millis(50)).await;
        locks.inspect("a").await.unwrap().unwrap().holder.is_some()
    }

    #[tokio::test]
    async fn a_dropped_response_releases_the_lock() {
        let locks = Locks::memory();
        let handover = locks.acquire("a").acquire_detached().await.unwrap();
        let answer = GrantBody::response("{}".to_owned(), handover);
        assert!(is_held(&locks).await);
        drop(answer);
        assert!(!is_held(&locks).await);

        let handover = locks.acquire("a").acquire_detached().await.unwrap();
        let answer = GrantBody::response("{}".to_owned(), handover);
        let sent = axum::body::to_bytes(answer.into_body(), 100).await.unwrap();
        assert_eq!(sent, "{}");
        assert!(is_held(&locks).await, "the client holds the lock");
    }
}
