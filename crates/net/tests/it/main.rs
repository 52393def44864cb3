//! Links over a simulated network with partitions, delays and crashes derived from a seed.
//!
//! `HOLDOFF_SEED=… HOLDOFF_SEEDS=… cargo test -p holdoff-net --features turmoil --test it` replays a run or
//! extends the test.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod storm;
mod world;

use std::time::Duration;

use holdoff_net::{Error, Link, LinkOptions};
use world::{RecordingTransport, SERVER, policy, remote, serve, sim};

const PING: &[u8] = b"ping";

#[test]
fn calls_end_by_their_deadline_during_a_partition() {
    let mut sim = sim(1);
    sim.host(SERVER, || serve(world::CallLog::default()));
    sim.client("client", async {
        let options = LinkOptions { policy: policy(100), ..world::link_options(1) };
        let (link, _pushes) = Link::new(&world::key(1), remote(), options).unwrap();
        assert_eq!(link.call(PING.into()).await.unwrap(), PING);

        turmoil::partition("client", SERVER);
        let began = turmoil::elapsed();
        let error = link.call_within(Duration::from_millis(300), PING.into()).await.unwrap_err();
        assert!(matches!(error, Error::Deadline { is_sent: true, .. }), "{error}");
        let took = turmoil::elapsed().as_millis() - began.as_millis();
        assert!((300..=302).contains(&took), "{took} ms");

        let error = link.call(PING.into()).await.unwrap_err();
        assert!(matches!(error, Error::Lost { .. }), "{error}");
        assert!(turmoil::elapsed() <= began + world::IDLE + Duration::from_millis(100), "silence is noticed");
        let began = turmoil::elapsed();
        let error = link.call(PING.into()).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { next_attempt: Some(_), .. }), "{error}");
        assert_eq!(turmoil::elapsed(), began, "a call fails at once while the peer is unreachable");

        turmoil::repair("client", SERVER);
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(link.call(PING.into()).await.unwrap(), PING);
        Ok(())
    });
    sim.run().unwrap();
}

#[test]
fn reconnect_attempts_follow_the_policy() {
    let mut sim = sim(2);
    sim.host(SERVER, || serve(world::CallLog::default()));
    let (transport, attempts) = RecordingTransport::new();
    sim.client("client", async move {
        let options = LinkOptions { policy: policy(500), transport, ..world::link_options(1) };
        let (link, _pushes) = Link::new(&world::key(1), remote(), options).unwrap();
        link.connect().await.unwrap();
        // A steady connection resets the count of attempts.
        tokio::time::sleep(Duration::from_secs(6)).await;
        turmoil::partition("client", SERVER);
        tokio::time::sleep(Duration::from_secs(6)).await;
        turmoil::repair("client", SERVER);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(link.call(PING.into()).await.unwrap(), PING);
        Ok(())
    });
    sim.run().unwrap();
    let attempts = attempts.lock().unwrap();
    let waits: Vec<u128> =
        attempts[1..].windows(2).map(|pair| pair[1].as_millis() - pair[0].as_millis()).collect();
    assert!(waits.len() >= 5, "{waits:?}");
    assert!(waits.iter().all(|wait| *wait == 500), "{waits:?}");
}

#[test]
fn a_link_reconnects_to_a_crashed_server() {
    let mut sim = sim(3);
    let calls = world::CallLog::default();
    let counts = calls.clone();
    sim.host(SERVER, move || serve(counts.clone()));
    sim.client("client", async {
        let (link, _pushes) = Link::new(&world::key(1), remote(), world::link_options(1)).unwrap();
        loop {
            let number = u64::try_from(turmoil::elapsed().as_millis()).unwrap();
            if let Ok(echo) = link.call_value_within::<u64>(Duration::from_millis(500), &number).await {
                assert_eq!(echo, number);
                if number > 4000 {
                    return Ok(());
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let mut has_crashed = [false; 2];
    while !sim.step().unwrap() {
        let now = sim.elapsed();
        if now > Duration::from_secs(1) && !has_crashed[0] {
            sim.crash(SERVER);
            has_crashed[0] = true;
        }
        if now > Duration::from_secs(3) && !has_crashed[1] {
            sim.bounce(SERVER);
            has_crashed[1] = true;
        }
    }
    assert_eq!(has_crashed, [true; 2]);
    calls.check_no_call_executed_twice();
}
