//! Overload: input above a limit waits, or is dropped and counted; no memory grows without bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;

use super::support::{LONG, Meter, Place, Raw, anyone, echo, impatient, new_key, quick, soon, until};
use crate::wire::{Frame, Payload};
use crate::{Error, Heard, Limits, LinkOptions, NotPushed, ServerOptions};

const PING: Bytes = Bytes::from_static(b"ping");

#[tokio::test]
async fn a_flood_of_calls_stays_unread() {
    let gate = Arc::new(Semaphore::new(0));
    let begun = Arc::new(AtomicUsize::new(0));
    let (opened, counted) = (gate.clone(), begun.clone());
    let limits = Limits { max_in_flight: 4, ..Limits::default() };
    let place = Place::open(ServerOptions { limits, ..anyone() }, move |_, request: Bytes| {
        let (gate, begun) = (opened.clone(), counted.clone());
        async move {
            begun.fetch_add(1, Ordering::SeqCst);
            gate.acquire().await.unwrap().forget();
            Ok(request.slice(..1))
        }
    })
    .await;
    let mut raw = Raw::welcomed(&place).await;
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
    assert!(sent < 64, "{sent} frames of half a megabyte were taken in");
    assert_eq!(begun.load(Ordering::SeqCst), 4);
    gate.add_permits(5000);
    let body = raw.hear().await.unwrap();
    assert!(matches!(Frame::read(&body), Ok(Frame::Reply { .. })), "and it goes on as soon as there is room");
}

#[tokio::test]
async fn whoever_does_not_read_its_replies_is_not_read_either_and_then_cut() {
    let answered = Arc::new(AtomicUsize::new(0));
    let counted = answered.clone();
    let reply = Bytes::from(vec![7; 1 << 19]);
    let limits = Limits { max_in_flight: 4, max_queued: 4, ..impatient() };
    let mut place = Place::open(ServerOptions { limits, ..anyone() }, move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        let reply = reply.clone();
        async move { Ok(reply) }
    })
    .await;
    let mut raw = Raw::welcomed(&place).await;
    let calls: Vec<u8> =
        (0..10_000).flat_map(|id| Frame::Call { id, payload: Payload(b"x") }.to_bytes()).collect();
    raw.send(&calls).await;
    place.left().await;
    let answered = answered.load(Ordering::SeqCst);
    assert!(answered < 100, "{answered} replies of half a megabyte were made for nobody");
}

#[tokio::test]
async fn pushes_to_a_slow_reader_are_dropped_counted_and_known_to_be_missing() {
    let meter = Meter::new();
    let limits = Limits { max_queued: 10, ..Limits::default() };
    let mut place = Place::open(ServerOptions { limits, ..anyone() }, echo).await;
    let mut raw = Raw::welcomed(&place).await;
    let peer = place.joined().await;
    let message = vec![7; 1 << 18];
    let mut numbers = Vec::new();
    let mut dropped = 0;
    // The pause lets the connection's task run until the system's buffers are full.
    while dropped < 100 {
        match peer.push(&message) {
            Ok(()) => numbers.push(numbers.len() + dropped),
            Err(NotPushed::Full) => dropped += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(numbers.len() < 1000, "everything is taken in");
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
        let body = raw.hear().await.unwrap();
        match Frame::read(&body) {
            Ok(Frame::Push { number, payload }) => return (number, payload.0.len()),
            other => assert_eq!(other, Ok(Frame::Alive)),
        }
    }
}

#[tokio::test]
async fn pushes_that_are_not_listened_to_delay_no_reply() {
    let meter = Meter::new();
    let mut place = Place::open(anyone(), echo).await;
    let limits = Limits { max_queued: 8, ..Limits::default() };
    let (link, mut hearing) = place.link_as(&new_key(), LinkOptions { limits, ..quick() });
    link.connect().await.unwrap();
    let peer = place.joined().await;
    for number in 0..100_u8 {
        peer.push(&[number]).unwrap();
    }
    until(|| meter.of("pushes_dropped_total link") == 93).await;
    assert_eq!(link.call(PING).await.unwrap(), PING);
    assert_eq!(hearing.try_next(), Some(Heard::Connected));
    for number in 0..7_u8 {
        assert_eq!(hearing.try_next(), Some(Heard::Push(vec![number].into())));
    }
    assert_eq!(hearing.try_next(), None);
    peer.push(b"again").unwrap();
    assert_eq!(soon(hearing.next()).await, Some(Heard::Missed(93)));
    assert_eq!(soon(hearing.next()).await, Some(Heard::Push(Bytes::from_static(b"again"))));
    // A caller that drops the receiver of pushes loses nothing else.
    drop(hearing);
    peer.push(b"to nobody").unwrap();
    assert_eq!(link.call(PING).await.unwrap(), PING);
    assert_eq!(meter.of("pushes_dropped_total link"), 93);
}

/// A handler that processes a message only when it gets a permit.
struct Slow(Arc<Semaphore>);
#[async_trait::async_trait]
impl crate::Handler for Slow {
    async fn call(&self, _: &crate::Peer, request: Bytes) -> Result<Bytes, crate::Fault> {
        Ok(request)
    }
    async fn told(&self, _: &crate::Peer, _: Bytes) {
        self.0.acquire().await.unwrap().forget();
    }
}

#[tokio::test]
async fn messages_wait_for_room_and_not_for_ever() {
    let gate = Arc::new(Semaphore::new(0));
    let key = new_key();
    let server = crate::Server::start(&key, "127.0.0.1:0", Slow(gate.clone()), anyone()).await.unwrap();
    let remote = crate::Remote { key: key.public(), address: server.address().to_string() };
    let limits = Limits { max_queued: 4, ..Limits::default() };
    let options = LinkOptions { limits, call_timeout: Duration::from_millis(300), ..quick() };
    let (link, _hearing) = crate::Link::new(&new_key(), remote, options).unwrap();
    let message = Bytes::from(vec![7; 1 << 19]);
    let mut told = 0;
    let error = loop {
        match link.tell(message.clone()).await {
            Ok(()) => told += 1,
            Err(error) => break error,
        }
        assert!(told < 100, "everything is taken in");
    };
    assert!(matches!(error, Error::Deadline { sent: false, .. }), "{error}");
    gate.add_permits(1000);
    assert_eq!(link.call_within(LONG, PING).await.unwrap(), PING);
}
