//! Normal operation of links and servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};

use super::support::{LONG, Meter, Place, anyone, echo, new_key, quick, soon};
use crate::{Error, Fault, Heard, Limits, LinkOptions, Peer, ServerOptions, Status};

#[tokio::test]
async fn a_call_is_answered_and_both_know_who_it_was() {
    let meter = Meter::new();
    let mut place = Place::open(anyone(), |peer: Peer, request| async move {
        Ok([peer.key().to_string().as_bytes(), peer.role().as_bytes(), &request].concat().into())
    })
    .await;
    let key = new_key();
    let (link, _hearing) = place.link_as(&key, LinkOptions { role: "device".to_owned(), ..quick() });
    assert_eq!(link.status(), Status::AtRest, "nothing happens before it is used");
    let reply = link.call(Bytes::from_static(b"!")).await.unwrap();
    assert_eq!(reply, format!("{}device!", key.public()));
    assert_eq!(link.status(), Status::Connected);
    let peer = place.joined().await;
    assert_eq!((peer.key(), place.server.peers().len()), (key.public(), 1));
    assert_eq!((meter.of("connections link"), meter.of("connections server")), (1, 1));
    assert_eq!((meter.of("calls_total ok"), meter.of("answered_total ok")), (1, 1));
    drop(link);
    assert_eq!(place.left().await, key.public());
    assert_eq!((meter.of("connections link"), meter.of("connections server")), (0, 0));
}

#[tokio::test]
async fn faults_and_panics_of_the_handler_reach_the_caller_and_nobody_else() {
    let place = Place::open(anyone(), |_, request: Bytes| async move {
        match &request[..] {
            b"busy" => Err(Fault::transient("come back later")),
            b"never" => Err(Fault::permanent("ä".repeat(10_000))),
            b"panic" => panic!("this is part of the test"),
            _ => Ok(request),
        }
    })
    .await;
    let (link, _hearing) = place.link();
    let busy = link.call(Bytes::from_static(b"busy")).await.unwrap_err();
    assert!(busy.is_transient() && busy.to_string().ends_with("come back later"), "{busy}");
    let never = link.call(Bytes::from_static(b"never")).await.unwrap_err();
    assert!(!never.is_transient() && never.to_string().len() < 1100);
    let panicked = link.call(Bytes::from_static(b"panic")).await.unwrap_err();
    assert!(matches!(panicked, Error::Fault(Fault { is_transient: false, .. })), "{panicked}");
    assert_eq!(link.call(Bytes::from_static(b"fine")).await.unwrap(), "fine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_at_once_are_each_answered_with_their_own_reply() {
    // The earlier a call arrives, the later it is answered.
    let place = Place::open(anyone(), |_, request: Bytes| async move {
        let number: u64 = std::str::from_utf8(&request).unwrap().parse().unwrap();
        tokio::time::sleep(Duration::from_millis(20 - number % 20)).await;
        Ok(request)
    })
    .await;
    let (link, _hearing) = place.link();
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
    assert_eq!(place.server.peers().len(), 1, "over one connection");
}

#[tokio::test]
async fn no_more_calls_are_under_way_than_may_be() {
    let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (under_way.clone(), most.clone());
    let place = Place::open(anyone(), move |_, request| {
        let (under_way, most) = counts.clone();
        async move {
            most.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
            under_way.fetch_sub(1, Ordering::SeqCst);
            Ok(request)
        }
    })
    .await;
    let limits = Limits { max_in_flight: 3, ..Limits::default() };
    let (link, _hearing) = place.link_as(&new_key(), LinkOptions { limits, ..quick() });
    let calls = (0..100).map(|_| link.call(Bytes::from_static(b"x")));
    assert!(soon(futures_util::future::join_all(calls)).await.iter().all(Result::is_ok));
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn messages_and_pushes_arrive_in_order() {
    let mut place = Place::open(anyone(), echo).await;
    let (link, mut hearing) = place.link();
    link.connect().await.unwrap();
    let peer = place.joined().await;
    for number in 0..500_u32 {
        link.tell_value(&number).await.unwrap();
        peer.push_value(&number).unwrap();
    }
    assert_eq!(soon(hearing.next()).await, Some(Heard::Connected));
    for number in 0..500_u32 {
        assert_eq!(crate::decode::<u32>(&place.told().await).unwrap(), number);
        assert_eq!(soon(hearing.next()).await, Some(Heard::Push(crate::encode(&number).unwrap())));
    }
}

#[tokio::test]
async fn values_are_carried_and_what_is_no_such_value_is_said() {
    let place = Place::open(anyone(), |_, request: Bytes| async move {
        let (a, b): (u32, u32) = crate::decode(&request).map_err(|why| Fault::permanent(why.to_string()))?;
        crate::encode(&(a + b)).map_err(|why| Fault::permanent(why.to_string()))
    })
    .await;
    let (link, _hearing) = place.link();
    assert_eq!(link.ask::<u32>(&(2_u32, 3_u32)).await.unwrap(), 5);
    assert!(matches!(link.ask::<u32>(&"words").await, Err(Error::Fault(_))));
    assert!(matches!(link.ask::<(u32, String)>(&(2_u32, 3_u32)).await, Err(Error::Unreadable(_))));
    assert!(matches!(link.ask::<()>(&(2_u32, 3_u32)).await, Err(Error::Unreadable(_))), "a byte too many");
}

#[tokio::test]
async fn a_call_ends_by_its_deadline_and_its_late_reply_is_ignored() {
    let meter = Meter::new();
    let gate = Arc::new(Semaphore::new(0));
    let opened = gate.clone();
    let place = Place::open(anyone(), move |_, request: Bytes| {
        let gate = opened.clone();
        async move {
            if &request[..] == b"slow" {
                gate.acquire().await.unwrap().forget();
            }
            Ok(request)
        }
    })
    .await;
    let (link, _hearing) = place.link();
    link.connect().await.unwrap();
    let error = link.call_within(Duration::from_millis(50), Bytes::from_static(b"slow")).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { sent: true, .. }), "{error}");
    assert!(error.may_have_happened() && error.is_transient());
    gate.add_permits(1);
    super::support::until(|| meter.of("replies_ignored_total") == 1).await;
    assert_eq!(link.call(Bytes::from_static(b"next")).await.unwrap(), "next");
    assert_eq!(meter.of("calls_total deadline"), 1);
}

#[tokio::test]
async fn what_the_other_side_would_not_read_is_not_sent() {
    let limits = Limits { max_frame: 1000, ..Limits::default() };
    let mut place =
        Place::open(ServerOptions { limits: limits.clone(), ..anyone() }, |_, request: Bytes| async move {
            Ok(request.repeat(2).into())
        })
        .await;
    let (link, _hearing) = place.link_as(&new_key(), LinkOptions { limits, ..quick() });
    let call = |size: usize| link.call(vec![7; size].into());
    assert!(matches!(call(977).await, Err(Error::TooLarge { size: 977, limit: 976 })));
    assert!(matches!(link.tell(vec![7; 977].into()).await, Err(Error::TooLarge { .. })));
    assert_eq!(call(400).await.unwrap().len(), 800);
    let fault = call(976).await.unwrap_err().to_string();
    assert!(fault.contains("the reply has 1952 bytes, and you read 976"), "{fault}");
    let peer = place.joined().await;
    assert!(matches!(peer.push(&[7; 977]), Err(crate::NotPushed::TooLarge { .. })));
    assert_eq!(call(1).await.unwrap().len(), 2, "the connection is as good as before");
    assert_eq!(place.server.peers().len(), 1);
}

#[tokio::test]
async fn a_server_that_shuts_down_answers_what_is_under_way() {
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let opened = gate.clone();
    let place = Place::open(anyone(), move |_, request| {
        let (begun, gate) = (begun.clone(), opened.clone());
        async move {
            begun.send(()).unwrap();
            gate.acquire().await.unwrap().forget();
            Ok(request)
        }
    })
    .await;
    let (link, _hearing) = place.link();
    let (_idle, _) = place.link();
    let calls: Vec<_> = (0..10_u8)
        .map(|number| {
            let link = link.clone();
            tokio::spawn(async move { link.call(vec![number].into()).await })
        })
        .collect();
    for _ in 0..10 {
        soon(beginnings.recv()).await.unwrap();
    }
    let stopping = tokio::spawn(place.server.shutdown(LONG));
    super::support::until(|| link.status() != Status::Connected).await;
    let error = link.call(Bytes::from_static(b"new")).await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { why, .. } if why == "it is going away"), "{error}");
    gate.add_permits(10);
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(soon(call).await.unwrap().unwrap(), [u8::try_from(number).unwrap()].as_slice());
    }
    assert_eq!(soon(stopping).await.unwrap(), 0, "nobody had to be cut off");
}

#[tokio::test]
async fn somebody_at_the_door_does_not_hold_up_a_shutdown() {
    let meter = Meter::new();
    let place = Place::open(anyone(), echo).await;
    let _mute = tokio::net::TcpStream::connect(place.server.address()).await.unwrap();
    let (link, _hearing) = place.link();
    link.connect().await.unwrap();
    let began = tokio::time::Instant::now();
    assert_eq!(place.server.shutdown(LONG).await, 0);
    assert!(began.elapsed() < ServerOptions::default().handshake_timeout, "{:?}", began.elapsed());
    assert_eq!(meter.of("handshakes_refused_total leaving"), 1);
}

#[tokio::test]
async fn a_shutdown_that_is_out_of_time_cuts_off_who_is_left() {
    let mut place = Place::open(anyone(), |_, _| std::future::pending()).await;
    let (link, _hearing) = place.link();
    let call = tokio::spawn({
        let link = link.clone();
        async move { link.call(Bytes::from_static(b"x")).await }
    });
    place.joined().await;
    assert_eq!(soon(place.server.shutdown(Duration::from_millis(50))).await, 1);
    let error = soon(call).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Lost { .. } | Error::Unreachable { .. }), "{error}");
}

struct Clumsy;

#[async_trait::async_trait]
impl crate::Handler for Clumsy {
    async fn call(&self, _: &Peer, request: Bytes) -> Result<Bytes, Fault> {
        Ok(request)
    }

    fn joined(&self, peer: &Peer) {
        assert_ne!(peer.role(), "unlucky", "this is part of the test");
    }

    fn left(&self, peer: &Peer) {
        assert_ne!(peer.role(), "unlucky", "this is part of the test");
    }
}

#[tokio::test]
async fn a_handler_that_panics_at_a_peer_harms_no_other() {
    let key = new_key();
    let server = crate::Server::start(&key, "127.0.0.1:0", Clumsy, anyone()).await.unwrap();
    let remote = crate::Remote { key: key.public(), address: server.address().to_string() };
    let link = |role: &str| {
        let options = LinkOptions { role: role.to_owned(), ..quick() };
        crate::Link::new(&new_key(), remote.clone(), options).unwrap().0
    };
    assert!(link("unlucky").call(Bytes::from_static(b"x")).await.is_err());
    assert_eq!(link("lucky").call(Bytes::from_static(b"x")).await.unwrap(), "x");
    super::support::until(|| server.peers().is_empty()).await;
}

/// A handler that waits for a permit before it reports a message, and panics on request.
struct Listener(Arc<Semaphore>, mpsc::UnboundedSender<&'static str>);

#[async_trait::async_trait]
impl crate::Handler for Listener {
    async fn call(&self, _: &Peer, request: Bytes) -> Result<Bytes, Fault> {
        Ok(request)
    }

    async fn told(&self, _: &Peer, message: Bytes) {
        assert_ne!(message, "panic", "this is part of the test");
        self.1.send("begun").unwrap();
        self.0.acquire().await.unwrap().forget();
        self.1.send("heard").unwrap();
    }
}

#[tokio::test]
async fn what_a_handler_has_begun_to_hear_it_hears_to_the_end() {
    let (sender, mut said) = mpsc::unbounded_channel();
    let (key, gate) = (new_key(), Arc::new(Semaphore::new(0)));
    let handler = Arc::new(Listener(gate.clone(), sender));
    let server = crate::Server::start(&key, "127.0.0.1:0", handler, anyone()).await.unwrap();
    let remote = crate::Remote { key: key.public(), address: server.address().to_string() };
    let (link, _hearing) = crate::Link::new(&new_key(), remote, quick()).unwrap();
    link.tell(Bytes::from_static(b"panic")).await.unwrap();
    link.tell(Bytes::from_static(b"news")).await.unwrap();
    assert_eq!(soon(said.recv()).await, Some("begun"), "over the same connection");
    let peers = server.peers();
    assert_eq!(peers.len(), 1);
    peers[0].cut();
    super::support::until(|| server.peers().iter().all(|peer| peer.id() != peers[0].id())).await;
    gate.add_permits(1);
    assert_eq!(soon(said.recv()).await, Some("heard"));
}

#[tokio::test]
async fn a_link_that_is_closed_gets_its_replies_first() {
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let opened = gate.clone();
    let mut place = Place::open(anyone(), move |_, request| {
        let (begun, gate) = (begun.clone(), opened.clone());
        async move {
            begun.send(()).unwrap();
            gate.acquire().await.unwrap().forget();
            Ok(request)
        }
    })
    .await;
    let (link, _hearing) = place.link();
    let call = tokio::spawn({
        let link = link.clone();
        async move { link.call(Bytes::from_static(b"last")).await }
    });
    soon(beginnings.recv()).await.unwrap();
    link.tell(Bytes::from_static(b"by the way")).await.unwrap();
    let closing = tokio::spawn({
        let link = link.clone();
        async move { link.close().await }
    });
    gate.add_permits(1);
    assert_eq!(soon(call).await.unwrap().unwrap(), "last");
    soon(closing).await.unwrap();
    assert_eq!(link.status(), Status::Closed);
    assert!(matches!(link.call(Bytes::new()).await, Err(Error::Closed)));
    assert_eq!(place.told().await, "by the way");
    place.left().await;
}

#[tokio::test]
async fn two_daemons_with_one_key_are_two_peers() {
    let mut place = Place::open(anyone(), |peer: Peer, request: Bytes| async move {
        peer.push(&request).unwrap();
        Ok(request)
    })
    .await;
    let key = new_key();
    let ((one, mut heard_by_one), (two, mut heard_by_two)) =
        (place.link_as(&key, quick()), place.link_as(&key, quick()));
    assert_eq!(one.call(Bytes::from_static(b"one")).await.unwrap(), "one");
    assert_eq!(two.call(Bytes::from_static(b"two")).await.unwrap(), "two");
    for (hearing, word) in [(&mut heard_by_one, "one"), (&mut heard_by_two, "two")] {
        assert_eq!(soon(hearing.next()).await, Some(Heard::Connected));
        assert_eq!(soon(hearing.next()).await, Some(Heard::Push(word.into())));
        assert_eq!(hearing.try_next(), None);
    }
    let (first, second) = (place.joined().await, place.joined().await);
    assert_eq!((first.key(), second.key()), (key.public(), key.public()));
    assert_ne!(first.id(), second.id());
    drop(one);
    place.left().await;
    assert_eq!(two.call(Bytes::from_static(b"alone")).await.unwrap(), "alone");
}
