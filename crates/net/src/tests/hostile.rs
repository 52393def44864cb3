//! Peers that violate the protocol or have vanished.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::support::{
    Meter, Place, Raw, anyone, echo, hello, impatient, new_key, quick, raw_server, soon, until,
};
use crate::wire::{Frame, Payload};
use crate::{Error, Heard, Limits, Link, LinkOptions, Refusal, Remote, ServerOptions, Status};

const PING: Bytes = Bytes::from_static(b"ping");

#[tokio::test]
async fn what_is_not_tls_ends_only_itself() {
    let meter = Meter::new();
    let place = Place::open(anyone(), echo).await;
    let (link, _hearing) = place.link();
    assert_eq!(link.call(PING).await.unwrap(), PING);
    let before = [
        b"GET / HTTP/1.1\r\nhost: here\r\n\r\n".as_slice(),
        &[0; 5000],
        &[0xff; 5000],
        b"\x16\x03\x01\xff\xff",
    ];
    for (count, garbage) in before.into_iter().enumerate() {
        let mut stream = TcpStream::connect(place.server.address()).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let _ = soon(stream.read_to_end(&mut Vec::new())).await;
        until(|| meter.of("handshakes_refused_total tls") > i64::try_from(count).unwrap()).await;
    }
    assert_eq!(link.call(PING).await.unwrap(), PING);
    assert_eq!(meter.of("connects_total connected"), 1, "the link's connection was never touched");
}

#[tokio::test]
async fn what_is_no_frame_ends_that_connection_with_a_reason() {
    let meter = Meter::new();
    let place = Place::open(anyone(), echo).await;
    let (link, _hearing) = place.link();
    assert_eq!(link.call(PING).await.unwrap(), PING);
    let oversized = [&u32::MAX.to_be_bytes()[..], &[0; 4096]].concat();
    let welcome = Frame::Welcome { version: 1, terms: Limits::default().terms() }.to_bytes();
    let cases: [(&[u8], &str); 6] = [
        (b"\0\0\0\x03\xff\xff\xff", "garbage"),
        (b"\0\0\0\0", "garbage"),
        (b"\0\0\0\x02\x08\x08", "garbage"),
        (b"\0\0\0\x04\x03\x01\x7fx", "garbage"),
        (&oversized, "too_large"),
        (&welcome, "out_of_turn"),
    ];
    for (bytes, name) in cases {
        for is_in in [true, false] {
            let metric = format!("malformed_total {name}");
            let before = meter.of(&metric);
            let mut raw = if is_in { Raw::welcomed(&place).await } else { Raw::connect(&place).await };
            raw.send(bytes).await;
            assert_eq!(raw.farewell().await, Refusal::Malformed, "{name}");
            assert_eq!(meter.of(&metric), before + 1, "{name}");
        }
    }
    assert_eq!(meter.of("handshakes_refused_total malformed"), 6);
    assert_eq!(link.call(PING).await.unwrap(), PING);
    assert_eq!(meter.of("connects_total connected"), 1);
}

#[tokio::test]
async fn a_frame_that_ends_in_the_middle_is_counted() {
    let meter = Meter::new();
    let mut place = Place::open(anyone(), echo).await;
    let mut raw = Raw::welcomed(&place).await;
    raw.send(b"\0\0\0\x10\x03").await;
    raw.stream.shutdown().await.unwrap();
    place.left().await;
    assert_eq!(meter.of("malformed_total truncated"), 1);
}

#[tokio::test]
async fn whoever_shakes_hands_slowly_keeps_others_out_only_so_long() {
    let meter = Meter::new();
    let handshake_timeout = Duration::from_millis(100);
    let place = Place::open(ServerOptions { max_handshakes: 1, handshake_timeout, ..anyone() }, echo).await;
    let mut mute = TcpStream::connect(place.server.address()).await.unwrap();
    let silent_after_tls = tokio::spawn({
        let (key, address) = (place.key.public(), place.server.address());
        async move {
            let connector = tokio_rustls::TlsConnector::from(crate::tls::client(&new_key(), key).unwrap());
            let stream = TcpStream::connect(address).await.unwrap();
            let mut stream = connector.connect(crate::tls::no_name(), stream).await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
    let (link, _hearing) = place.link();
    assert_eq!(soon(link.call(PING)).await.unwrap(), PING);
    assert_eq!(soon(mute.read(&mut [0; 1])).await.unwrap_or(0), 0, "it was shown out");
    soon(silent_after_tls).await.unwrap();
    until(|| meter.of("handshakes_refused_total timeout") == 2).await;
}

/// Forwards bytes until the switch makes them vanish.
async fn cable(to: &Remote) -> (Remote, watch::Sender<bool>) {
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
    (Remote { key: to.key, address }, switch)
}

async fn off(is_on: &mut watch::Receiver<bool>) {
    drop(is_on.wait_for(|is_on| !is_on).await);
}

#[tokio::test]
async fn a_peer_that_is_silently_gone_is_noticed_on_both_sides() {
    let mut place = Place::open(ServerOptions { limits: impatient(), ..anyone() }, echo).await;
    let (remote, switch) = cable(&place.remote()).await;
    // An attempt whose bytes vanish must end, too.
    let connect_timeout = Duration::from_secs(2);
    let options = LinkOptions { limits: impatient(), connect_timeout, ..quick() };
    let (link, mut hearing) = Link::new(&new_key(), remote, options).unwrap();
    assert_eq!(link.call(PING).await.unwrap(), PING);
    place.joined().await;
    switch.send_replace(false);
    let error = link.call_within(Duration::from_millis(20), PING).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { sent: true, .. }), "{error}");
    let error = link.call(PING).await.unwrap_err();
    assert!(matches!(&error, Error::Lost { why } if why == "nothing was heard for 200ms"), "{error}");
    place.left().await;
    switch.send_replace(true);
    place.joined().await;
    until(|| link.status() == Status::Connected).await;
    assert_eq!(link.call(PING).await.unwrap(), PING);
    assert_eq!(soon(hearing.next()).await, Some(Heard::Connected));
    assert_eq!(
        soon(hearing.next()).await,
        Some(Heard::Connected),
        "it is told that it may have missed something"
    );
}

#[tokio::test]
async fn two_who_have_nothing_to_say_stay_connected() {
    let meter = Meter::new();
    let place = Place::open(ServerOptions { limits: impatient(), ..anyone() }, echo).await;
    // Only the server has a short idle timeout; it announces the timeout to the link.
    let (link, _hearing) = place.link();
    link.connect().await.unwrap();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(link.call(PING).await.unwrap(), PING);
    assert_eq!(meter.of("connects_total connected"), 1);
}

#[tokio::test]
async fn replies_that_nobody_asked_for_are_ignored_and_counted() {
    let meter = Meter::new();
    let key = new_key();
    let (listener, acceptor, remote) = raw_server(&key).await;
    tokio::spawn(async move {
        let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        let mut decoder = crate::wire::Decoder::new(1 << 20);
        let _hello = decoder.next(&mut stream).await.unwrap();
        let welcome = Frame::Welcome { version: 1, terms: Limits::default().terms() };
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
    let (link, _hearing) = Link::new(&new_key(), remote, quick()).unwrap();
    for _ in 0..10 {
        assert_eq!(soon(link.call(PING)).await.unwrap(), "first");
    }
    until(|| meter.of("replies_ignored_total") == 20).await;
}

#[tokio::test]
async fn a_server_that_speaks_out_of_turn_is_left() {
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
        let (link, _hearing) = Link::new(&new_key(), remote, quick()).unwrap();
        let error = soon(link.call(PING)).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error}");
        assert!(!error.may_have_happened());
    }
}
