//! Destinations at their limits.

use std::sync::Mutex;

use holdoff_policy::{BreakerOptions, BudgetOptions, Growth, Jitter, Policy};
use holdoff_testbed::CONDITION_TIMEOUT;
use tokio::sync::oneshot;

use super::server::{Server, answer, respond};
use super::*;
use crate::DestinationLimits;

fn limited(change: impl FnOnce(&mut DestinationLimits)) -> HttpSettings {
    let mut settings = settings();
    change(&mut settings.destination);
    settings
}

#[tokio::test]
async fn a_destination_at_its_limit_refuses_immediately() {
    let (release, released) = oneshot::channel::<()>();
    let (arrived, arrival) = oneshot::channel::<()>();
    let once = Mutex::new(Some((arrived, released)));
    let server = Server::start(move |_, stream| {
        let first = once.lock().unwrap().take();
        async move {
            if let Some((arrived, released)) = first {
                arrived.send(()).unwrap();
                let _ = released.await;
            }
            respond(stream, answer(200, "", "")).await;
        }
    })
    .await;
    let runner = runner(&limited(|limits| limits.concurrency = 1));
    let step = HttpStep::get(server.url("/"));
    let first = tokio::spawn({
        let (runner, step) = (Arc::clone(&runner), step.clone());
        async move { run(&runner, &step).await }
    });
    arrival.await.unwrap();
    let turned_away = fault(&runner, &step).await;
    let wait = busy(&turned_away);
    assert!(wait >= Duration::from_secs(1) && wait <= Duration::from_secs(2), "{wait:?}");
    assert_eq!(server.calls(), 1);
    release.send(()).unwrap();
    first.await.unwrap().unwrap();
    run(&runner, &step).await.unwrap();
}

#[tokio::test]
async fn a_dropped_request_frees_its_slot() {
    let server = Server::start(|_, stream| super::server::hold(stream)).await;
    let runner = runner(&limited(|limits| limits.concurrency = 1));
    let step = HttpStep::get(server.url("/"));
    for _ in 0..2 {
        let dropped = tokio::time::timeout(Duration::from_millis(50), run(&runner, &step)).await;
        assert!(dropped.is_err(), "{dropped:?}");
    }
}

#[tokio::test]
async fn the_rate_limit_is_kept() {
    let server = Server::saying(answer(200, "", "")).await;
    let runner = runner(&limited(|limits| limits.rate = Some(0.1)));
    let step = HttpStep::get(server.url("/"));
    run(&runner, &step).await.unwrap();
    let wait = busy(&fault(&runner, &step).await);
    assert!(wait > Duration::from_secs(5) && wait <= Duration::from_secs(20), "{wait:?}");
    assert_eq!(server.calls(), 1);
}

#[tokio::test]
async fn the_breaker_stops_calls_to_a_dead_destination() {
    let server = Server::saying(answer(500, "", "")).await;
    let minute = Policy::builder(Growth::constant(Duration::from_secs(60))).cap(Duration::from_secs(60));
    let cool_down = minute.jitter(Jitter::None).build().unwrap();
    let breaker = BreakerOptions { min_calls: 3, cool_down, ..BreakerOptions::default() };
    let runner = runner(&limited(|limits| limits.breaker = breaker));
    let step = HttpStep::get(server.url("/"));
    for _ in 0..3 {
        assert_eq!(class(&fault(&runner, &step).await), Class::Transient);
    }
    for _ in 0..100 {
        let wait = busy(&fault(&runner, &step).await);
        assert!(wait > Duration::from_secs(50) && wait <= Duration::from_secs(120), "{wait:?}");
    }
    assert_eq!(server.calls(), 3);
    let other = Server::saying(answer(200, "", "")).await;
    run(&runner, &HttpStep::get(other.url("/"))).await.unwrap();
}

#[tokio::test]
async fn short_timeouts_do_not_open_the_breaker() {
    let server = Server::start(|request, stream| async move {
        if request.line.starts_with("GET /slow") {
            super::server::hold(stream).await;
        } else {
            respond(stream, answer(200, "", "")).await;
        }
    })
    .await;
    let breaker = BreakerOptions { min_calls: 2, ..BreakerOptions::default() };
    let mut settings = limited(|limits| limits.breaker = breaker);
    settings.timeout = Duration::from_millis(100);
    let runner = runner(&settings);
    let impatient = HttpStep::get(server.url("/slow")).timeout(Duration::from_millis(10));
    for _ in 0..10 {
        assert_eq!(class(&fault(&runner, &impatient).await), Class::Timeout);
    }
    run(&runner, &HttpStep::get(server.url("/"))).await.unwrap();
    // A request with the usual timeout counts: one of two counted calls has failed.
    let patient = HttpStep::get(server.url("/slow")).timeout(Duration::from_millis(100));
    assert_eq!(class(&fault(&runner, &patient).await), Class::Timeout);
    busy(&fault(&runner, &HttpStep::get(server.url("/"))).await);
}

/// A step cannot hold a place for longer than the settings permit, even if it was stored with a longer timeout.
#[tokio::test]
async fn a_timeout_is_cut_to_the_maximum() {
    let server = Server::start(|_, stream| super::server::hold(stream)).await;
    let settings = HttpSettings { max_timeout: Duration::from_millis(100), ..settings() };
    let step = HttpStep::get(server.url("/")).timeout(Duration::from_secs(3600));
    let fault = tokio::time::timeout(CONDITION_TIMEOUT, fault(&runner(&settings), &step)).await.unwrap();
    assert_eq!(fault.message(), format!("no complete response from {} within 100ms", server.address));
}

#[tokio::test]
async fn client_errors_do_not_open_the_breaker() {
    let server = Server::saying(answer(404, "", "")).await;
    let breaker = BreakerOptions { min_calls: 2, ..BreakerOptions::default() };
    let runner = runner(&limited(|limits| limits.breaker = breaker));
    for _ in 0..10 {
        assert_eq!(class(&fault(&runner, &HttpStep::get(server.url("/"))).await), Class::Permanent);
    }
    assert_eq!(server.calls(), 10);
}

#[tokio::test]
async fn retries_are_bounded_by_the_budget() {
    let server = Server::saying(answer(404, "", "")).await;
    let runner = runner(&limited(|limits| {
        limits.budget = BudgetOptions { ratio: 0.1, burst: 2 };
        limits.retry_floor = 0.001;
    }));
    let payload = HttpStep::get(server.url("/")).payload().unwrap();
    let mut turned_away = 0;
    for _ in 0..5 {
        let fault = runner.run(&context(2), &payload).await.unwrap_err();
        turned_away += u32::from(fault.failure().is_none());
    }
    assert_eq!((turned_away, server.calls()), (2, 3), "two of the budget, and the first one of its floor");
    runner.run(&context(1), &payload).await.unwrap_err().failure().unwrap();
}
