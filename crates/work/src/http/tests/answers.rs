//! Servers that behave correctly.

use super::server::{Server, answer, say};
use super::*;

#[tokio::test]
async fn a_good_answer_is_the_output() {
    let server = Server::saying(answer(200, "Content-Type: application/json\r\n", r#"{"id":7}"#)).await;
    let output = run(&runner(&settings()), &HttpStep::get(server.url("/"))).await.unwrap();
    assert_eq!(output, serde_json::json!({"status": 200, "body": {"id": 7}}));
}

#[tokio::test]
async fn the_other_side_gets_what_it_needs_to_act_once() {
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
async fn the_same_key_goes_with_every_attempt() {
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
async fn a_head_has_no_body_whatever_length_is_named() {
    let server =
        Server::saying("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\nConnection: close\r\n\r\n").await;
    let output = run(&runner(&settings()), &HttpStep::new("HEAD", server.url("/"))).await.unwrap();
    assert_eq!(output, serde_json::json!({"status": 200, "body": null}));
}

#[tokio::test]
async fn a_long_refusal_is_quoted_from_its_beginning() {
    let server = Server::saying(answer(400, "", &format!("no such thing {}", "x".repeat(50_000)))).await;
    let fault = fault(&runner(&settings()), &HttpStep::get(server.url("/"))).await;
    assert!(fault.message().contains(": no such thing xxx"), "{fault}");
    assert!(fault.message().len() < 300, "{fault}");
}

#[tokio::test]
async fn only_what_is_expected_is_a_success() {
    let server = Server::saying(answer(404, "", "gone")).await;
    let runner = runner(&settings());
    let step = HttpStep::delete(server.url("/")).expect_status(200..=299).expect_status(404);
    assert_eq!(run(&runner, &step).await.unwrap(), serde_json::json!({"status": 404, "body": "gone"}));
    let server = Server::saying(answer(200, "", "")).await;
    let fault = fault(&runner, &HttpStep::post(server.url("/")).expect_status(201)).await;
    assert_eq!(class(&fault), Class::Permanent);
    assert_eq!(fault.message(), format!("HTTP 200 from {}", server.address));
}

#[tokio::test]
async fn a_wish_to_be_left_alone_is_heard_in_both_forms() {
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
async fn statuses_have_the_classes_of_the_table() {
    let server = Server::start(|seen, stream| {
        let status = seen.line.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        say(stream, answer(status, "", ""))
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
