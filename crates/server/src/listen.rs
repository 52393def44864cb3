//! Connections: accepted, limited, and ended when the daemon is.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::crowd::{Crowd, Seat};

/// How long a request's head may take to arrive, and how long a connection may ask nothing.
const HEAD_PATIENCE: Duration = Duration::from_secs(15);
/// The largest head, in bytes.
const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 64;
/// How long a shutdown waits for requests that are being answered.
const LAST_ANSWERS: Duration = Duration::from_secs(15);
/// The most who are let in when the door is closed.
const MOST_AT_THE_DOOR: usize = 4096;
/// How long to wait when the system is out of connections.
const BREATHER: Duration = Duration::from_millis(100);

/// Answers everybody who comes, until it is told to stop and everybody has been answered.
pub(crate) async fn accept(listener: TcpListener, app: Router, stopping: CancellationToken) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS);
    let answering = GracefulShutdown::new();
    let crowd = Crowd::new();
    let next = async || {
        let stream = next_stream(&listener, &crowd).await;
        Some((crowd.seat().await?, stream))
    };
    let answer = |stream: TcpStream, seat: Arc<Seat>| {
        let service = Attending { seat: Arc::clone(&seat), app: TowerToHyperService::new(app.clone()) };
        let connection = answering.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended early");
                    }
                }
                () = seat.has_to_leave() => tracing::debug!("an idle connection made room for another"),
            }
        });
    };
    while let Some(Some((seat, stream))) = stopping.run_until_cancelled(next()).await {
        answer(stream, seat);
    }
    // Whom the system has let in already counts as accepted: closing the door would cut them off.
    for stream in let_in(listener) {
        if let Some(seat) = crowd.seat().await {
            answer(stream, seat);
        }
    }
    if tokio::time::timeout(LAST_ANSWERS, answering.shutdown()).await.is_err() {
        tracing::warn!("stopped before everybody was answered");
    }
}

/// The API, as one connection sees it.
struct Attending {
    seat: Arc<Seat>,
    app: TowerToHyperService<Router>,
}

impl Service<Request<Incoming>> for Attending {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let attended = self.seat.attend();
        let answer = self.app.call(request);
        Box::pin(async move { answer.await.map(|answer| answer.map(|body| attended.until_sent(body))) })
    }
}

/// Those who wait at the door when it is closed.
fn let_in(listener: TcpListener) -> Vec<TcpStream> {
    let Ok(listener) = listener.into_std() else { return Vec::new() };
    let next = || {
        let (stream, _) = listener.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        TcpStream::from_std(stream).ok()
    };
    std::iter::from_fn(next).take(MOST_AT_THE_DOOR).collect()
}

async fn next_stream(listener: &TcpListener, crowd: &Crowd) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Small answers should not wait for more to come; if it cannot be set, they do.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                crowd.close_longest_idle();
                tokio::time::sleep(BREATHER).await;
            }
        }
    }
}
