//! Admission: the accepted peers, and the reasons sent to the refused ones.

use std::collections::HashSet;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::Bytes;

use super::support::{Meter, Place, Raw, anyone, echo, new_key, quick, soon, until};
use crate::wire::{Frame, Terms};
use crate::{Allow, Error, Limits, Link, LinkOptions, Peer, Refusal, Remote, ServerOptions};

const PING: Bytes = Bytes::from_static(b"ping");

fn slowly() -> LinkOptions {
    LinkOptions { slow_retry: Duration::from_secs(60), ..quick() }
}

#[tokio::test]
async fn a_stranger_is_refused_and_told_why() {
    let meter = Meter::new();
    let friend = new_key();
    let place = Place::open(ServerOptions { allow: Allow::only([friend.public()]), ..anyone() }, echo).await;
    let (stranger, _hearing) = place.link_as(&new_key(), slowly());
    for _ in 0..3 {
        let error = stranger.call(PING).await.unwrap_err();
        let Error::Refused { peer, reason: Refusal::NotAllowed, next_try } = &error else {
            panic!("{error}")
        };
        assert_eq!(*peer, place.key.public());
        assert!(next_try.unwrap() > Duration::from_secs(50), "it is tried again, but slowly: {error}");
        assert!(!error.is_transient() && !error.may_have_happened());
        assert!(error.to_string().contains("our key is not on its list"), "{error}");
    }
    assert_eq!(meter.of("handshakes_refused_total not_allowed"), 1, "calls do not knock again");
    assert_eq!(meter.of("connects_total refused"), 1);
    assert_eq!(meter.of("connections server"), 0);
    let (link, _hearing) = place.link_as(&friend, quick());
    assert_eq!(link.call(PING).await.unwrap(), PING);
}

#[tokio::test]
async fn nobody_is_allowed_unless_somebody_says_so() {
    let place = Place::open(ServerOptions::default(), echo).await;
    let (link, _hearing) = place.link();
    assert!(matches!(link.call(PING).await, Err(Error::Refused { reason: Refusal::NotAllowed, .. })));
}

#[tokio::test]
async fn somebody_else_at_the_address_is_sent_nothing() {
    let meter = Meter::new();
    let place = Place::open(anyone(), echo).await;
    let expected = new_key().public();
    let remote = Remote { key: expected, ..place.remote() };
    let (link, _hearing) = Link::new(&new_key(), remote, slowly()).unwrap();
    for _ in 0..3 {
        let error = link.call(PING).await.unwrap_err();
        let Error::WrongKey { address, expected: wanted, shown, next_try } = &error else {
            panic!("{error}")
        };
        assert_eq!((*wanted, *shown), (expected, place.key.public()));
        assert_eq!(*address, place.server.address().to_string());
        assert!(next_try.unwrap() > Duration::from_secs(50));
        assert!(!error.is_transient());
    }
    until(|| meter.of("handshakes_refused_total tls") == 1).await;
    assert_eq!(meter.of("connects_total wrong_key"), 1);
    assert!(place.server.peers().is_empty());
}

#[tokio::test]
async fn the_right_peer_is_found_when_it_is_back_at_its_address() {
    let impostor = Place::open(anyone(), echo).await;
    let key = new_key();
    let remote = Remote { key: key.public(), ..impostor.remote() };
    let address = remote.address.clone();
    let (link, _hearing) = Link::new(&new_key(), remote, quick()).unwrap();
    assert!(matches!(link.call(PING).await, Err(Error::WrongKey { .. })));
    drop(impostor);
    let right = loop {
        // The port is free only after the impostor's listener is closed.
        let options = anyone();
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
    async fn call(&self, _peer: &Peer, request: Bytes) -> Result<Bytes, crate::Fault> {
        Ok(request)
    }
}

#[tokio::test]
async fn the_list_may_change_while_the_server_runs() {
    let list = Arc::new(RwLock::new(HashSet::new()));
    let seen = list.clone();
    let allow = Allow::when(move |key| seen.read().unwrap().contains(key));
    let mut place = Place::open(ServerOptions { allow, ..anyone() }, |peer: Peer, _| async move {
        Ok(if peer.is_allowed() { "in" } else { "out" }.into())
    })
    .await;
    let (key, other) = (new_key(), new_key());
    list.write().unwrap().insert(other.public());
    let (bystander, _) = place.link_as(&other, quick());
    assert_eq!(bystander.call(PING).await.unwrap(), "in");
    place.joined().await;

    let (link, _hearing) = place.link_as(&key, quick());
    assert!(matches!(link.call(PING).await, Err(Error::Refused { reason: Refusal::NotAllowed, .. })));
    list.write().unwrap().insert(key.public());
    let peer = place.joined().await;
    until(|| link.status() == crate::Status::Connected).await;
    assert_eq!(link.call(PING).await.unwrap(), "in");

    // The server disconnects a peer that was removed from the list at the peer's next frame.
    list.write().unwrap().remove(&key.public());
    let error = link.call(PING).await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. } | Error::Refused { .. }), "{error}");
    assert_eq!(place.left().await, key.public());
    assert!(!peer.is_allowed());
    assert_eq!(peer.push(b"secret"), Err(crate::NotPushed::Gone));
    assert_eq!(bystander.call(PING).await.unwrap(), "in");

    // It also does so at the next push, and at once on `review`.
    for by_push in [true, false] {
        list.write().unwrap().insert(key.public());
        let peer = place.joined().await;
        list.write().unwrap().remove(&key.public());
        if by_push {
            assert_eq!(peer.push(b"secret"), Err(crate::NotPushed::Gone));
        } else {
            place.server.review();
        }
        assert_eq!(place.left().await, key.public());
    }
    assert_eq!(bystander.call(PING).await.unwrap(), "in");
}

#[tokio::test]
async fn there_are_no_more_connections_than_there_may_be() {
    let meter = Meter::new();
    let options = ServerOptions { max_connections: 3, max_connections_with_key: 2, ..anyone() };
    let place = Place::open(options, echo).await;
    let key = new_key();
    let links: Vec<_> = (0..3).map(|_| place.link_as(&key, slowly()).0).collect();
    links[0].connect().await.unwrap();
    links[1].connect().await.unwrap();
    let error = links[2].connect().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("connections with our key"), "{error}");
    let (other, _) = place.link();
    other.connect().await.unwrap();
    let (fourth, _) = place.link();
    let error = fourth.connect().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("as many connections as it bears"), "{error}");
    assert!(meter.of("handshakes_refused_total too_many_with_key") >= 1);
    assert!(meter.of("handshakes_refused_total too_many_connections") >= 1);
    assert_eq!(place.server.peers().len(), 3);
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
async fn roles_and_versions_that_are_not_served_are_refused_by_name() {
    let options = ServerOptions { roles: vec!["device".to_owned()], ..anyone() };
    let place = Place::open(options, echo).await;
    let as_role = |role: &str| place.link_as(&new_key(), LinkOptions { role: role.to_owned(), ..slowly() }).0;
    assert_eq!(as_role("device").call(PING).await.unwrap(), PING);
    assert!(matches!(as_role("clerk").call(PING).await, Err(Error::Refused { reason: Refusal::Role, .. })));
    let terms = Limits::default().terms();
    for (oldest, newest) in [(2, 9), (0, 0), (9, 0)] {
        let mut raw = Raw::connect(&place).await;
        raw.say(Frame::Hello { oldest, newest, role: "device", terms }).await;
        assert_eq!(raw.farewell().await, Refusal::Version);
    }
    let mut newer = Raw::connect(&place).await;
    newer.say(Frame::Hello { oldest: 0, newest: 9, role: "device", terms }).await;
    let body = newer.hear().await.unwrap();
    assert!(matches!(Frame::read(&body), Ok(Frame::Welcome { version: 1, .. })));
}

#[tokio::test]
async fn a_hello_with_senseless_terms_does_no_harm() {
    let place = Place::open(anyone(), |_, request| async move { Ok(request) }).await;
    let mut raw = Raw::connect(&place).await;
    raw.say(Frame::Hello { oldest: 1, newest: 1, role: "", terms: Terms { max_frame: 0, idle_ms: 0 } }).await;
    assert!(matches!(Frame::read(&raw.hear().await.unwrap()), Ok(Frame::Welcome { .. })));
    raw.say(Frame::Call { id: 1, payload: crate::wire::Payload(b"x") }).await;
    let reply = loop {
        let body = raw.hear().await.unwrap();
        if !matches!(Frame::read(&body), Ok(Frame::Alive)) {
            break body;
        }
    };
    assert!(matches!(Frame::read(&reply), Ok(Frame::Fault { id: 1, .. })), "it reads no reply");
}
