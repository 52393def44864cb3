//! The tower layer and the reqwest middleware, against a real server on loopback.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdoff_policy::{BreakerOptions, BreakerState, Failure, Growth, Jitter, Policy, PolicySet};
use holdoff_retry::{OperationName, Refresher, RetryLayer, RetryMiddleware, SharedBreaker};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
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
    let client = client(RetryMiddleware::new(quick(5)).breaker(Arc::clone(&breaker)));
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
    let middleware = RetryMiddleware::new(quick(1)).breaker(Arc::clone(&breaker));
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
    let client = client(RetryMiddleware::new(quick(5)).refresh(Arc::clone(&refresher)));
    assert_eq!(status(client.get(&server.url)).await, 409);
    assert_eq!((server.requests.load(Ordering::SeqCst), refresher.generation()), (2, 1));
}

#[tokio::test]
async fn requests_use_the_policy_and_the_classes_of_the_set() {
    let text = "[policies.twice]\ngrowth = \"constant\"\ndelay = \"1ms\"\nattempts = 2\n\
                [operations]\n\"page.read\" = \"twice\"\n[classes.http]\n404 = \"transient\"\n";
    let set = Arc::new(PolicySet::from_toml(text).unwrap());
    let server = server(&["404 Not yet", "404 Not yet", "404 Not yet"]).await;
    let client = client(RetryMiddleware::from_set(set, PolicySet::DEFAULT_NAMESPACE));
    let request = client.get(&server.url).with_extension(OperationName("page.read".into()));
    assert_eq!(status(request).await, 404);
    assert_eq!(server.requests.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_open_breaker_returns_its_own_error() {
    let breaker = Arc::new(SharedBreaker::new(BreakerOptions { min_calls: 1, ..BreakerOptions::default() }));
    let server = server(&["500 Oops"]).await;
    let client = client(RetryMiddleware::new(quick(1)).breaker(breaker));
    assert_eq!(status(client.get(&server.url)).await, 500);
    let error = client.get(&server.url).send().await.unwrap_err();
    assert!(format!("{error:?}").contains("the breaker is open"), "{error:?}");
    assert_eq!(server.requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_tower_layer_retries_responses_and_errors() {
    let answers = Arc::new(Mutex::new(vec![Ok(200), Err(std::io::Error::other("reset")), Ok(503)]));
    let inner = service_fn(move |(): ()| {
        let answer = answers.lock().unwrap().pop().unwrap();
        async move { answer }
    });
    let judge = |result: &Result<u16, std::io::Error>| match result {
        Ok(200) => None,
        _ => Some(Failure::transient()),
    };
    let service = RetryLayer::new(quick(5), judge).operation("tower").layer(inner);
    assert_eq!(service.oneshot(()).await.unwrap(), 200);
}

#[tokio::test]
async fn the_tower_layers_breaker_refuses_without_calling() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let inner = service_fn(move |(): ()| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Err::<(), _>(std::io::Error::other("down")) }
    });
    let breaker = Arc::new(SharedBreaker::new(BreakerOptions { min_calls: 1, ..BreakerOptions::default() }));
    let judge = |_: &Result<(), std::io::Error>| Some(Failure::transient());
    let service = RetryLayer::new(quick(3), judge).breaker(breaker).layer(inner);
    assert_eq!(service.clone().oneshot(()).await.unwrap_err().to_string(), "down");
    let refused = service.oneshot(()).await.unwrap_err().to_string();
    assert!(refused.contains("the breaker is open"), "{refused}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}
