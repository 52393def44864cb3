//! Tests over real sockets on loopback: the test server, links to it, a raw TLS client and server that ignore the protocol,
//! and a reader of metrics.

mod admission;
mod hostile;
mod messaging;
mod reconnecting;
mod sending;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use holdoff_policy::{Growth, Jitter, Policy};
use metrics::LocalRecorderGuard;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsConnector, rustls};

use crate::role::RoleOffer;
use crate::wire::{AnnouncedLimits, Decoder, Frame, VERSION};
use crate::{
    AllowList, CloseReason, ConnectionLimits, Handler, HandlerError, Link, LinkOptions, Peer, PeerAddress,
    PublicKey, PushReceiver, SecretKey, Server, ServerOptions, tls,
};

/// Long enough for every expected event on a busy machine.
const LONG: Duration = Duration::from_secs(20);

/// An event of the server.
#[derive(Clone, Debug)]
enum Event {
    Joined(Peer),
    Message(Bytes),
    Left(PublicKey),
}

/// A handler that answers with a function and reports all other events.
struct TestHandler<F> {
    answer: F,
    events: mpsc::UnboundedSender<Event>,
}

#[async_trait]
impl<F, A> Handler for TestHandler<F>
where
    F: Fn(Peer, Bytes) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Bytes, HandlerError>> + Send,
{
    async fn call(&self, peer: &Peer, request: Bytes) -> Result<Bytes, HandlerError> {
        (self.answer)(peer.clone(), request).await
    }

    async fn on_message(&self, _peer: &Peer, message: Bytes) {
        let _ = self.events.send(Event::Message(message));
    }

    fn on_connect(&self, peer: &Peer) {
        let _ = self.events.send(Event::Joined(peer.clone()));
    }

    fn on_disconnect(&self, peer: &Peer) {
        let _ = self.events.send(Event::Left(peer.key()));
    }
}

/// A server and its events.
struct TestServer {
    inner: Server,
    key: SecretKey,
    events: mpsc::UnboundedReceiver<Event>,
}

fn any_peer() -> ServerOptions {
    ServerOptions { allow: AllowList::any(), ..ServerOptions::default() }
}

async fn echo(_peer: Peer, request: Bytes) -> Result<Bytes, HandlerError> {
    Ok(request)
}

impl TestServer {
    async fn open<F, A>(options: ServerOptions, answer: F) -> Self
    where
        F: Fn(Peer, Bytes) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Bytes, HandlerError>> + Send,
    {
        Self::open_as(&new_key(), "127.0.0.1:0", options, answer).await
    }

    async fn open_as<F, A>(key: &SecretKey, address: &str, options: ServerOptions, answer: F) -> Self
    where
        F: Fn(Peer, Bytes) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Bytes, HandlerError>> + Send,
    {
        let (sender, events) = mpsc::unbounded_channel();
        let handler = TestHandler { answer, events: sender };
        let inner = Server::start(key, address, handler, options).await.unwrap();
        Self { inner, key: key.clone(), events }
    }

    fn remote(&self) -> PeerAddress {
        PeerAddress { key: self.key.public(), address: self.inner.address().to_string() }
    }

    fn link(&self) -> (Link, PushReceiver) {
        self.link_as(&new_key(), quick())
    }

    fn link_as(&self, key: &SecretKey, options: LinkOptions) -> (Link, PushReceiver) {
        Link::new(key, self.remote(), options).unwrap()
    }

    async fn event(&mut self) -> Event {
        soon(self.events.recv()).await.expect("the server is running")
    }

    /// Waits for the next peer that connects.
    async fn joined(&mut self) -> Peer {
        loop {
            if let Event::Joined(peer) = self.event().await {
                return peer;
            }
        }
    }

    async fn left(&mut self) -> PublicKey {
        loop {
            if let Event::Left(key) = self.event().await {
                return key;
            }
        }
    }

    async fn message(&mut self) -> Bytes {
        loop {
            if let Event::Message(message) = self.event().await {
                return message;
            }
        }
    }
}

fn new_key() -> SecretKey {
    SecretKey::generate().unwrap()
}

/// Options of a link with short delays.
fn quick() -> LinkOptions {
    let ten = Duration::from_millis(10);
    let policy = Policy::builder(Growth::constant(ten)).jitter(Jitter::None).attempts(Policy::UNLIMITED);
    LinkOptions {
        policy: policy.build().unwrap(),
        slow_retry: ten,
        call_timeout: LONG,
        connect_timeout: LONG,
        ..LinkOptions::default()
    }
}

/// Limits with a short idle timeout.
fn impatient() -> ConnectionLimits {
    ConnectionLimits { idle_timeout: Duration::from_millis(200), ..ConnectionLimits::default() }
}

/// Awaits the future, which must complete within [`LONG`].
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("the future did not complete in time")
}

/// Waits for a condition that no event reports.
async fn until(mut is_so: impl FnMut() -> bool) {
    soon(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// A client that has a key and speaks TLS, but sends arbitrary bytes.
struct Raw {
    stream: TlsStream<TcpStream>,
    decoder: Decoder,
}

impl Raw {
    async fn connect(server: &TestServer) -> Self {
        Self::connect_as(&new_key(), server).await
    }

    async fn connect_as(key: &SecretKey, server: &TestServer) -> Self {
        let stream = TcpStream::connect(server.inner.address()).await.unwrap();
        let connector = TlsConnector::from(tls::client(key, server.key.public()).unwrap());
        let stream = connector.connect(tls::no_name(), stream).await.unwrap();
        Self { stream, decoder: Decoder::new(usize::MAX) }
    }

    /// Connects and completes the hello.
    async fn welcomed(server: &TestServer) -> Self {
        let mut raw = Self::connect(server).await;
        raw.send_frame(hello()).await;
        assert!(matches!(Frame::read(&raw.next_frame().await.unwrap()), Ok(Frame::Welcome { .. })));
        raw
    }

    async fn send_frame(&mut self, frame: Frame<'_>) {
        self.send(&frame.to_bytes()).await;
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Returns the next frame, or `None` when the connection has ended.
    async fn next_frame(&mut self) -> Option<Bytes> {
        soon(self.decoder.next(&mut self.stream)).await.ok()
    }

    /// Returns the reason of the closing frame, and checks that nothing follows.
    async fn close_reason(mut self) -> CloseReason {
        let reason = loop {
            let body = self.next_frame().await.expect("a refused client receives a reason");
            match Frame::read(&body).unwrap() {
                Frame::Close { reason } => break reason,
                Frame::KeepAlive => {}
                other => panic!("{other:?} is not a closing frame"),
            }
        };
        let mut rest = Vec::new();
        let _ = soon(self.stream.read_to_end(&mut rest)).await;
        assert_eq!(rest, b"");
        reason
    }
}

fn hello() -> Frame<'static> {
    let terms = AnnouncedLimits::new(1 << 20, Duration::from_secs(30));
    Frame::Hello {
        oldest: VERSION,
        newest: VERSION,
        role: RoleOffer { name: "raw", oldest: 1, newest: 1 },
        terms,
    }
}

/// A TLS server with a raw public key that sends arbitrary bytes.
async fn raw_server(key: &SecretKey) -> (tokio::net::TcpListener, tokio_rustls::TlsAcceptor, PeerAddress) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config: std::sync::Arc<rustls::ServerConfig> = tls::server(key).unwrap();
    let remote = PeerAddress { key: key.public(), address: listener.local_addr().unwrap().to_string() };
    (listener, config.into(), remote)
}

/// The metrics recorded on this thread during its lifetime.
struct Meter {
    snapshotter: Snapshotter,
    totals: Mutex<BTreeMap<String, i64>>,
    _guard: LocalRecorderGuard<'static>,
}

impl Meter {
    fn new() -> Self {
        let recorder: &'static DebuggingRecorder = Box::leak(Box::default());
        let snapshotter = recorder.snapshotter();
        Self { snapshotter, totals: Mutex::default(), _guard: metrics::set_default_local_recorder(recorder) }
    }

    /// Returns the value of a metric, by its name without the prefix and the values of its labels: `calls_total ok`.
    fn of(&self, name: &str) -> i64 {
        let mut totals = self.totals.lock().unwrap();
        // A snapshot resets the counters that it reads.
        for (key, _, _, value) in self.snapshotter.snapshot().into_vec() {
            let labels = key.key().labels().map(|label| format!(" {}", label.value()));
            let name =
                key.key().name().trim_start_matches("holdoff_net_").to_owned() + &labels.collect::<String>();
            let total = totals.entry(name).or_default();
            match value {
                DebugValue::Counter(count) => *total += i64::try_from(count).unwrap(),
                DebugValue::Gauge(change) => *total += change.to_string().parse::<i64>().unwrap(),
                DebugValue::Histogram(values) => *total += i64::try_from(values.len()).unwrap(),
            }
        }
        totals.get(name).copied().unwrap_or_default()
    }
}
