//! The tests' server, links to it, a raw TLS client and server that ignore the protocol, and a reader of metrics.

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

use crate::wire::{Decoder, Frame, Terms, VERSION};
use crate::{
    Allow, Fault, Handler, Hearing, Key, Limits, Link, LinkOptions, Peer, PublicKey, Refusal, Remote, Server,
    ServerOptions, tls,
};

/// Long enough for every expected event on a busy machine.
pub(super) const LONG: Duration = Duration::from_secs(20);

/// An event of the server.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Joined(Peer),
    Told(Bytes),
    Left(PublicKey),
}

/// A handler that answers with a function and reports all other events.
pub(super) struct House<F> {
    answer: F,
    events: mpsc::UnboundedSender<Event>,
}

#[async_trait]
impl<F, A> Handler for House<F>
where
    F: Fn(Peer, Bytes) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Bytes, Fault>> + Send,
{
    async fn call(&self, peer: &Peer, request: Bytes) -> Result<Bytes, Fault> {
        (self.answer)(peer.clone(), request).await
    }

    async fn told(&self, _peer: &Peer, message: Bytes) {
        let _ = self.events.send(Event::Told(message));
    }

    fn joined(&self, peer: &Peer) {
        let _ = self.events.send(Event::Joined(peer.clone()));
    }

    fn left(&self, peer: &Peer) {
        let _ = self.events.send(Event::Left(peer.key()));
    }
}

/// A server and its events.
pub(super) struct Place {
    pub(super) server: Server,
    pub(super) key: Key,
    events: mpsc::UnboundedReceiver<Event>,
}

pub(super) fn anyone() -> ServerOptions {
    ServerOptions { allow: Allow::anyone(), ..ServerOptions::default() }
}

pub(super) async fn echo(_peer: Peer, request: Bytes) -> Result<Bytes, Fault> {
    Ok(request)
}

impl Place {
    pub(super) async fn open<F, A>(options: ServerOptions, answer: F) -> Self
    where
        F: Fn(Peer, Bytes) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Bytes, Fault>> + Send,
    {
        Self::open_as(&new_key(), "127.0.0.1:0", options, answer).await
    }

    pub(super) async fn open_as<F, A>(key: &Key, address: &str, options: ServerOptions, answer: F) -> Self
    where
        F: Fn(Peer, Bytes) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Bytes, Fault>> + Send,
    {
        let (sender, events) = mpsc::unbounded_channel();
        let house = House { answer, events: sender };
        let server = Server::start(key, address, house, options).await.unwrap();
        Self { server, key: key.clone(), events }
    }

    pub(super) fn remote(&self) -> Remote {
        Remote { key: self.key.public(), address: self.server.address().to_string() }
    }

    pub(super) fn link(&self) -> (Link, Hearing) {
        self.link_as(&new_key(), quick())
    }

    pub(super) fn link_as(&self, key: &Key, options: LinkOptions) -> (Link, Hearing) {
        Link::new(key, self.remote(), options).unwrap()
    }

    pub(super) async fn event(&mut self) -> Event {
        soon(self.events.recv()).await.expect("the server is there")
    }

    /// Waits for the next peer that connects.
    pub(super) async fn joined(&mut self) -> Peer {
        loop {
            if let Event::Joined(peer) = self.event().await {
                return peer;
            }
        }
    }

    pub(super) async fn left(&mut self) -> PublicKey {
        loop {
            if let Event::Left(key) = self.event().await {
                return key;
            }
        }
    }

    pub(super) async fn told(&mut self) -> Bytes {
        loop {
            if let Event::Told(message) = self.event().await {
                return message;
            }
        }
    }
}

pub(super) fn new_key() -> Key {
    Key::generate().unwrap()
}

/// Options of a link with short delays.
pub(super) fn quick() -> LinkOptions {
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
pub(super) fn impatient() -> Limits {
    Limits { idle_timeout: Duration::from_millis(200), ..Limits::default() }
}

/// Awaits the future, which must complete within [`LONG`].
pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("this should have happened by now")
}

/// Waits for a condition that no event reports.
pub(super) async fn until(mut is_so: impl FnMut() -> bool) {
    soon(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// A client that has a key and speaks TLS, but sends arbitrary bytes.
pub(super) struct Raw {
    pub(super) stream: TlsStream<TcpStream>,
    decoder: Decoder,
}

impl Raw {
    pub(super) async fn connect(place: &Place) -> Self {
        Self::connect_as(&new_key(), place).await
    }

    pub(super) async fn connect_as(key: &Key, place: &Place) -> Self {
        let stream = TcpStream::connect(place.server.address()).await.unwrap();
        let connector = TlsConnector::from(tls::client(key, place.key.public()).unwrap());
        let stream = connector.connect(tls::no_name(), stream).await.unwrap();
        Self { stream, decoder: Decoder::new(usize::MAX) }
    }

    /// Connects and completes the hello.
    pub(super) async fn welcomed(place: &Place) -> Self {
        let mut raw = Self::connect(place).await;
        raw.say(hello()).await;
        assert!(matches!(Frame::read(&raw.hear().await.unwrap()), Ok(Frame::Welcome { .. })));
        raw
    }

    pub(super) async fn say(&mut self, frame: Frame<'_>) {
        self.send(&frame.to_bytes()).await;
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Returns the next frame, or `None` when the connection has ended.
    pub(super) async fn hear(&mut self) -> Option<Bytes> {
        soon(self.decoder.next(&mut self.stream)).await.ok()
    }

    /// Returns the reason of the closing frame, and checks that nothing follows.
    pub(super) async fn farewell(mut self) -> Refusal {
        let reason = loop {
            let body = self.hear().await.expect("nobody is sent away without a word");
            match Frame::read(&body).unwrap() {
                Frame::Bye { reason } => break reason,
                Frame::Alive => {}
                other => panic!("{other:?} is no farewell"),
            }
        };
        let mut rest = Vec::new();
        let _ = soon(self.stream.read_to_end(&mut rest)).await;
        assert_eq!(rest, b"");
        reason
    }
}

pub(super) fn hello() -> Frame<'static> {
    let terms = Terms::new(1 << 20, Duration::from_secs(30));
    Frame::Hello { oldest: VERSION, newest: VERSION, role: "raw", terms }
}

/// A TLS server with a raw public key that sends arbitrary bytes.
pub(super) async fn raw_server(key: &Key) -> (tokio::net::TcpListener, tokio_rustls::TlsAcceptor, Remote) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config: std::sync::Arc<rustls::ServerConfig> = tls::server(key).unwrap();
    let remote = Remote { key: key.public(), address: listener.local_addr().unwrap().to_string() };
    (listener, config.into(), remote)
}

/// The metrics recorded on this thread during its lifetime.
pub(super) struct Meter {
    snapshotter: Snapshotter,
    totals: Mutex<BTreeMap<String, i64>>,
    _guard: LocalRecorderGuard<'static>,
}

impl Meter {
    pub(super) fn new() -> Self {
        let recorder: &'static DebuggingRecorder = Box::leak(Box::default());
        let snapshotter = recorder.snapshotter();
        Self { snapshotter, totals: Mutex::default(), _guard: metrics::set_default_local_recorder(recorder) }
    }

    /// Returns the value of a metric, by its name without the prefix and the values of its labels: `calls_total ok`.
    pub(super) fn of(&self, name: &str) -> i64 {
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
