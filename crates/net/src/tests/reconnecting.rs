//! Links outlive connections.

use std::time::Duration;

use bytes::Bytes;
use holdoff_policy::{Growth, Jitter, Policy};
use tokio::net::TcpListener;

use super::support::{Meter, Place, anyone, echo, new_key, quick, soon, until};
use crate::{Error, Heard, Link, LinkOptions, Remote, Status};

const PING: Bytes = Bytes::from_static(b"ping");

/// Returns an address without a listener.
async fn nowhere() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

fn policy(wait: Duration, attempts: u32) -> Policy {
    Policy::builder(Growth::constant(wait)).jitter(Jitter::None).attempts(attempts).build().unwrap()
}

#[tokio::test]
async fn calls_fail_fast_and_say_since_when_and_until_when() {
    let meter = Meter::new();
    let remote = Remote { key: new_key().public(), address: nowhere().await };
    let options = LinkOptions { policy: policy(Duration::from_secs(100), Policy::UNLIMITED), ..quick() };
    let (link, _hearing) = Link::new(&new_key(), remote.clone(), options).unwrap();
    for _ in 0..50 {
        let error = link.call(PING).await.unwrap_err();
        let Error::Unreachable { peer, since, next_try: Some(next_try), why } = &error else {
            panic!("{error}")
        };
        assert_eq!(*peer, remote.key);
        assert!(*since < Duration::from_secs(50) && *next_try > Duration::from_secs(50), "{error}");
        assert!(why.contains("refused"), "{error}");
        assert!(error.is_transient() && !error.may_have_happened());
        assert_eq!(error.failure().retry_after(), Some(*next_try));
    }
    assert!(matches!(link.status(), Status::Waiting { .. }));
    assert_eq!((meter.of("connects_total unreachable"), meter.of("calls_total unreachable")), (1, 50));
    assert_eq!(meter.of("reconnect_wait_seconds"), 1);
}

#[tokio::test]
async fn a_link_finds_its_server_again() {
    let (key, address) = (new_key(), nowhere().await);
    let remote = Remote { key: key.public(), address: address.clone() };
    let (link, mut hearing) = Link::new(&new_key(), remote, quick()).unwrap();
    assert!(matches!(link.call(PING).await, Err(Error::Unreachable { .. })));
    for _ in 0..3 {
        let mut place = Place::open_as(&key, &address, anyone(), echo).await;
        let peer = place.joined().await;
        until(|| link.status() == Status::Connected).await;
        assert_eq!(link.call(PING).await.unwrap(), PING);
        peer.push(b"news").unwrap();
        assert_eq!(soon(hearing.next()).await, Some(Heard::Connected));
        assert_eq!(soon(hearing.next()).await, Some(Heard::Push(Bytes::from_static(b"news"))));
        drop(place);
        until(|| link.status() != Status::Connected).await;
    }
}

#[tokio::test]
async fn a_call_whose_connection_is_lost_says_that_it_may_have_happened() {
    let mut place = Place::open(anyone(), |_, _| std::future::pending()).await;
    let (link, _hearing) = place.link();
    let call = tokio::spawn({
        let link = link.clone();
        async move { link.call(PING).await }
    });
    let peer = place.joined().await;
    // An answer to the next request would show that this one has arrived; here it is enough that it was sent.
    until(|| link.status() == Status::Connected).await;
    tokio::task::yield_now().await;
    peer.cut();
    let error = soon(call).await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::Lost { why } if why == "it has cut us off"), "{error}");
    assert!(error.is_transient() && error.may_have_happened());
    assert_eq!(place.joined().await.key(), peer.key(), "it comes back by itself");
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_gives_up_leaves_the_link_at_rest_until_it_is_used() {
    let meter = Meter::new();
    let remote = Remote { key: new_key().public(), address: nowhere().await };
    let options = LinkOptions { policy: policy(Duration::from_secs(2), 3), ..quick() };
    let (link, _hearing) = Link::new(&new_key(), remote, options).unwrap();
    // Several concurrent uses cause one attempt.
    let errors = futures_util::future::join_all((0..3).map(|_| link.call(PING))).await;
    assert!(errors.iter().all(|error| matches!(error, Err(Error::Unreachable { next_try: Some(_), .. }))));
    tokio::time::sleep(Duration::from_millis(4500)).await;
    let error = link.call(PING).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { next_try: None, .. }), "{error}");
    assert!(error.to_string().ends_with("a later call tries again"), "{error}");
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!(meter.of("connects_total unreachable"), 3, "nobody has used it");
    assert_eq!(link.status(), Status::AtRest);
    assert!(matches!(link.call(PING).await, Err(Error::Unreachable { next_try: Some(_), .. })));
    assert_eq!(meter.of("connects_total unreachable"), 4);
}

#[tokio::test]
async fn a_call_waits_for_a_connection_no_longer_than_its_deadline() {
    // The listener accepts connections and never sends anything.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let remote = Remote { key: new_key().public(), address: listener.local_addr().unwrap().to_string() };
    let options = LinkOptions { connect_timeout: Duration::from_millis(200), ..quick() };
    let (link, _hearing) = Link::new(&new_key(), remote, options).unwrap();
    let error = link.call_within(Duration::from_millis(20), PING).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { sent: false, .. }), "{error}");
    let error = soon(link.call(PING)).await.unwrap_err();
    assert!(
        matches!(&error, Error::Unreachable { why, .. } if why == "no connection within 200ms"),
        "{error}"
    );
    drop(link.tell(PING).await);
}

#[tokio::test]
async fn a_link_that_was_never_used_closes_at_once() {
    let remote = Remote { key: new_key().public(), address: nowhere().await };
    let (link, mut hearing) = Link::new(&new_key(), remote, quick()).unwrap();
    soon(link.close()).await;
    assert!(matches!(link.connect().await, Err(Error::Closed)));
    assert!(matches!(link.tell(PING).await, Err(Error::Closed)));
    drop(link);
    assert_eq!(soon(hearing.next()).await, None);
}
