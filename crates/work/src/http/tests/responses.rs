//! Responses: expected, unexpected, late, endless and broken.

use std::sync::Mutex;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::server::{Server, answer, hold, respond};
use super::*;

#[tokio::test]
async fn an_expected_response_is_the_output() {
    let server = Server::saying(answer(200, "Content-Type: application/json\r\n", r#"{"id":7}"#)).await;
    let output = run(&runner(&settings()), &HttpStep::get(server.url("/"))).await.unwrap();
    assert_eq!(output, json!({"status": 200, "body": {"id": 7}}));
}

#[tokio::test]
async fn a_request_carries_key_attempt_token_and_trace() {
    let server = Server::saying(answer(204, "", "")).await;
    let runner = runner(&settings());
    let step = HttpStep::post(server.url("/a?b=c")).json(&[1]).header("X-Mine", "yes");
    let cx = context(4);
    runner.run(&cx, &step.payload().unwrap()).await.unwrap();
    let seen = server.seen().remove(0);
    assert_eq!((seen.line.as_str(), seen.body.as_str()), ("POST /a?b=c HTTP/1.1", "[1]"));
    let header = |name: &str| seen.headers.get(name).map(String::as_str);
    assert_eq!(header("idempotency-key"), Some(cx.idempotency_key().as_str()));
    assert_eq!(header("holdoff-attempt"), Some("4"));
    assert_eq!(header("holdoff-fencing-token"), Some("7"));
    assert_eq!(header("traceparent"), cx.trace());
    assert_eq!(header("user-agent"), Some(concat!("holdoff/", env!("CARGO_PKG_VERSION"))));
    assert_eq!(header("content-type"), Some("application/json"));
    assert_eq!(header("x-mine"), Some("yes"));
    assert_eq!(header("authorization"), None);
}

#[tokio::test]
async fn every_attempt_sends_the_same_idempotency_key() {
    let server = Server::saying(answer(200, "", "ok")).await;
    let (runner, payload) = (runner(&settings()), HttpStep::get(server.url("/")).payload().unwrap());
    let first = context(1);
    for attempt in [1, 2] {
        runner.run(&Context { attempt, ..first.clone() }, &payload).await.unwrap();
    }
    let keys: Vec<_> = server.seen().iter().map(|seen| seen.headers["idempotency-key"].clone()).collect();
    assert_eq!(keys, [first.idempotency_key(), first.idempotency_key()]);
}

#[tokio::test]
async fn a_head_response_has_no_body_despite_its_length() {
    let server =
        Server::saying("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\nConnection: close\r\n\r\n").await;
    let output = run(&runner(&settings()), &HttpStep::new("HEAD", server.url("/"))).await.unwrap();
    assert_eq!(output, json!({"status": 200, "body": null}));
}

#[tokio::test]
async fn a_long_error_body_is_excerpted() {
    let server = Server::saying(answer(400, "", &format!("no such thing {}", "x".repeat(50_000)))).await;
    let fault = fault(&runner(&settings()), &HttpStep::get(server.url("/"))).await;
    assert!(fault.message().contains(": no such thing xxx"), "{fault}");
    assert!(fault.message().len() < 300, "{fault}");
}

#[tokio::test]
async fn only_an_expected_status_is_a_success() {
    let server = Server::saying(answer(404, "", "gone")).await;
    let runner = runner(&settings());
    let step = HttpStep::delete(server.url("/")).expect_status(200..=299).expect_status(404);
    assert_eq!(run(&runner, &step).await.unwrap(), json!({"status": 404, "body": "gone"}));
    let server = Server::saying(answer(200, "", "")).await;
    let fault = fault(&runner, &HttpStep::post(server.url("/")).expect_status(201)).await;
    assert_eq!(class(&fault), Class::Permanent);
    assert_eq!(fault.message(), format!("HTTP 200 from {}", server.address));
}

#[tokio::test]
async fn retry_after_is_read_as_seconds_and_as_a_date() {
    let date = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Sun, 06 Nov 1994 08:51:37 GMT\r\n";
    let runner = runner(&settings());
    for headers in ["Retry-After: 120\r\n", date] {
        let server = Server::saying(answer(503, headers, "too\nbusy")).await;
        let fault = fault(&runner, &HttpStep::post(server.url("/secret?token=hush"))).await;
        let failure = fault.failure().unwrap();
        assert_eq!(failure.class(), Class::Transient);
        assert_eq!(failure.retry_after(), Some(Duration::from_secs(120)));
        assert!(failure.is_repeatable());
        assert_eq!(fault.message(), format!("HTTP 503 from {}: too busy", server.address));
    }
}

#[tokio::test]
async fn statuses_map_to_their_classes() {
    let server = Server::start(|seen, stream| {
        let status = seen.line.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        respond(stream, answer(status, "", ""))
    })
    .await;
    let runner = runner(&settings());
    for (status, expected) in [
        (400, Class::Permanent),
        (401, Class::Unauthorized),
        (409, Class::Conflict),
        (429, Class::RateLimited),
        (500, Class::Transient),
        (504, Class::Timeout),
        (304, Class::Permanent),
    ] {
        let fault = fault(&runner, &HttpStep::post(server.url(&format!("/{status}")))).await;
        assert_eq!(class(&fault), expected, "{status}");
    }
}

const ENDLESS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n";

/// Sends this and then nothing more, without closing the connection.
async fn stalling(beginning: &'static [u8]) -> Server {
    Server::start(move |_, mut stream| async move {
        stream.write_all(beginning).await.unwrap();
        hold(stream).await;
    })
    .await
}

#[tokio::test]
async fn a_missing_body_is_a_timeout() {
    let runner = runner(&settings());
    for beginning in [&b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"[..], b"HTTP/1.1 200", b""] {
        let server = stalling(beginning).await;
        let step = HttpStep::get(server.url("/")).timeout(Duration::from_millis(80));
        let fault = fault(&runner, &step).await;
        assert_eq!(class(&fault), Class::Timeout);
        assert_eq!(fault.message(), format!("no complete response from {} within 80ms", server.address));
    }
}

#[tokio::test]
async fn a_status_counts_even_without_its_body() {
    let server = stalling(b"HTTP/1.1 409 X\r\nContent-Length: 10\r\n\r\nhalf").await;
    let fault = fault(&runner(&settings()), &HttpStep::get(server.url("/"))).await;
    assert_eq!(class(&fault), Class::Conflict);
    assert_eq!(fault.message(), format!("HTTP 409 from {}: half", server.address));
}

#[tokio::test]
async fn a_broken_connection_is_transient() {
    let server = Server::start(|_, mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await.unwrap();
        // The connection closes with outstanding data, so the client receives a reset.
        stream.set_zero_linger().unwrap();
    })
    .await;
    let runner = runner(&settings());
    let broken = fault(&runner, &HttpStep::post(server.url("/?q=hush"))).await;
    assert_eq!(class(&broken), Class::Transient);
    assert!(
        broken.message().starts_with(&format!("no complete response from {}", server.address)),
        "{broken}"
    );
    let early = Server::start(|_, stream| async move { drop(stream) }).await;
    assert_eq!(class(&fault(&runner, &HttpStep::get(early.url("/"))).await), Class::Transient);
    let unreachable = early.url("/?q=hush");
    drop(early);
    let refused = loop {
        let refused = fault(&runner, &HttpStep::get(&unreachable)).await;
        if refused.message().contains("refused") {
            break refused;
        }
    };
    assert_eq!(class(&refused), Class::Transient);
    assert!(!refused.message().contains("hush"), "{refused}");
}

#[tokio::test]
async fn an_endless_body_is_cut_off() {
    let (done, written) = oneshot::channel();
    let done = Mutex::new(Some(done));
    let server = Server::start(move |_, mut stream| {
        let done = done.lock().unwrap().take();
        async move {
            stream.write_all(ENDLESS).await.unwrap();
            let (block, mut written) = (vec![b'x'; 65536], 0_usize);
            while stream.write_all(&block).await.is_ok() {
                written += block.len();
            }
            done.unwrap().send(written).unwrap();
        }
    })
    .await;
    let settings = HttpSettings { max_response: 100_000, ..settings() };
    let payload = HttpStep::get(server.url("/")).payload().unwrap();
    let output = runner(&settings).respond(&context(1), &payload).await.unwrap();
    assert_eq!(output.payload.read::<Value>().unwrap(), json!({"status": 200, "body": null}));
    assert_eq!(
        output.note,
        "the body of the response was dropped: it exceeds http.max_response (100000 bytes)"
    );
    // The data beyond the limit filled the sockets' buffers, and then the client closed the connection.
    assert!(written.await.unwrap() < 50 << 20);
}

#[tokio::test]
async fn a_content_length_above_the_limit_is_not_read() {
    let server = stalling(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n").await;
    let output = run(&runner(&settings()), &HttpStep::get(server.url("/"))).await.unwrap();
    assert_eq!(output, json!({"status": 200, "body": null, "bytes": 999_999_999_999_u64}));
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_read() {
    let server = Server::saying(super::server::answer(200, "", "12345")).await;
    let settings = HttpSettings { max_response: 5, ..settings() };
    let output = run(&runner(&settings), &HttpStep::get(server.url("/"))).await.unwrap();
    assert_eq!(output["body"], "12345");
}

#[tokio::test]
async fn a_response_that_is_not_http_is_transient() {
    let server = Server::saying("SSH-2.0-OpenSSH_9.2p1\r\n").await;
    let runner = runner(&settings());
    assert_eq!(class(&fault(&runner, &HttpStep::get(server.url("/"))).await), Class::Transient);
}

/// Accepts one connection after another and calls this function with each.
async fn accepting<F, Fut>(serve: F) -> String
where
    F: Fn(TcpStream) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            serve(listener.accept().await.unwrap().0).await;
        }
    });
    url
}

#[tokio::test]
async fn an_untrusted_certificate_is_permanent() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key);
    let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
    let url = accepting(move |stream| {
        let accepted = acceptor.accept(stream);
        async move { assert!(accepted.await.is_err(), "the client must not go on") }
    })
    .await;
    let fault = fault(&runner(&settings()), &HttpStep::get(url)).await;
    assert_eq!(class(&fault), Class::Permanent);
    assert!(fault.message().contains("is not trusted"), "{fault}");
}

#[tokio::test]
async fn a_response_that_is_not_tls_is_transient() {
    let url = accepting(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        hold(stream).await;
    })
    .await;
    let fault = fault(&runner(&settings()), &HttpStep::get(url)).await;
    assert_eq!(class(&fault), Class::Transient);
}

#[tokio::test]
async fn an_unknown_host_name_is_transient() {
    let fault = fault(&runner(&settings()), &HttpStep::get("http://unknown.invalid/?q=hush")).await;
    assert_eq!(class(&fault), Class::Transient);
    assert_eq!(fault.message(), "cannot resolve the host name unknown.invalid");
}

#[tokio::test]
async fn an_overlong_url_is_permanent() {
    let server = Server::saying("").await;
    let url = server.url(&format!("/{}", "x".repeat(70_000)));
    assert_eq!(class(&fault(&runner(&settings()), &HttpStep::get(url)).await), Class::Permanent);
}
