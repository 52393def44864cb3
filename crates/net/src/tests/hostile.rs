//! Peers that violate the protocol, have vanished, or send more than the limits allow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use super::{
    LONG, Meter, Raw, TestServer, any_peer, echo, hello, impatient, new_key, quick, raw_server, soon, until,
};
use crate::wire::{Frame, Payload};
use crate::{
    CloseReason, ConnectionLimits, Error, Link, LinkOptions, LinkStatus, PeerAddress, PushError, PushEvent,
    ServerOptions,
};

const PING: Bytes = Bytes::from_static(b"ping");

#[tokio::test]
async fn a_connection_without_tls_affects_no_other() {
    let meter = Meter::new();
    let server = TestServer::open(any_peer(), echo).await;
    let (link, _pushes) = server.link();
    assert_eq!(link.call(PING).await.unwrap(), PING);
    let before = [
        b"GET / HTTP/1.1\r\nhost: here\r\n\r\n".as_slice(),
        &[0; 5000],
        &[0xff; 5000],
        b"\x16\x03\x01\xff\xff",
    ];
    for (count, garbage) in before.into_iter().enumerate() {
        let mut stream = TcpStream::connect(server.inner.address()).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let _ = soon(stream.read_to_end(&mut Vec::new())).await;
        until(|| meter.of("handshakes_refused_total tls") > i64::try_from(count).unwrap()).await;
    }
    assert_eq!(link.call(PING).await.unwrap(), PING);
    assert_eq!(meter.of("connects_total connected"), 1, "the link's connection was never touched");
}

#[tokio::test]
async fn an_invalid_frame_closes_that_connection_with_a_reason() {
    let meter = Meter::new();
    let server = TestServer::open(any_peer(), echo).await;
    let (link, _pushes) = server.link();
    assert_eq!(link.call(PING).await.unwrap(), PING);
    let oversized = [&u32::MAX.to_be_bytes()[..], &[0; 4096]].concat();
    let welcome =
        Frame::Welcome { version: 1, role_version: 1, terms: ConnectionLimits::default().terms() }.to_bytes();
    let cases: [(&[u8], &str); 6] = [
        (b"\0\0\0\x03\xff\xff\xff", "invalid"),
        (b"\0\0\0\0", "invalid"),
        (b"\0\0\0\x02\x08\x08", "invalid"),
        (b"\0\0\0\x04\x03\x01\x7fx", "invalid"),
        (&oversized, "too_large"),
        (&welcome, "unexpected"),
    ];
    for (bytes, name) in cases {
        for is_in in [true, false] {
            let metric = format!("malformed_total {name}");
            let before = meter.of(&metric);
            let mut raw = if is_in { Raw::welcomed(&server).await } else { Raw::connect(&server).await };
            raw.send(bytes).await;
            assert_eq!(raw.close_reason().await, CloseReason::Malformed, "{name}");
            assert_eq!(meter.of(&metric), before + 1, "{name}");
        }
    }
    assert_eq!(meter.of("handshakes_refused_total malformed"), 6);
    assert_eq!(link.call(PING).await.unwrap(), PING);
    assert_eq!(meter.of("connects_total connected"), 1);
}

#[tokio::test]
async fn a_truncated_frame_is_counted() {
    let meter = Meter::new();
    let mut server = TestServer::open(any_peer(), echo).await;
    let mut raw = Raw::welcomed(&server).await;
    raw.send(b"\0\0\0\x10\x03").await;
    raw.stream.shutdown().await.unwrap();
    server.left().await;
    assert_eq!(meter.of("malformed_total truncated"), 1);
}

#[tokio::test]
async fn silent_strangers_delay_no_handshake() {
    let meter = Meter::new();
    let options = ServerOptions { max_handshakes: 3, handshake_timeout: LONG, ..any_peer() };
    let server = TestServer::open(options, echo).await;
    let address = server.inner.address();
    let of_another_network = tokio::net::TcpSocket::new_v4().unwrap();
    of_another_network.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut patient = of_another_network.connect(address).await.unwrap();
    let mut silent = Vec::new();
    for count in 0..6 {
        silent.push(TcpStream::connect(address).await.unwrap());
        until(|| meter.of("handshakes_refused_total evicted") == (count - 1).max(0)).await;
    }
    let (link, _pushes) = server.link();
    assert_eq!(soon(link.call(PING)).await.unwrap(), PING);
    for evicted in &mut silent[..5] {
        assert_eq!(
            soon(evicted.read(&mut [0; 1])).await.unwrap_or(0),
            0,
            "the oldest of its network gives way"
        );
    }
    let still_open = tokio::time::timeout(Duration::from_millis(50), patient.read(&mut [0; 1])).await;
    assert!(still_open.is_err(), "the only handshake of its network stays");
}

#[tokio::test]
async fn a_client_that_is_slow_in_the_handshake_is_disconnected() {
    let meter = Meter::new();
    let handshake_timeout = Duration::from_millis(100);
    let server = TestServer::open(ServerOptions { handshake_timeout, ..any_peer() }, echo).await;
    let mut mute = TcpStream::connect(server.inner.address()).await.unwrap();
    let silent_after_tls = tokio::spawn({
        let (key, address) = (server.key.public(), server.inner.address());
        async move {
            let connector = tokio_rustls::TlsConnector::from(crate::tls::client(&new_key(), key).unwrap());
            let stream = TcpStream::connect(address).await.unwrap();
            let mut stream = connector.connect(crate::tls::no_name(), stream).await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
    let (link, _pushes) = server.link();
    assert_eq!(soon(link.call(PING)).await.unwrap(), PING);
    assert_eq!(soon(mute.read(&mut [0; 1])).await.unwrap_or(0), 0, "the server closed the connection");
    soon(silent_after_tls).await.unwrap();
    until(|| meter.of("handshakes_refused_total timeout") == 2).await;
}

/// Forwards bytes until the switch makes them vanish.
async fn cable(to: &PeerAddress) -> (PeerAddress, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (switch, is_on) = watch::channel(true);
    let target = to.address.clone();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let mut is_on = is_on.clone();
            let far = TcpStream::connect(&target).await.unwrap();
            tokio::spawn(async move {
                let (mut near, mut far) = (near, far);
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    () = off(&mut is_on) => std::future::pending().await,
                }
            });
        }
    });
    (PeerAddress { key: to.key, address }, switch)
}

async fn off(is_on: &mut watch::Receiver<bool>) {
    drop(is_on.wait_for(|is_on| !is_on).await);
}

#[tokio::test]
async fn both_sides_detect_a_vanished_peer() {
    let mut server = TestServer::open(ServerOptions { limits: impatient(), ..any_peer() }, echo).await;
    let (remote, switch) = cable(&server.remote()).await;
    // An attempt whose bytes vanish must end, too.
    let connect_timeout = Duration::from_secs(2);
    let options = LinkOptions { limits: impatient(), connect_timeout, ..quick() };
    let (link, mut pushes) = Link::new(&new_key(), remote, options).unwrap();
    assert_eq!(link.call(PING).await.unwrap(), PING);
    server.joined().await;
    switch.send_replace(false);
    let error = link.call_within(Duration::from_millis(20), PING).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { is_sent: true, .. }), "{error}");
    let error = link.call(PING).await.unwrap_err();
    assert!(
        matches!(&error, Error::Lost { source } if source.to_string() == "the peer sent nothing for 200ms"),
        "{error}"
    );
    server.left().await;
    switch.send_replace(true);
    server.joined().await;
    until(|| link.status() == LinkStatus::Connected).await;
    assert_eq!(link.call(PING).await.unwrap(), PING);
    assert_eq!(soon(pushes.next()).await, Some(PushEvent::Connected));
    assert_eq!(
        soon(pushes.next()).await,
        Some(PushEvent::Connected),
        "the reader learns that pushes may be missing"
    );
}

#[tokio::test]
async fn keep_alives_hold_an_idle_connection_open() {
    let meter = Meter::new();
    let server = TestServer::open(ServerOptions { limits: impatient(), ..any_peer() }, echo).await;
    // Only the server has a short idle timeout; it announces the timeout to the link.
    let (link, _pushes) = server.link();
    link.connect().await.unwrap();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(link.call(PING).await.unwrap(), PING);
    assert_eq!(meter.of("connects_total connected"), 1);
}

#[tokio::test]
async fn unrequested_replies_are_ignored_and_counted() {
    let meter = Meter::new();
    let key = new_key();
    let (listener, acceptor, remote) = raw_server(&key).await;
    tokio::spawn(async move {
        let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        let mut decoder = crate::wire::Decoder::new(1 << 20);
        let _hello = decoder.next(&mut stream).await.unwrap();
        let welcome =
            Frame::Welcome { version: 1, role_version: 1, terms: ConnectionLimits::default().terms() };
        stream.write_all(&welcome.to_bytes()).await.unwrap();
        while let Ok(body) = decoder.next(&mut stream).await {
            let Ok(Frame::Call { id, .. }) = Frame::read(&body) else { continue };
            for (id, payload) in [(id + 1000, "unknown"), (id, "first"), (id, "second")] {
                let reply = Frame::Reply { id, payload: Payload(payload.as_bytes()) };
                stream.write_all(&reply.to_bytes()).await.unwrap();
            }
            stream.flush().await.unwrap();
        }
    });
    let (link, _pushes) = Link::new(&new_key(), remote, quick()).unwrap();
    for _ in 0..10 {
        assert_eq!(soon(link.call(PING)).await.unwrap(), "first");
    }
    until(|| meter.of("replies_ignored_total") == 20).await;
}

#[tokio::test]
async fn a_link_disconnects_from_a_server_that_sends_no_welcome() {
    let key = new_key();
    for first in [hello().to_bytes(), Bytes::from_static(b"\0\0\0\x01\xff"), Bytes::from_static(&[0xff; 64])]
    {
        let (listener, acceptor, remote) = raw_server(&key).await;
        tokio::spawn(async move {
            let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
            stream.write_all(&first).await.unwrap();
            stream.flush().await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
        let (link, _pushes) = Link::new(&new_key(), remote, quick()).unwrap();
        let error = soon(link.call(PING)).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error}");
        assert!(!error.may_have_executed());
    }
}

#[tokio::test]
async fn a_server_at_its_call_limit_stops_reading() {
    let gate = Arc::new(Semaphore::new(0));
    let begun = Arc::new(AtomicUsize::new(0));
    let (opened, counted) = (gate.clone(), begun.clone());
    let limits = ConnectionLimits { max_in_flight: 4, ..ConnectionLimits::default() };
    let server = TestServer::open(ServerOptions { limits, ..any_peer() }, move |_, request: Bytes| {
        let (gate, begun) = (opened.clone(), counted.clone());
        async move {
            begun.fetch_add(1, Ordering::SeqCst);
            gate.acquire().await.unwrap().forget();
            Ok(request.slice(..1))
        }
    })
    .await;
    let mut raw = Raw::welcomed(&server).await;
    let request = vec![7; 1 << 19];
    // The client offers half a gigabyte; the bytes beyond the system's buffers stay with the client.
    let mut sent: u64 = 0;
    while sent < 1024 {
        let frame = Frame::Call { id: sent, payload: Payload(&request) }.to_bytes();
        let writing = async {
            raw.stream.write_all(&frame).await.unwrap();
            raw.stream.flush().await.unwrap();
        };
        if tokio::time::timeout(Duration::from_millis(300), writing).await.is_err() {
            break;
        }
        sent += 1;
    }
    assert!(sent < 64, "{sent} frames of half a megabyte were accepted");
    assert_eq!(begun.load(Ordering::SeqCst), 4);
    gate.add_permits(5000);
    let body = raw.next_frame().await.unwrap();
    assert!(
        matches!(Frame::read(&body), Ok(Frame::Reply { .. })),
        "the server continues as soon as there is room"
    );
}

#[tokio::test]
async fn a_peer_that_does_not_read_its_replies_is_disconnected() {
    let answered = Arc::new(AtomicUsize::new(0));
    let counted = answered.clone();
    let reply = Bytes::from(vec![7; 1 << 19]);
    let limits = ConnectionLimits { max_in_flight: 4, max_queued: 4, ..impatient() };
    let mut server = TestServer::open(ServerOptions { limits, ..any_peer() }, move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        let reply = reply.clone();
        async move { Ok(reply) }
    })
    .await;
    let mut raw = Raw::welcomed(&server).await;
    let calls: Vec<u8> =
        (0..10_000).flat_map(|id| Frame::Call { id, payload: Payload(b"x") }.to_bytes()).collect();
    raw.send(&calls).await;
    server.left().await;
    let answered = answered.load(Ordering::SeqCst);
    assert!(
        answered < 100,
        "{answered} replies of half a megabyte were computed for a peer that does not read"
    );
}

#[tokio::test]
async fn pushes_to_a_slow_reader_are_dropped_counted_and_numbered() {
    let meter = Meter::new();
    let limits = ConnectionLimits { max_queued: 10, ..ConnectionLimits::default() };
    let mut server = TestServer::open(ServerOptions { limits, ..any_peer() }, echo).await;
    let mut raw = Raw::welcomed(&server).await;
    let peer = server.joined().await;
    let message = vec![7; 1 << 18];
    let mut numbers = Vec::new();
    let mut dropped = 0;
    // The pause lets the connection's task run until the system's buffers are full.
    while dropped < 100 {
        match peer.push(&message) {
            Ok(()) => numbers.push(numbers.len() + dropped),
            Err(PushError::Full) => dropped += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(numbers.len() < 1000, "every message was accepted");
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    assert_eq!(meter.of("pushes_dropped_total server"), 100);
    for number in &numbers {
        assert_eq!(next_push(&mut raw).await, (u64::try_from(*number).unwrap(), 1 << 18));
    }
    // There is room again, and the numbers show how many pushes are missing.
    peer.push(b"again").unwrap();
    assert_eq!(next_push(&mut raw).await, (u64::try_from(numbers.len() + dropped).unwrap(), 5));
}

/// Returns the number and the size of the next push.
async fn next_push(raw: &mut Raw) -> (u64, usize) {
    loop {
        let body = raw.next_frame().await.unwrap();
        match Frame::read(&body) {
            Ok(Frame::Push { number, payload }) => return (number, payload.0.len()),
            other => assert_eq!(other, Ok(Frame::KeepAlive)),
        }
    }
}

#[tokio::test]
async fn unread_pushes_delay_no_reply() {
    let meter = Meter::new();
    let mut server = TestServer::open(any_peer(), echo).await;
    let limits = ConnectionLimits { max_queued: 8, ..ConnectionLimits::default() };
    let (link, mut pushes) = server.link_as(&new_key(), LinkOptions { limits, ..quick() });
    link.connect().await.unwrap();
    let peer = server.joined().await;
    for number in 0..100_u8 {
        peer.push(&[number]).unwrap();
    }
    until(|| meter.of("pushes_dropped_total link") == 93).await;
    assert_eq!(link.call(PING).await.unwrap(), PING);
    assert_eq!(pushes.try_next(), Some(PushEvent::Connected));
    for number in 0..7_u8 {
        assert_eq!(pushes.try_next(), Some(PushEvent::Push(vec![number].into())));
    }
    assert_eq!(pushes.try_next(), None);
    peer.push(b"again").unwrap();
    assert_eq!(soon(pushes.next()).await, Some(PushEvent::Missed(93)));
    assert_eq!(soon(pushes.next()).await, Some(PushEvent::Push(Bytes::from_static(b"again"))));
    // A caller that drops the receiver of pushes loses nothing else.
    drop(pushes);
    peer.push(b"dropped").unwrap();
    assert_eq!(link.call(PING).await.unwrap(), PING);
    assert_eq!(meter.of("pushes_dropped_total link"), 93);
}

/// A handler that processes a message only when it gets a permit.
struct Slow(Arc<Semaphore>);
#[async_trait::async_trait]
impl crate::Handler for Slow {
    async fn call(&self, _: &crate::Peer, request: Bytes) -> Result<Bytes, crate::HandlerError> {
        Ok(request)
    }
    async fn on_message(&self, _: &crate::Peer, _: Bytes) {
        self.0.acquire().await.unwrap().forget();
    }
}

#[tokio::test]
async fn a_message_waits_for_room_until_its_deadline() {
    let gate = Arc::new(Semaphore::new(0));
    let key = new_key();
    let server = crate::Server::start(&key, "127.0.0.1:0", Slow(gate.clone()), any_peer()).await.unwrap();
    let remote = crate::PeerAddress { key: key.public(), address: server.address().to_string() };
    let limits = ConnectionLimits { max_queued: 4, ..ConnectionLimits::default() };
    let options = LinkOptions { limits, call_timeout: Duration::from_millis(300), ..quick() };
    let (link, _pushes) = crate::Link::new(&new_key(), remote, options).unwrap();
    let message = Bytes::from(vec![7; 1 << 19]);
    let mut sent_count = 0;
    let error = loop {
        match link.send(message.clone()).await {
            Ok(()) => sent_count += 1,
            Err(error) => break error,
        }
        assert!(sent_count < 100, "every message was accepted");
    };
    assert!(matches!(error, Error::Deadline { is_sent: false, .. }), "{error}");
    gate.add_permits(1000);
    assert_eq!(link.call_within(LONG, PING).await.unwrap(), PING);
}
