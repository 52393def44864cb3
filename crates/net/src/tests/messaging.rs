//! Normal operation of links and servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};

use super::{LONG, Meter, TestServer, any_peer, echo, new_key, quick, soon};
use crate::{ConnectionLimits, Error, HandlerError, LinkOptions, LinkStatus, Peer, PushEvent, ServerOptions};

#[tokio::test]
async fn a_call_is_answered_and_both_sides_know_the_key_of_the_other() {
    let meter = Meter::new();
    let mut server = TestServer::open(any_peer(), |peer: Peer, request| async move {
        Ok([peer.key().to_string().as_bytes(), peer.role().as_bytes(), &request].concat().into())
    })
    .await;
    let key = new_key();
    let (link, _pushes) = server.link_as(&key, LinkOptions { role: "device".into(), ..quick() });
    assert_eq!(link.status(), LinkStatus::Idle, "a link connects at its first call");
    let reply = link.call(Bytes::from_static(b"!")).await.unwrap();
    assert_eq!(reply, format!("{}device!", key.public()));
    assert_eq!(link.status(), LinkStatus::Connected);
    let peer = server.joined().await;
    assert_eq!((peer.key(), server.inner.peers().len()), (key.public(), 1));
    assert_eq!((meter.of("connections link"), meter.of("connections server")), (1, 1));
    assert_eq!((meter.of("calls_total ok"), meter.of("answered_total ok")), (1, 1));
    drop(link);
    assert_eq!(server.left().await, key.public());
    assert_eq!((meter.of("connections link"), meter.of("connections server")), (0, 0));
}

#[tokio::test]
async fn handler_errors_and_panics_reach_only_their_caller() {
    let server = TestServer::open(any_peer(), |_, request: Bytes| async move {
        match &request[..] {
            b"busy" => Err(HandlerError::transient("come back later")),
            b"never" => Err(HandlerError::permanent("ä".repeat(10_000))),
            b"panic" => panic!("intended panic"),
            _ => Ok(request),
        }
    })
    .await;
    let (link, _pushes) = server.link();
    let busy = link.call(Bytes::from_static(b"busy")).await.unwrap_err();
    assert!(busy.is_transient() && busy.to_string().ends_with("come back later"), "{busy}");
    let never = link.call(Bytes::from_static(b"never")).await.unwrap_err();
    assert!(!never.is_transient() && never.to_string().len() < 1100);
    let panicked = link.call(Bytes::from_static(b"panic")).await.unwrap_err();
    assert!(matches!(panicked, Error::Handler(HandlerError { is_transient: false, .. })), "{panicked}");
    assert_eq!(link.call(Bytes::from_static(b"fine")).await.unwrap(), "fine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_a_thousand_concurrent_calls_gets_its_own_reply() {
    // The earlier a call arrives, the later it is answered.
    let server = TestServer::open(any_peer(), |_, request: Bytes| async move {
        let number: u64 = std::str::from_utf8(&request).unwrap().parse().unwrap();
        tokio::time::sleep(Duration::from_millis(20 - number % 20)).await;
        Ok(request)
    })
    .await;
    let (link, _pushes) = server.link();
    let calls: Vec<_> = (0..1000_u64)
        .map(|number| {
            let link = link.clone();
            tokio::spawn(
                async move { link.call(number.to_string().into()).await.unwrap() == number.to_string() },
            )
        })
        .collect();
    for call in calls {
        assert!(soon(call).await.unwrap());
    }
    assert_eq!(server.inner.peers().len(), 1, "all calls use one connection");
}

#[tokio::test]
async fn a_link_limits_its_calls_in_flight() {
    let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (under_way.clone(), most.clone());
    let server = TestServer::open(any_peer(), move |_, request| {
        let (under_way, most) = counts.clone();
        async move {
            most.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
            under_way.fetch_sub(1, Ordering::SeqCst);
            Ok(request)
        }
    })
    .await;
    let limits = ConnectionLimits { max_in_flight: 3, ..ConnectionLimits::default() };
    let (link, _pushes) = server.link_as(&new_key(), LinkOptions { limits, ..quick() });
    let calls = (0..100).map(|_| link.call(Bytes::from_static(b"x")));
    assert!(soon(futures_util::future::join_all(calls)).await.iter().all(Result::is_ok));
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn messages_and_pushes_arrive_in_order() {
    let mut server = TestServer::open(any_peer(), echo).await;
    let (link, mut pushes) = server.link();
    link.connect().await.unwrap();
    let peer = server.joined().await;
    for number in 0..500_u32 {
        link.send_value(&number).await.unwrap();
        peer.push_value(&number).unwrap();
    }
    assert_eq!(soon(pushes.next()).await, Some(PushEvent::Connected));
    for number in 0..500_u32 {
        assert_eq!(crate::decode::<u32>(&server.message().await).unwrap(), number);
        assert_eq!(soon(pushes.next()).await, Some(PushEvent::Push(crate::encode(&number).unwrap())));
    }
}

#[tokio::test]
async fn typed_values_round_trip_and_a_wrong_type_is_an_error() {
    let server = TestServer::open(any_peer(), |_, request: Bytes| async move {
        let (a, b): (u32, u32) =
            crate::decode(&request).map_err(|why| HandlerError::permanent(why.to_string()))?;
        crate::encode(&(a + b)).map_err(|why| HandlerError::permanent(why.to_string()))
    })
    .await;
    let (link, _pushes) = server.link();
    assert_eq!(link.call_value::<u32>(&(2_u32, 3_u32)).await.unwrap(), 5);
    assert!(matches!(link.call_value::<u32>(&"words").await, Err(Error::Handler(_))));
    assert!(matches!(link.call_value::<(u32, String)>(&(2_u32, 3_u32)).await, Err(Error::Decode(_))));
    assert!(
        matches!(link.call_value::<()>(&(2_u32, 3_u32)).await, Err(Error::Decode(_))),
        "trailing bytes are an error"
    );
}

#[tokio::test]
async fn a_call_ends_by_its_deadline_and_its_late_reply_is_ignored() {
    let meter = Meter::new();
    let gate = Arc::new(Semaphore::new(0));
    let opened = gate.clone();
    let server = TestServer::open(any_peer(), move |_, request: Bytes| {
        let gate = opened.clone();
        async move {
            if &request[..] == b"slow" {
                gate.acquire().await.unwrap().forget();
            }
            Ok(request)
        }
    })
    .await;
    let (link, _pushes) = server.link();
    link.connect().await.unwrap();
    let error = link.call_within(Duration::from_millis(50), Bytes::from_static(b"slow")).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { is_sent: true, .. }), "{error}");
    assert!(error.may_have_executed() && error.is_transient());
    gate.add_permits(1);
    super::until(|| meter.of("replies_ignored_total") == 1).await;
    assert_eq!(link.call(Bytes::from_static(b"next")).await.unwrap(), "next");
    assert_eq!(meter.of("calls_total deadline"), 1);
}

#[tokio::test]
async fn a_message_above_the_limit_of_the_peer_is_not_sent() {
    let limits = ConnectionLimits { max_frame: 1000, ..ConnectionLimits::default() };
    let mut server = TestServer::open(
        ServerOptions { limits: limits.clone(), ..any_peer() },
        |_, request: Bytes| async move { Ok(request.repeat(2).into()) },
    )
    .await;
    let (link, _pushes) = server.link_as(&new_key(), LinkOptions { limits, ..quick() });
    let call = |size: usize| link.call(vec![7; size].into());
    assert!(matches!(call(977).await, Err(Error::TooLarge { size: 977, limit: 976 })));
    assert!(matches!(link.send(vec![7; 977].into()).await, Err(Error::TooLarge { .. })));
    assert_eq!(call(400).await.unwrap().len(), 800);
    let error = call(976).await.unwrap_err().to_string();
    assert!(error.contains("the reply of 1952 bytes exceeds your limit of 976 bytes"), "{error}");
    let peer = server.joined().await;
    assert!(matches!(peer.push(&[7; 977]), Err(crate::PushError::TooLarge { .. })));
    assert_eq!(call(1).await.unwrap().len(), 2, "the connection stays usable");
    assert_eq!(server.inner.peers().len(), 1);
}

#[tokio::test]
async fn shutdown_answers_the_calls_in_flight() {
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let opened = gate.clone();
    let server = TestServer::open(any_peer(), move |_, request| {
        let (begun, gate) = (begun.clone(), opened.clone());
        async move {
            begun.send(()).unwrap();
            gate.acquire().await.unwrap().forget();
            Ok(request)
        }
    })
    .await;
    let (link, _pushes) = server.link();
    let (_idle, _) = server.link();
    let calls: Vec<_> = (0..10_u8)
        .map(|number| {
            let link = link.clone();
            tokio::spawn(async move { link.call(vec![number].into()).await })
        })
        .collect();
    for _ in 0..10 {
        soon(beginnings.recv()).await.unwrap();
    }
    let stopping = tokio::spawn(server.inner.shutdown(LONG));
    super::until(|| link.status() != LinkStatus::Connected).await;
    let error = link.call(Bytes::from_static(b"new")).await.unwrap_err();
    assert!(
        matches!(&error, Error::Unreachable { source, .. } if source.to_string() == "it is shutting down"),
        "{error}"
    );
    gate.add_permits(10);
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(soon(call).await.unwrap().unwrap(), [u8::try_from(number).unwrap()].as_slice());
    }
    assert_eq!(soon(stopping).await.unwrap(), 0, "every peer disconnected in time");
}

#[tokio::test]
async fn a_pending_handshake_does_not_delay_a_shutdown() {
    let meter = Meter::new();
    let server = TestServer::open(any_peer(), echo).await;
    let _mute = tokio::net::TcpStream::connect(server.inner.address()).await.unwrap();
    let (link, _pushes) = server.link();
    link.connect().await.unwrap();
    let began = tokio::time::Instant::now();
    assert_eq!(server.inner.shutdown(LONG).await, 0);
    assert!(began.elapsed() < ServerOptions::default().handshake_timeout, "{:?}", began.elapsed());
    assert_eq!(meter.of("handshakes_refused_total shutting_down"), 1);
}

#[tokio::test]
async fn shutdown_disconnects_the_remaining_peers_after_its_grace() {
    let mut server = TestServer::open(any_peer(), |_, _| std::future::pending()).await;
    let (link, _pushes) = server.link();
    let call = tokio::spawn({
        let link = link.clone();
        async move { link.call(Bytes::from_static(b"x")).await }
    });
    server.joined().await;
    assert_eq!(soon(server.inner.shutdown(Duration::from_millis(50))).await, 1);
    let error = soon(call).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Lost { .. } | Error::Unreachable { .. }), "{error}");
}

struct Clumsy;

#[async_trait::async_trait]
impl crate::Handler for Clumsy {
    async fn call(&self, _: &Peer, request: Bytes) -> Result<Bytes, HandlerError> {
        Ok(request)
    }

    fn on_connect(&self, peer: &Peer) {
        assert_ne!(peer.role(), "unlucky", "intended panic");
    }

    fn on_disconnect(&self, peer: &Peer) {
        assert_ne!(peer.role(), "unlucky", "intended panic");
    }
}

#[tokio::test]
async fn a_panic_for_one_peer_affects_no_other() {
    let key = new_key();
    let server = crate::Server::start(&key, "127.0.0.1:0", Clumsy, any_peer()).await.unwrap();
    let remote = crate::PeerAddress { key: key.public(), address: server.address().to_string() };
    let link = |role: &str| {
        let options = LinkOptions { role: role.into(), ..quick() };
        crate::Link::new(&new_key(), remote.clone(), options).unwrap().0
    };
    assert!(link("unlucky").call(Bytes::from_static(b"x")).await.is_err());
    assert_eq!(link("lucky").call(Bytes::from_static(b"x")).await.unwrap(), "x");
    super::until(|| server.peers().is_empty()).await;
}

/// A handler that waits for a permit before it reports a message, and panics on request.
struct Listener(Arc<Semaphore>, mpsc::UnboundedSender<&'static str>);

#[async_trait::async_trait]
impl crate::Handler for Listener {
    async fn call(&self, _: &Peer, request: Bytes) -> Result<Bytes, HandlerError> {
        Ok(request)
    }

    async fn on_message(&self, _: &Peer, message: Bytes) {
        assert_ne!(message, "panic", "intended panic");
        self.1.send("begun").unwrap();
        self.0.acquire().await.unwrap().forget();
        self.1.send("heard").unwrap();
    }
}

#[tokio::test]
async fn a_message_handler_runs_to_its_end_after_a_disconnect() {
    let (sender, mut events) = mpsc::unbounded_channel();
    let (key, gate) = (new_key(), Arc::new(Semaphore::new(0)));
    let handler = Arc::new(Listener(gate.clone(), sender));
    let server = crate::Server::start(&key, "127.0.0.1:0", handler, any_peer()).await.unwrap();
    let remote = crate::PeerAddress { key: key.public(), address: server.address().to_string() };
    let (link, _pushes) = crate::Link::new(&new_key(), remote, quick()).unwrap();
    link.send(Bytes::from_static(b"panic")).await.unwrap();
    link.send(Bytes::from_static(b"news")).await.unwrap();
    assert_eq!(soon(events.recv()).await, Some("begun"), "a panic does not close the connection");
    let peers = server.peers();
    assert_eq!(peers.len(), 1);
    peers[0].disconnect();
    super::until(|| server.peers().iter().all(|peer| peer.id() != peers[0].id())).await;
    gate.add_permits(1);
    assert_eq!(soon(events.recv()).await, Some("heard"));
}

#[tokio::test]
async fn close_waits_for_the_replies_of_calls_in_flight() {
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let opened = gate.clone();
    let mut server = TestServer::open(any_peer(), move |_, request| {
        let (begun, gate) = (begun.clone(), opened.clone());
        async move {
            begun.send(()).unwrap();
            gate.acquire().await.unwrap().forget();
            Ok(request)
        }
    })
    .await;
    let (link, _pushes) = server.link();
    let call = tokio::spawn({
        let link = link.clone();
        async move { link.call(Bytes::from_static(b"last")).await }
    });
    soon(beginnings.recv()).await.unwrap();
    link.send(Bytes::from_static(b"by the way")).await.unwrap();
    let closing = tokio::spawn({
        let link = link.clone();
        async move { link.close().await }
    });
    gate.add_permits(1);
    assert_eq!(soon(call).await.unwrap().unwrap(), "last");
    soon(closing).await.unwrap();
    assert_eq!(link.status(), LinkStatus::Closed);
    assert!(matches!(link.call(Bytes::new()).await, Err(Error::Closed)));
    assert_eq!(server.message().await, "by the way");
    server.left().await;
}

#[tokio::test]
async fn two_links_with_one_key_are_two_connections() {
    let mut server = TestServer::open(any_peer(), |peer: Peer, request: Bytes| async move {
        peer.push(&request).unwrap();
        Ok(request)
    })
    .await;
    let key = new_key();
    let ((one, mut heard_by_one), (two, mut heard_by_two)) =
        (server.link_as(&key, quick()), server.link_as(&key, quick()));
    assert_eq!(one.call(Bytes::from_static(b"one")).await.unwrap(), "one");
    assert_eq!(two.call(Bytes::from_static(b"two")).await.unwrap(), "two");
    for (pushes, word) in [(&mut heard_by_one, "one"), (&mut heard_by_two, "two")] {
        assert_eq!(soon(pushes.next()).await, Some(PushEvent::Connected));
        assert_eq!(soon(pushes.next()).await, Some(PushEvent::Push(word.into())));
        assert_eq!(pushes.try_next(), None);
    }
    let (first, second) = (server.joined().await, server.joined().await);
    assert_eq!((first.key(), second.key()), (key.public(), key.public()));
    assert_ne!(first.id(), second.id());
    drop(one);
    server.left().await;
    assert_eq!(two.call(Bytes::from_static(b"alone")).await.unwrap(), "alone");
}
