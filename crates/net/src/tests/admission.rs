//! Admission: the accepted peers, and the reasons sent to the refused ones.

use std::collections::HashSet;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::Bytes;
use holdoff_policy::{Class, ClassMap, Classify as _};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Meter, Raw, TestServer, any_peer, echo, new_key, quick, raw_server, soon, until};
use crate::role::RoleOffer;
use crate::wire::{AnnouncedLimits, Frame};
use crate::{
    AllowList, CloseReason, ConnectionLimits, Error, Link, LinkOptions, LinkRole, Peer, PeerAddress,
    ServerOptions,
};

const PING: Bytes = Bytes::from_static(b"ping");

fn slowly() -> LinkOptions {
    LinkOptions { slow_retry: Duration::from_secs(60), ..quick() }
}

#[tokio::test]
async fn an_unknown_key_is_refused_with_a_reason() {
    let meter = Meter::new();
    let friend = new_key();
    let server =
        TestServer::open(ServerOptions { allow: AllowList::only([friend.public()]), ..any_peer() }, echo)
            .await;
    let (stranger, _pushes) = server.link_as(&new_key(), slowly());
    for _ in 0..3 {
        let error = stranger.call(PING).await.unwrap_err();
        let Error::Refused { peer, reason: CloseReason::NotAllowed, next_attempt } = &error else {
            panic!("{error}")
        };
        assert_eq!(*peer, server.key.public());
        assert!(next_attempt.unwrap() > Duration::from_secs(50), "the next attempt is late: {error}");
        assert!(!error.is_transient() && !error.may_have_executed());
        assert!(error.to_string().contains("this key is not on its allow list"), "{error}");
    }
    assert_eq!(meter.of("handshakes_refused_total not_allowed"), 1, "calls start no new attempt");
    assert_eq!(meter.of("connects_total refused"), 1);
    assert_eq!(meter.of("connections server"), 0);
    let (link, _pushes) = server.link_as(&friend, quick());
    assert_eq!(link.call(PING).await.unwrap(), PING);
}

#[tokio::test]
async fn the_default_allow_list_allows_no_peer() {
    let server = TestServer::open(ServerOptions::default(), echo).await;
    let (link, _pushes) = server.link();
    assert!(matches!(link.call(PING).await, Err(Error::Refused { reason: CloseReason::NotAllowed, .. })));
}

#[tokio::test]
async fn a_server_with_another_key_receives_nothing() {
    let meter = Meter::new();
    let server = TestServer::open(any_peer(), echo).await;
    let expected = new_key().public();
    let remote = PeerAddress { key: expected, ..server.remote() };
    let (link, _pushes) = Link::new(&new_key(), remote, slowly()).unwrap();
    for _ in 0..3 {
        let error = link.call(PING).await.unwrap_err();
        let Error::WrongKey { address, expected: wanted, shown, next_attempt } = &error else {
            panic!("{error}")
        };
        assert_eq!((*wanted, *shown), (expected, server.key.public()));
        assert_eq!(*address, server.inner.address().to_string());
        assert!(next_attempt.unwrap() > Duration::from_secs(50));
        assert!(!error.is_transient());
    }
    until(|| meter.of("handshakes_refused_total tls") == 1).await;
    assert_eq!(meter.of("connects_total wrong_key"), 1);
    assert!(server.inner.peers().is_empty());
}

#[tokio::test]
async fn a_link_connects_when_the_expected_key_returns_to_the_address() {
    let impostor = TestServer::open(any_peer(), echo).await;
    let key = new_key();
    let remote = PeerAddress { key: key.public(), ..impostor.remote() };
    let address = remote.address.clone();
    let (link, _pushes) = Link::new(&new_key(), remote, quick()).unwrap();
    assert!(matches!(link.call(PING).await, Err(Error::WrongKey { .. })));
    drop(impostor);
    let right = loop {
        // The port is free only after the impostor's listener is closed.
        let options = any_peer();
        let started = crate::Server::start(&key, &address, Quiet, options).await;
        if let Ok(server) = started {
            break server;
        }
        tokio::task::yield_now().await;
    };
    soon(async {
        while link.connect().await.is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    assert_eq!(right.peers().len(), 1);
}

struct Quiet;

#[async_trait::async_trait]
impl crate::Handler for Quiet {
    async fn call(&self, _peer: &Peer, request: Bytes) -> Result<Bytes, crate::HandlerError> {
        Ok(request)
    }
}

#[tokio::test]
async fn a_change_of_the_allow_list_takes_effect_while_the_server_runs() {
    let list = Arc::new(RwLock::new(HashSet::new()));
    let seen = list.clone();
    let allow = AllowList::when(move |key| seen.read().unwrap().contains(key));
    let mut server = TestServer::open(ServerOptions { allow, ..any_peer() }, |peer: Peer, _| async move {
        Ok(if peer.is_allowed() { "in" } else { "out" }.into())
    })
    .await;
    let (key, other) = (new_key(), new_key());
    list.write().unwrap().insert(other.public());
    let (bystander, _) = server.link_as(&other, quick());
    assert_eq!(bystander.call(PING).await.unwrap(), "in");
    server.joined().await;

    let (link, _pushes) = server.link_as(&key, quick());
    assert!(matches!(link.call(PING).await, Err(Error::Refused { reason: CloseReason::NotAllowed, .. })));
    list.write().unwrap().insert(key.public());
    let peer = server.joined().await;
    until(|| link.status() == crate::LinkStatus::Connected).await;
    assert_eq!(link.call(PING).await.unwrap(), "in");

    // The server disconnects a peer that was removed from the list at the peer's next frame.
    list.write().unwrap().remove(&key.public());
    let error = link.call(PING).await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. } | Error::Refused { .. }), "{error}");
    assert_eq!(server.left().await, key.public());
    assert!(!peer.is_allowed());
    assert_eq!(peer.push(b"secret"), Err(crate::PushError::Disconnected));
    assert_eq!(bystander.call(PING).await.unwrap(), "in");

    // It also does so at the next push, and at once on `disconnect_disallowed`.
    for by_push in [true, false] {
        list.write().unwrap().insert(key.public());
        let peer = server.joined().await;
        list.write().unwrap().remove(&key.public());
        if by_push {
            assert_eq!(peer.push(b"secret"), Err(crate::PushError::Disconnected));
        } else {
            server.inner.disconnect_disallowed();
        }
        assert_eq!(server.left().await, key.public());
    }
    assert_eq!(bystander.call(PING).await.unwrap(), "in");
}

#[tokio::test]
async fn connections_above_the_limits_are_refused() {
    let meter = Meter::new();
    let options = ServerOptions { max_connections: 3, max_connections_with_key: 2, ..any_peer() };
    let server = TestServer::open(options, echo).await;
    let key = new_key();
    let links: Vec<_> = (0..3).map(|_| server.link_as(&key, slowly()).0).collect();
    links[0].connect().await.unwrap();
    links[1].connect().await.unwrap();
    let error = links[2].connect().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("connections with this key"), "{error}");
    let (other, _) = server.link();
    other.connect().await.unwrap();
    let (fourth, _) = server.link();
    let error = fourth.connect().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("its limit of connections"), "{error}");
    assert!(meter.of("handshakes_refused_total too_many_with_key") >= 1);
    assert!(meter.of("handshakes_refused_total too_many_connections") >= 1);
    assert_eq!(server.inner.peers().len(), 3);
    // A waiting link gets the permit that becomes free.
    drop(other);
    soon(async {
        while fourth.connect().await.is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_unserved_role_or_version_is_refused_with_a_reason() {
    let options = ServerOptions { roles: vec!["device".into()], ..any_peer() };
    let server = TestServer::open(options, echo).await;
    let as_role = |role: &str| server.link_as(&new_key(), LinkOptions { role: role.into(), ..slowly() }).0;
    assert_eq!(as_role("device").call(PING).await.unwrap(), PING);
    assert!(matches!(
        as_role("clerk").call(PING).await,
        Err(Error::Refused { reason: CloseReason::Role, .. })
    ));
    let (terms, role) =
        (ConnectionLimits::default().terms(), RoleOffer { name: "device", oldest: 1, newest: 1 });
    for (oldest, newest) in [(2, 9), (0, 0), (9, 0)] {
        let mut raw = Raw::connect(&server).await;
        raw.send_frame(Frame::Hello { oldest, newest, role, terms }).await;
        assert_eq!(raw.close_reason().await, CloseReason::Version { oldest: 1, newest: 1 });
    }
    let mut newer = Raw::connect(&server).await;
    newer.send_frame(Frame::Hello { oldest: 0, newest: 9, role, terms }).await;
    let body = newer.next_frame().await.unwrap();
    assert!(matches!(Frame::read(&body), Ok(Frame::Welcome { version: 1, .. })));
}

/// Nodes are upgraded one after the other: an old and a new one use the version that both speak.
#[tokio::test]
async fn two_sides_use_the_highest_version_of_a_role_that_both_speak() {
    let options = ServerOptions { roles: vec![LinkRole::new("ledger", 2..=3)], ..any_peer() };
    let server = TestServer::open(options, |peer: Peer, _| async move {
        Ok(peer.role_version().to_be_bytes().to_vec().into())
    });
    let server = server.await;
    for (versions, expected) in [(1..=2, 2_u16), (2..=3, 3), (3..=9, 3)] {
        let role = LinkRole::new("ledger", versions);
        let (link, _pushes) = server.link_as(&new_key(), LinkOptions { role, ..slowly() });
        assert_eq!(link.call(PING).await.unwrap(), expected.to_be_bytes()[..]);
        assert_eq!(link.role_version(), Some(expected));
    }
    let options = LinkOptions { role: LinkRole::new("ledger", 4..=5), ..slowly() };
    let (newer, _pushes) = server.link_as(&new_key(), options);
    let refused = newer.call(PING).await.unwrap_err();
    assert!(refused.to_string().contains("it speaks the versions 2 to 3 of this role"), "{refused}");
    assert_eq!(newer.role_version(), None);
}

/// Only an upgrade helps, so the link does not connect again soon.
#[tokio::test]
async fn a_link_whose_server_chooses_another_version_of_the_role_retries_slowly() {
    let meter = Meter::new();
    let (listener, acceptor, remote) = raw_server(&new_key()).await;
    tokio::spawn(async move {
        let welcome =
            Frame::Welcome { version: 1, role_version: 4, terms: ConnectionLimits::default().terms() };
        loop {
            let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
            stream.write_all(&welcome.to_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
    let options = LinkOptions { role: LinkRole::new("ledger", 2..=3), ..slowly() };
    let (link, _pushes) = Link::new(&new_key(), remote.clone(), options).unwrap();
    let error = soon(link.call(PING)).await.unwrap_err();
    let Error::Incompatible { peer, source, next_attempt } = &error else { panic!("{error}") };
    assert_eq!(*peer, remote.key);
    assert!(source.to_string().contains("version 4 of the role"), "{source}");
    assert!(source.to_string().contains("ledger 2 to 3"), "{source}");
    assert!(next_attempt.unwrap() > Duration::from_secs(50), "the next attempt is late: {error}");
    assert!(!error.is_transient() && !error.may_have_executed());
    assert_eq!(error.classify(&ClassMap::default()).class(), Class::Permanent);
    assert_eq!((meter.of("connects_total incompatible"), meter.of("calls_total incompatible")), (1, 1));
}

#[tokio::test]
async fn a_hello_with_zero_limits_is_harmless() {
    let server = TestServer::open(any_peer(), |_, request| async move { Ok(request) }).await;
    let mut raw = Raw::connect(&server).await;
    raw.send_frame(Frame::Hello {
        oldest: 1,
        newest: 1,
        role: RoleOffer { name: "", oldest: 1, newest: 1 },
        terms: AnnouncedLimits { max_frame: 0, idle_ms: 0 },
    })
    .await;
    assert!(matches!(Frame::read(&raw.next_frame().await.unwrap()), Ok(Frame::Welcome { .. })));
    raw.send_frame(Frame::Call { id: 1, payload: crate::wire::Payload(b"x") }).await;
    let reply = loop {
        let body = raw.next_frame().await.unwrap();
        if !matches!(Frame::read(&body), Ok(Frame::KeepAlive)) {
            break body;
        }
    };
    assert!(
        matches!(Frame::read(&reply), Ok(Frame::Error { id: 1, .. })),
        "the peer accepts no frame that could hold the reply"
    );
}
