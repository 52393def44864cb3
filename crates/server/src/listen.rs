//! Connections: accepting and limiting them, stripping the path prefix of a proxy, and draining them at shutdown.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Uri;
use axum::http::uri::PathAndQuery;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::access::PeerIp;
use crate::connection_limit::{ConnectionLimit, Permit};
use crate::tls::Tls;

/// The timeout of a request's head, and the idle timeout of a connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// The maximum size of a head, in bytes.
const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 64;
/// The drain timeout: how long a shutdown waits for requests in progress.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);
/// The maximum number of connections that a shutdown accepts from the listen backlog.
const MAX_BACKLOG: usize = 4096;
/// The wait after the system could not accept a connection.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Serves connections until the daemon stops, then drains the requests in progress.
pub(crate) async fn accept(
    listener: TcpListener,
    app: Router,
    prefix: Prefix,
    tls: Option<Arc<Tls>>,
    stopping: CancellationToken,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS);
    let connections = GracefulShutdown::new();
    let limit = ConnectionLimit::new();
    let next = async || {
        let accepted = accept_next(&listener, &limit).await;
        (limit.acquire().await, accepted)
    };
    let spawn = |(stream, peer): (TcpStream, PeerIp), permit: Arc<Permit>| {
        let (http, app, watcher) = (http.clone(), app.clone(), connections.watcher());
        let connection =
            Connection { http, app, prefix: prefix.clone(), peer, permit: Arc::clone(&permit), watcher };
        let tls = tls.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = connection.serve(stream, tls) => {}
                () = permit.evicted() => tracing::debug!("closed an idle connection for a new one"),
            }
        });
    };
    while let Some((permit, accepted)) = stopping.run_until_cancelled(next()).await {
        spawn(accepted, permit);
    }
    // Connections in the listen backlog count as accepted: closing the listener would reset them.
    for accepted in drain_backlog(listener) {
        spawn(accepted, limit.acquire().await);
    }
    if tokio::time::timeout(DRAIN_TIMEOUT, connections.shutdown()).await.is_err() {
        tracing::warn!("stopped before all requests in progress had ended");
    }
}

/// Marks a request on a connection that serves probes only, because all other connections are busy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbesOnly;

/// A connection, before the TLS handshake if there is one.
struct Connection {
    http: http1::Builder,
    app: Router,
    prefix: Prefix,
    peer: PeerIp,
    permit: Arc<Permit>,
    watcher: Watcher,
}

impl Connection {
    async fn serve(self, stream: TcpStream, tls: Option<Arc<Tls>>) {
        match tls {
            None => self.serve_http(stream).await,
            Some(tls) => {
                if let Some(stream) = tls.handshake(stream).await {
                    self.serve_http(stream).await;
                }
            }
        }
    }

    async fn serve_http(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Self { http, app, prefix, peer, permit, watcher } = self;
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            if permit.is_reserved() {
                request.extensions_mut().insert(ProbesOnly);
            }
            prefix.strip(request.uri_mut());
            let (parts, body) = request.into_parts();
            let (busy, body) = permit.start_request(body);
            // A router is always ready.
            let response = Service::call(&mut app.clone(), Request::from_parts(parts, body));
            async move { response.await.map(|response| response.map(|body| busy.until_sent(body))) }
        });
        if let Err(error) = watcher.watch(http.serve_connection(TokioIo::new(stream), service)).await {
            tracing::debug!(%error, "closed a connection after an error");
        }
    }
}

/// Accepts the connections in the listen backlog and closes the listener.
fn drain_backlog(listener: TcpListener) -> Vec<(TcpStream, PeerIp)> {
    let Ok(listener) = listener.into_std() else { return Vec::new() };
    let next = || {
        let (stream, peer) = listener.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        Some((TcpStream::from_std(stream).ok()?, PeerIp(peer.ip())))
    };
    std::iter::from_fn(next).take(MAX_BACKLOG).collect()
}

async fn accept_next(listener: &TcpListener, limit: &ConnectionLimit) -> (TcpStream, PeerIp) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Without this option small responses may be delayed. It is not essential, so an error is ignored.
                let _ = stream.set_nodelay(true);
                return (stream, PeerIp(peer.ip()));
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                limit.close_longest_idle();
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
            }
        }
    }
}

/// The path prefix: empty, or `/` and a name. Both kinds of proxies work: those that strip the prefix and those that
/// forward it.
#[derive(Clone, Debug)]
pub(crate) struct Prefix(Arc<str>);

impl Prefix {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Strips the prefix, if it is present.
    pub(crate) fn strip(&self, uri: &mut Uri) {
        if self.0.is_empty() {
            return;
        }
        let Some(rest) = uri.path_and_query().and_then(|all| all.as_str().strip_prefix(&*self.0)) else {
            return;
        };
        let rest = match rest.chars().next() {
            Some('/') => rest.to_owned(),
            None | Some('?') => format!("/{rest}"),
            // A longer name that only begins with the prefix.
            Some(_) => return,
        };
        let mut parts = std::mem::take(uri).into_parts();
        parts.path_and_query = rest.parse::<PathAndQuery>().ok();
        *uri = Uri::from_parts(parts).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_stripped_if_present() {
        let stripped = |text: &str| {
            let mut uri = text.parse().unwrap();
            Prefix::new("/ops/holdoff").strip(&mut uri);
            uri.to_string()
        };
        assert_eq!(stripped("/ops/holdoff/steps?state=failed"), "/steps?state=failed");
        assert_eq!(stripped("/ops/holdoff"), "/");
        assert_eq!(stripped("/ops/holdoff?a=b"), "/?a=b");
        assert_eq!(stripped("/ops/holdoffs/x"), "/ops/holdoffs/x");
        assert_eq!(stripped("/steps"), "/steps");
    }
}
