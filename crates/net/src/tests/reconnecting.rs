//! Links outlive connections.

use std::time::Duration;

use bytes::Bytes;
use holdoff_policy::{Class, ClassMap, Classify as _, Growth, Jitter, Policy};
use tokio::net::TcpListener;

use super::{Meter, TestServer, any_peer, echo, new_key, quick, soon, until};
use crate::{CloseReason, Error, Link, LinkOptions, LinkStatus, PeerAddress, PushEvent};

const PING: Bytes = Bytes::from_static(b"ping");

/// Returns an address without a listener.
async fn nowhere() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

/// Returns the error of the transport among the sources of an error.
fn io_error(error: &Error) -> Option<&std::io::Error> {
    let mut sources = std::iter::successors(std::error::Error::source(error), |error| error.source());
    sources.find_map(|source| source.downcast_ref())
}

fn policy(wait: Duration, attempts: u32) -> Policy {
    Policy::builder(Growth::constant(wait)).jitter(Jitter::None).attempts(attempts).build().unwrap()
}

#[tokio::test]
async fn calls_to_an_unreachable_peer_fail_at_once_with_the_time_of_the_next_attempt() {
    let meter = Meter::new();
    let remote = PeerAddress { key: new_key().public(), address: nowhere().await };
    let options = LinkOptions { policy: policy(Duration::from_secs(100), Policy::UNLIMITED), ..quick() };
    let (link, _pushes) = Link::new(&new_key(), remote.clone(), options).unwrap();
    for _ in 0..50 {
        let error = link.call(PING).await.unwrap_err();
        let Error::Unreachable { peer, since, next_attempt: Some(next_attempt), .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(*peer, remote.key);
        assert!(*since < Duration::from_secs(50) && *next_attempt > Duration::from_secs(50), "{error}");
        let refused = io_error(&error).map(std::io::Error::kind);
        assert_eq!(refused, Some(std::io::ErrorKind::ConnectionRefused), "{error:?}");
        assert!(error.is_transient() && !error.may_have_executed());
        assert_eq!(error.classify(&ClassMap::default()).retry_after(), Some(*next_attempt));
    }
    assert!(matches!(link.status(), LinkStatus::Waiting { .. }));
    assert_eq!((meter.of("connects_total unreachable"), meter.of("calls_total unreachable")), (1, 50));
    assert_eq!(meter.of("reconnect_wait_seconds"), 1);
}

#[tokio::test]
async fn a_link_reconnects_to_its_server() {
    let (key, address) = (new_key(), nowhere().await);
    let remote = PeerAddress { key: key.public(), address: address.clone() };
    let (link, mut pushes) = Link::new(&new_key(), remote, quick()).unwrap();
    assert!(matches!(link.call(PING).await, Err(Error::Unreachable { .. })));
    for _ in 0..3 {
        let mut server = TestServer::open_as(&key, &address, any_peer(), echo).await;
        let peer = server.joined().await;
        until(|| link.status() == LinkStatus::Connected).await;
        assert_eq!(link.call(PING).await.unwrap(), PING);
        peer.push(b"news").unwrap();
        assert_eq!(soon(pushes.next()).await, Some(PushEvent::Connected));
        assert_eq!(soon(pushes.next()).await, Some(PushEvent::Push(Bytes::from_static(b"news"))));
        drop(server);
        until(|| link.status() != LinkStatus::Connected).await;
    }
}

#[tokio::test]
async fn a_call_on_a_lost_connection_may_have_executed() {
    let mut server = TestServer::open(any_peer(), |_, _| std::future::pending()).await;
    let (link, _pushes) = server.link();
    let call = tokio::spawn({
        let link = link.clone();
        async move { link.call(PING).await }
    });
    let peer = server.joined().await;
    // An answer to the next request would show that this one has arrived; here it is enough that it was sent.
    until(|| link.status() == LinkStatus::Connected).await;
    tokio::task::yield_now().await;
    peer.disconnect();
    let error = soon(call).await.unwrap().unwrap_err();
    let Error::Lost { source } = &error else { panic!("{error}") };
    assert_eq!(source.to_string(), "it disconnected this peer");
    let reason = source.source().and_then(|reason| reason.downcast_ref::<CloseReason>());
    assert_eq!(reason, Some(&CloseReason::Disconnected));
    assert!(error.is_transient() && error.may_have_executed());
    assert_eq!(error.classify(&ClassMap::default()).class(), Class::Transient);
    assert_eq!(server.joined().await.key(), peer.key(), "the link reconnects without a call");
}

#[tokio::test(start_paused = true)]
async fn after_the_policy_gives_up_the_link_is_idle_until_its_next_use() {
    let meter = Meter::new();
    let remote = PeerAddress { key: new_key().public(), address: nowhere().await };
    let options = LinkOptions { policy: policy(Duration::from_secs(2), 3), ..quick() };
    let (link, _pushes) = Link::new(&new_key(), remote, options).unwrap();
    // Several concurrent uses cause one attempt.
    let errors = futures_util::future::join_all((0..3).map(|_| link.call(PING))).await;
    assert!(
        errors.iter().all(|error| matches!(error, Err(Error::Unreachable { next_attempt: Some(_), .. })))
    );
    tokio::time::sleep(Duration::from_millis(4500)).await;
    let error = link.call(PING).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { next_attempt: None, .. }), "{error}");
    assert!(error.to_string().ends_with("a later call retries"), "{error}");
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!(meter.of("connects_total unreachable"), 3, "the link was not used");
    assert_eq!(link.status(), LinkStatus::Idle);
    assert!(matches!(link.call(PING).await, Err(Error::Unreachable { next_attempt: Some(_), .. })));
    assert_eq!(meter.of("connects_total unreachable"), 4);
}

#[tokio::test]
async fn a_call_waits_for_a_connection_no_longer_than_its_deadline() {
    // The listener accepts connections and never sends anything.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let remote = PeerAddress { key: new_key().public(), address: listener.local_addr().unwrap().to_string() };
    let options = LinkOptions { connect_timeout: Duration::from_millis(200), ..quick() };
    let (link, _pushes) = Link::new(&new_key(), remote, options).unwrap();
    let error = link.call_within(Duration::from_millis(20), PING).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { is_sent: false, .. }), "{error}");
    let error = soon(link.call(PING)).await.unwrap_err();
    assert!(
        matches!(&error, Error::Unreachable { source, .. } if source.to_string() == "no connection within 200ms"),
        "{error}"
    );
    drop(link.send(PING).await);
}

#[tokio::test]
async fn an_unused_link_closes_at_once() {
    let remote = PeerAddress { key: new_key().public(), address: nowhere().await };
    let (link, mut pushes) = Link::new(&new_key(), remote, quick()).unwrap();
    soon(link.close()).await;
    assert!(matches!(link.connect().await, Err(Error::Closed)));
    assert!(matches!(link.send(PING).await, Err(Error::Closed)));
    drop(link);
    assert_eq!(soon(pushes.next()).await, None);
}
