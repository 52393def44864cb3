//! A server that records its calls, and links to it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use holdoff_net::{
    AllowList, ConnectionId, ConnectionLimits, Handler, HandlerError, LinkOptions, Listener, Peer,
    PeerAddress, SecretKey, Server, ServerOptions, Stream, Transport, Turmoil, decode, encode,
};
use holdoff_policy::{Growth, Jitter, Policy};

pub(crate) const SERVER: &str = "server";

/// The idle timeout of both sides.
pub(crate) const IDLE: Duration = Duration::from_millis(900);

pub(crate) fn sim(seed: u64) -> turmoil::Sim<'static> {
    turmoil::Builder::new()
        .rng_seed(seed)
        .simulation_duration(Duration::from_secs(60))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(30))
        .tcp_capacity(1024)
        .build()
}

pub(crate) fn key(number: u8) -> SecretKey {
    SecretKey::from_secret(&[number; 32])
}

pub(crate) fn remote() -> PeerAddress {
    PeerAddress { key: key(0).public(), address: format!("{SERVER}:7878") }
}

/// Returns a policy with a constant delay.
pub(crate) fn policy(wait_ms: u64) -> Policy {
    let growth = Growth::constant(Duration::from_millis(wait_ms));
    Policy::builder(growth).jitter(Jitter::None).attempts(Policy::UNLIMITED).build().unwrap()
}

fn limits() -> ConnectionLimits {
    ConnectionLimits { idle_timeout: IDLE, ..ConnectionLimits::default() }
}

pub(crate) fn link_options(seed: u64) -> LinkOptions {
    let growth = Growth::exponential(Duration::from_millis(50), 2.0);
    let policy = Policy::builder(growth).jitter(Jitter::Full).cap(Duration::from_secs(1));
    LinkOptions {
        policy: policy.attempts(Policy::UNLIMITED).build().unwrap(),
        connect_timeout: Duration::from_secs(1),
        limits: limits(),
        transport: Arc::new(Turmoil),
        seed: Some(seed),
        ..LinkOptions::default()
    }
}

/// The record of the server's calls. It survives crashes of the server.
#[derive(Clone, Default)]
pub(crate) struct CallLog(Arc<Mutex<CallCounts>>);

#[derive(Default)]
struct CallCounts {
    done: BTreeMap<Vec<u8>, u32>,
    pushed: HashMap<ConnectionId, u64>,
}

impl CallLog {
    pub(crate) fn check_no_call_executed_twice(&self) {
        let counts = self.0.lock().unwrap();
        assert!(!counts.done.is_empty());
        assert!(counts.done.values().all(|times| *times == 1), "a call was carried out twice");
    }

    fn push_next(&self, peer: &Peer) {
        let mut counts = self.0.lock().unwrap();
        let next = counts.pushed.entry(peer.id()).or_default();
        // A dropped push counts as well: the other side must learn that one is missing.
        let _ = peer.push(&encode(&*next).unwrap());
        *next += 1;
    }
}

#[async_trait]
impl Handler for CallLog {
    async fn call(&self, peer: &Peer, request: Bytes) -> Result<Bytes, HandlerError> {
        if decode::<u64>(&request).is_ok() {
            let name = [peer.key().as_bytes(), &request[..]].concat();
            *self.0.lock().unwrap().done.entry(name).or_default() += 1;
        }
        // Varied delays let replies overtake each other.
        let pause = u64::from(request.last().copied().unwrap_or_default()) % 7;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        self.push_next(peer);
        Ok(request)
    }
}

/// Runs the server and pushes to every peer continuously, until the host crashes.
pub(crate) async fn serve(calls: CallLog) -> turmoil::Result {
    calls.0.lock().unwrap().pushed.clear();
    let options = ServerOptions {
        allow: AllowList::any(),
        limits: limits(),
        transport: Arc::new(Turmoil),
        ..ServerOptions::default()
    };
    let server = Server::start(&key(0), "0.0.0.0:7878", calls.clone(), options).await?;
    loop {
        server.peers().iter().for_each(|peer| calls.push_next(peer));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A transport that records the times of its connection attempts.
pub(crate) struct RecordingTransport(Arc<Mutex<Vec<Duration>>>);

impl RecordingTransport {
    pub(crate) fn new() -> (Arc<Self>, Arc<Mutex<Vec<Duration>>>) {
        let log = Arc::new(Mutex::default());
        (Arc::new(Self(Arc::clone(&log))), log)
    }
}

#[async_trait]
impl Transport for RecordingTransport {
    async fn connect(&self, address: &str) -> io::Result<Box<dyn Stream>> {
        self.0.lock().unwrap().push(turmoil::elapsed());
        Turmoil.connect(address).await
    }

    async fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        Turmoil.listen(address).await
    }
}
