//! Messages that are queued, merged and dropped.

use tokio::net::TcpListener;

use super::{Meter, TestServer, any_peer, echo, new_key, quick, soon, until};
use crate::{
    ConnectionLimits, EncodedSize, Link, LinkStatus, MessageSender, PeerAddress, SenderLimits, ServerOptions,
    decode,
};

impl EncodedSize for u32 {
    fn encoded_bytes(&self) -> usize {
        4
    }
}

const LIMITS: SenderLimits = SenderLimits { max_queued_bytes: 1 << 20, max_merged_bytes: 400 };

/// Returns the messages of the next frames, until this many have arrived, and the number of frames.
async fn receive(server: &mut TestServer, count: usize) -> (Vec<u32>, usize) {
    let (mut messages, mut frames) = (Vec::new(), 0);
    while messages.len() < count {
        messages.extend(decode::<Vec<u32>>(&server.message().await).unwrap());
        frames += 1;
    }
    (messages, frames)
}

#[tokio::test]
async fn messages_arrive_in_order_and_merged() {
    let mut server = TestServer::open(any_peer(), echo).await;
    let (link, _pushes) = server.link();
    let sender = MessageSender::<u32>::start(link, LIMITS);
    assert!((0..1000).all(|number| sender.send(number)));
    let (messages, frames) = receive(&mut server, 1000).await;
    assert_eq!(messages, (0..1000).collect::<Vec<_>>());
    assert!((10..=20).contains(&frames), "{frames} frames of at most 100 messages");
    assert!(sender.link().call(bytes::Bytes::from_static(b"the link takes calls, too")).await.is_ok());
}

#[tokio::test]
async fn queued_messages_are_sent_after_the_sender_is_dropped() {
    let mut server = TestServer::open(any_peer(), echo).await;
    let key = new_key();
    let (link, _pushes) = server.link_as(&key, quick());
    let sender = MessageSender::<u32>::start(link, LIMITS);
    assert!((0..1000).all(|number| sender.send(number)));
    drop(sender);
    assert_eq!(receive(&mut server, 1000).await.0.len(), 1000);
    assert_eq!(server.left().await, key.public());
}

#[tokio::test]
async fn a_full_queue_drops_messages_together_and_an_empty_one_accepts_any_size() {
    let (server, meter) = (TestServer::open(any_peer(), echo).await, Meter::new());
    let (link, _pushes) = server.link();
    let limits = SenderLimits { max_queued_bytes: 10, ..LIMITS };
    let [sender, other] = [link.clone(), link].map(|link| MessageSender::<u32>::start(link, limits));
    // The sender's task does not run before this one waits.
    assert!(sender.send_all(vec![1, 2, 3, 4]));
    assert!(!sender.send_all(vec![5, 6]));
    assert_eq!(meter.of("messages_dropped_total full"), 2);
    assert!(other.send(8), "another sender on the link has a queue of its own");
    soon(async {
        while !sender.send(7) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn senders_share_a_link_until_the_last_has_sent_its_queue() {
    let mut server = TestServer::open(any_peer(), echo).await;
    let key = new_key();
    let (link, _pushes) = server.link_as(&key, quick());
    let [one, other] = [link.clone(), link].map(|link| MessageSender::<u32>::start(link, LIMITS));
    assert!(one.send(1));
    drop(one);
    assert_eq!(receive(&mut server, 1).await.0, [1]);
    assert!((0..1000).all(|number| other.send(number)));
    drop(other);
    assert_eq!(receive(&mut server, 1000).await.0.len(), 1000);
    assert_eq!(server.left().await, key.public());
}

#[tokio::test]
async fn a_frame_above_the_limit_of_the_peer_is_dropped_and_counted() {
    let limits = ConnectionLimits { max_frame: 1000, ..ConnectionLimits::default() };
    let mut server = TestServer::open(ServerOptions { limits, ..any_peer() }, echo).await;
    let (meter, (link, _pushes)) = (Meter::new(), server.link());
    let sender = MessageSender::<u32>::start(link, SenderLimits { max_merged_bytes: 8000, ..LIMITS });
    assert!(sender.send_all((0..2000).map(|number| number << 20).collect()));
    until(|| meter.of("messages_dropped_total too_large") == 2000).await;
    assert!(sender.send(7));
    assert_eq!(receive(&mut server, 1).await.0, [7]);
}

#[tokio::test]
async fn messages_to_an_unreachable_peer_are_dropped() {
    let meter = Meter::new();
    let (key, listener) = (new_key(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let remote = PeerAddress { key: key.public(), address: address.clone() };
    let (link, _pushes) = Link::new(&new_key(), remote, quick()).unwrap();
    let sender = MessageSender::<u32>::start(link, LIMITS);
    assert!(sender.send(1));
    until(|| matches!(sender.link().status(), LinkStatus::Waiting { .. })).await;
    until(|| meter.of("messages_dropped_total unreachable") == 1).await;
    let mut server = TestServer::open_as(&key, &address, any_peer(), echo).await;
    server.joined().await;
    soon(sender.link().connect()).await.unwrap();
    assert!(sender.send(2));
    assert_eq!(receive(&mut server, 1).await.0, [2]);
}
