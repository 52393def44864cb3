//! The tower layer and the reqwest middleware, against a real server on loopback.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use holdoff_policy::{BreakerOptions, BreakerState, Class, Failure, Growth, Jitter, Policy, PolicySet};
use holdoff_retry::testing::{Chaos, FakeTime};
use holdoff_retry::{Refresher, Retry, RetryLayer, RetryMiddleware, SharedBreaker, StopReason};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};

fn quick(attempts: u32) -> Policy {
    let growth = Growth::constant(Duration::from_millis(1));
    Policy::builder(growth).jitter(Jitter::None).attempts(attempts).build().unwrap()
}

/// A server that responds with these statuses and headers in order, then with 200, and counts the requests.
/// For an empty status it closes the connection without a response.
struct Server {
    url: String,
    requests: Arc<AtomicU32>,
}

async fn server(answers: &[&str]) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicU32::new(0));
    let answers: Mutex<VecDeque<String>> = Mutex::new(answers.iter().map(ToString::to_string).collect());
    let counted = Arc::clone(&requests);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = [0; 4096];
            let read = socket.read(&mut head).await.unwrap_or(0);
            if read == 0 {
                continue;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            let answer = answers.lock().unwrap().pop_front().unwrap_or_else(|| "200 OK".to_owned());
            if !answer.is_empty() {
                let text = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                let _ = socket.write_all(text.as_bytes()).await;
            }
        }
    });
    Server { url, requests }
}

fn client(middleware: RetryMiddleware) -> ClientWithMiddleware {
    ClientBuilder::new(reqwest::Client::builder().no_proxy().build().unwrap()).with(middleware).build()
}

async fn status(request: reqwest_middleware::RequestBuilder) -> u16 {
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_get_is_retried_until_it_succeeds() {
    let server = server(&["503 Busy", "500 Oops", ""]).await;
    assert_eq!(status(client(RetryMiddleware::new(quick(5))).get(&server.url)).await, 200);
    assert_eq!(server.requests.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn the_last_response_is_returned_after_the_last_attempt() {
    let server = server(&["503 Busy", "503 Busy", "503 Busy"]).await;
    assert_eq!(status(client(RetryMiddleware::new(quick(2))).get(&server.url)).await, 503);
    assert_eq!(server.requests.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_post_that_may_have_taken_effect_is_not_repeated() {
    let server = server(&["500 Oops"]).await;
    assert_eq!(status(client(RetryMiddleware::new(quick(5))).post(&server.url)).await, 500);
    assert_eq!(server.requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_post_with_a_broken_connection_is_not_repeated() {
    let server = server(&["", ""]).await;
    assert!(client(RetryMiddleware::new(quick(5))).post(&server.url).send().await.is_err());
    assert_eq!(server.requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_post_with_an_idempotency_key_is_repeated() {
    let server = server(&["500 Oops", ""]).await;
    let request = client(RetryMiddleware::new(quick(5))).post(&server.url).header("Idempotency-Key", "one");
    assert_eq!(status(request).await, 200);
    assert_eq!(server.requests.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_post_with_a_refused_connection_is_repeated() {
    let server = server(&["429 Slow Down\r\nretry-after: 0", "425 Too Early"]).await;
    assert_eq!(status(client(RetryMiddleware::new(quick(5))).post(&server.url)).await, 200);
}

/// A proxy may respond with 503 after the server has acted.
#[tokio::test]
async fn a_503_to_a_post_is_not_repeated() {
    let server = server(&["503 Busy"]).await;
    assert_eq!(status(client(RetryMiddleware::new(quick(5))).post(&server.url)).await, 503);
}

#[tokio::test]
async fn posts_that_may_not_be_repeated_still_open_the_breaker() {
    let breaker = Arc::new(SharedBreaker::new(BreakerOptions { min_calls: 3, ..BreakerOptions::default() }));
    let server = server(&["500 Oops", "502 Oops", "503 Oops"]).await;
    let client = client(RetryMiddleware::new(Retry::new(quick(5)).breaker(Arc::clone(&breaker))));
    for expected in [500, 502, 503] {
        assert_eq!(status(client.post(&server.url)).await, expected);
    }
    assert_eq!(breaker.state(), BreakerState::Open);
    let stream = client.put(&server.url).body(once_only());
    assert!(stream.send().await.is_err(), "a stream is refused too");
}

/// A middleware that fails before the request is sent.
struct NoToken;

#[async_trait::async_trait]
impl reqwest_middleware::Middleware for NoToken {
    async fn handle(
        &self,
        _: reqwest::Request,
        _: &mut http::Extensions,
        _: reqwest_middleware::Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        Err(reqwest_middleware::Error::middleware(std::io::Error::other("the token file is missing")))
    }
}

#[tokio::test]
async fn a_request_that_was_never_sent_does_not_count_for_the_breaker() {
    let cool_down = quick(2);
    let options = BreakerOptions { min_calls: 1, cool_down, ..BreakerOptions::default() };
    let breaker = Arc::new(SharedBreaker::new(options));
    let server = server(&["500 Oops"]).await;
    let middleware = RetryMiddleware::new(Retry::new(quick(1)).breaker(Arc::clone(&breaker)));
    assert_eq!(status(client(middleware.clone()).get(&server.url)).await, 500);
    let plain = reqwest::Client::builder().no_proxy().build().unwrap();
    let broken = ClientBuilder::new(plain).with(middleware).with(NoToken).build();
    // Repeat until the breaker admits a probe, which it does after its cool-down.
    let mut error = String::new();
    while !error.contains("the token file is missing") {
        error = format!("{:?}", broken.get(&server.url).send().await.unwrap_err());
        tokio::task::yield_now().await;
    }
    assert_eq!(breaker.state(), BreakerState::HalfOpen, "the unsent request is no result of the probe");
}

#[tokio::test]
async fn not_modified_is_not_a_failure() {
    let server = server(&["304 Not Modified"]).await;
    assert_eq!(status(client(RetryMiddleware::new(quick(5))).get(&server.url)).await, 304);
}

#[tokio::test]
async fn a_streaming_body_is_sent_once_and_never_buffered() {
    let server = server(&["503 Busy"]).await;
    let chunks = once_only();
    let request = client(RetryMiddleware::new(quick(5))).put(&server.url).body(chunks);
    assert_eq!(status(request).await, 503);
    assert_eq!(server.requests.load(Ordering::SeqCst), 1);
}

/// A body that can be read only once.
fn once_only() -> reqwest::Body {
    struct Once(bool);
    impl http_body::Body for Once {
        type Data = bytes::Bytes;
        type Error = std::convert::Infallible;
        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
            let first = !std::mem::replace(&mut self.0, true);
            std::task::Poll::Ready(first.then(|| Ok(http_body::Frame::data(bytes::Bytes::from_static(b"x")))))
        }
    }
    reqwest::Body::wrap(Once(false))
}

#[tokio::test]
async fn an_http_date_in_the_past_of_the_servers_own_clock_does_not_wait() {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let head = format!("503 Busy\r\ndate: {date}\r\nretry-after: {date}");
    let server = server(&[&head]).await;
    assert_eq!(status(client(RetryMiddleware::new(quick(5))).get(&server.url)).await, 200);
}

#[tokio::test]
async fn a_retry_after_beyond_the_limit_gives_up() {
    let server = server(&["503 Busy\r\nretry-after: 9999999"]).await;
    assert_eq!(status(client(RetryMiddleware::new(quick(5))).get(&server.url)).await, 503);
}

#[tokio::test]
async fn a_401_refreshes_and_a_409_is_returned() {
    let refresher = Arc::new(Refresher::new(|| async { Ok(()) }));
    let server = server(&["401 Who", "409 Conflict"]).await;
    let client = client(RetryMiddleware::new(Retry::new(quick(5)).refresh(Arc::clone(&refresher))));
    assert_eq!(status(client.get(&server.url)).await, 409);
    assert_eq!((server.requests.load(Ordering::SeqCst), refresher.generation()), (2, 1));
}

#[tokio::test]
async fn requests_use_the_policy_and_the_classes_of_the_set() {
    let text = "[policies.twice]\ngrowth = \"constant\"\ndelay = \"1ms\"\nattempts = 2\n\
                [operations]\n\"page.read\" = \"twice\"\n[classes.http]\n404 = \"transient\"\n";
    let set = PolicySet::from_toml(text).unwrap();
    let server = server(&["404 Not yet", "404 Not yet", "404 Not yet"]).await;
    let read_page = Retry::for_operation(&set, PolicySet::DEFAULT_NAMESPACE, "page.read");
    let request = client(RetryMiddleware::new(quick(9))).get(&server.url).with_extension(read_page);
    assert_eq!(status(request).await, 404);
    assert_eq!(server.requests.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_open_breaker_returns_its_own_error() {
    let breaker = Arc::new(SharedBreaker::new(BreakerOptions { min_calls: 1, ..BreakerOptions::default() }));
    let server = server(&["500 Oops"]).await;
    let client = client(RetryMiddleware::new(Retry::new(quick(1)).breaker(breaker)));
    assert_eq!(status(client.get(&server.url)).await, 500);
    let error = client.get(&server.url).send().await.unwrap_err();
    assert!(format!("{error:?}").contains("the breaker is open"), "{error:?}");
    assert_eq!(server.requests.load(Ordering::SeqCst), 1);
}

/// A server that never responds may have acted: the key makes the second POST safe.
#[tokio::test]
async fn a_post_is_repeated_with_a_generated_idempotency_key() {
    let (listener, keys) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), Arc::new(Mutex::new(Vec::new())));
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let seen = Arc::clone(&keys);
    tokio::spawn(async move {
        for answer in ["", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"] {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 4096];
            let read = socket.read(&mut head).await.unwrap();
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            let key = head.lines().find_map(|line| line.strip_prefix("idempotency-key: ").map(str::to_owned));
            seen.lock().unwrap().push(key.unwrap());
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let client = client(RetryMiddleware::new(quick(5)).generate_idempotency_keys());
    assert_eq!(status(client.post(&url)).await, 200);
    let keys = keys.lock().unwrap();
    assert!(keys.len() == 2 && keys[0] == keys[1] && keys[0].len() == 32, "{keys:?}");
}

#[tokio::test]
async fn a_post_that_was_cut_off_is_not_repeated() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let middleware = RetryMiddleware::new(Retry::new(quick(5)).attempt_timeout(Duration::from_millis(20)));
    client(middleware).post(&url).send().await.unwrap_err();
    let connections = std::iter::repeat_with(|| listener.accept().now_or_never()).take_while(Option::is_some);
    assert_eq!(connections.count(), 1);
}

#[tokio::test]
async fn a_client_has_a_strategy_of_its_own() {
    let server = server(&["404 Not yet", "503 Busy"]).await;
    let middleware = RetryMiddleware::new(quick(5)).strategy(|result, failure| match result {
        Ok(response) if response.status() == 404 => Some(Failure::transient()),
        Ok(_) => None,
        Err(_) => failure,
    });
    assert_eq!(status(client(middleware).get(&server.url)).await, 503);
    assert_eq!(server.requests.load(Ordering::SeqCst), 2);
}

/// A service that answers in this order, and its number of calls.
fn answering<R>(
    answers: Vec<Result<u16, std::io::Error>>,
) -> (BoxCloneSyncService<R, u16, std::io::Error>, Arc<AtomicU32>)
where
    R: Send + 'static,
{
    let calls = Arc::new(AtomicU32::new(0));
    let (counted, answers) = (Arc::clone(&calls), Arc::new(Mutex::new(VecDeque::from(answers))));
    let service = service_fn(move |_: R| {
        counted.fetch_add(1, Ordering::SeqCst);
        let answer = answers.lock().unwrap().pop_front();
        async move {
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    });
    (BoxCloneSyncService::new(service), calls)
}

fn unless_200(result: &Result<u16, std::io::Error>) -> Option<Failure> {
    (!matches!(result, Ok(200))).then(Failure::transient)
}

fn reset() -> std::io::Error {
    std::io::ErrorKind::ConnectionReset.into()
}

#[tokio::test]
async fn the_tower_layer_retries_responses_and_errors() {
    let (inner, calls) = answering(vec![Ok(503), Err(reset()), Ok(200)]);
    let service = RetryLayer::new(Retry::new(quick(5)).operation("tower"), unless_200).layer(inner);
    assert_eq!(service.oneshot(()).await.unwrap(), 200);
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn the_tower_layers_breaker_refuses_without_calling() {
    let (inner, calls) = answering(vec![Err(reset())]);
    let breaker = Arc::new(SharedBreaker::new(BreakerOptions { min_calls: 1, ..BreakerOptions::default() }));
    let service = RetryLayer::new(Retry::new(quick(1)).breaker(breaker), unless_200).layer(inner);
    let failed = service.clone().oneshot(()).await.unwrap_err();
    assert_eq!(
        failed.error().unwrap().kind(),
        std::io::ErrorKind::ConnectionReset,
        "the error of the service"
    );
    let refused = service.oneshot(()).await.unwrap_err();
    assert!(matches!(refused.stopped(), StopReason::BreakerOpen { .. }), "{refused}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_tower_layer_sends_a_request_that_cannot_be_cloned_once() {
    struct Stream;
    let (inner, calls) = answering(vec![Err(reset()), Ok(200)]);
    let retry = Retry::new(quick(5)).attempt_timeout(Duration::from_secs(60)).sleeper(FakeTime::new());
    let layer = RetryLayer::new(retry, unless_200).clone_request(|_: &Stream| None);
    assert_eq!(layer.layer(inner).oneshot(Stream).await.unwrap_err().attempts(), 1);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    let (hanging, calls) = answering(vec![]);
    let cut_off = layer.layer(hanging).oneshot(Stream).await.unwrap_err();
    assert!(cut_off.timed_out() && cut_off.attempts() == 1, "{cut_off}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_tower_layer_has_the_options_of_its_set_up() {
    let time = FakeTime::new();
    let set = PolicySet::from_toml(
        "[policies.twice]\ngrowth = \"constant\"\ndelay = \"1s\"\nattempts = 2\n\
                                    [operations]\n\"a\" = \"twice\"\n",
    );
    let retry = Retry::for_operation(&set.unwrap(), "default", "a").attempt_timeout(Duration::from_secs(3));
    let (hanging, calls) = answering(vec![]);
    let layer = RetryLayer::new(retry.sleeper(time.clone()), unless_200);
    let failed = layer.layer(hanging).oneshot(()).await.unwrap_err();
    assert!(failed.timed_out() && failed.error().is_none(), "{failed}");
    assert_eq!((failed.attempts(), calls.load(Ordering::SeqCst), time.waits().len()), (2, 2, 3));

    let refresher = Arc::new(Refresher::new(|| async { Ok(()) }));
    let (inner, _) = answering(vec![Ok(401), Ok(200)]);
    let retry = Retry::new(quick(5)).refresh(Arc::clone(&refresher)).deadline(Duration::from_secs(60));
    let judge = |result: &Result<u16, _>| matches!(result, Ok(401)).then(|| Class::Unauthorized.into());
    assert_eq!(RetryLayer::new(retry, judge).layer(inner).oneshot(()).await.unwrap(), 200);
    assert_eq!(refresher.generation(), 1);
}

#[tokio::test]
async fn chaos_fails_and_delays_the_requests_of_a_seed() {
    let run = || async {
        let (inner, _) = answering((0..50).map(|_| Ok(200)).collect());
        let time = FakeTime::new();
        let latency = Duration::from_secs(1)..=Duration::from_secs(2);
        let chaos = Chaos::new(3).errors(0.3).latency(latency.clone()).sleeper(time.clone());
        let service = chaos.layer(reset).layer(inner);
        let mut failed = Vec::new();
        for _ in 0..50 {
            failed.push(service.clone().oneshot(()).await.is_err());
        }
        assert!(time.waits().iter().all(|wait| latency.contains(wait)) && time.waits().len() == 50);
        (failed, time.waits())
    };
    let first = run().await;
    assert_eq!(first, run().await);
    assert!((5..30).contains(&first.0.iter().filter(|failed| **failed).count()), "{first:?}");
}
