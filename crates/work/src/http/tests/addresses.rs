//! Private addresses and redirects.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::server::{Server, answer, respond};
use super::*;

/// Returns the resolver's answers: one list after the other, and the last one forever.
fn answers(asked: &AtomicUsize, lists: &[&[&str]]) -> Vec<SocketAddr> {
    let number = asked.fetch_add(1, Ordering::SeqCst).min(lists.len() - 1);
    lists[number].iter().map(|address| SocketAddr::new(address.parse().unwrap(), 0)).collect()
}

/// Starts a server that may be called, and a private one on the same port. Neither keeps connections open, so every
/// request resolves the name again.
async fn pair(first: String) -> (Server, Server) {
    loop {
        let open = Server::saying(first.clone()).await;
        let beside = SocketAddr::new("127.0.0.2".parse().unwrap(), open.address.port());
        if let Some(private) =
            Server::at(beside, |_, stream| respond(stream, answer(200, "", "private"))).await
        {
            return (open, private);
        }
    }
}

fn is_private_fault(fault: &Fault) {
    assert_eq!(class(fault), Class::Permanent, "{fault}");
    assert_eq!(
        fault.message(),
        "moody.example is a private address, and http.deny_private is set: list its network or host under http.allow"
    );
}

#[tokio::test]
async fn a_rebound_name_does_not_reach_a_private_address() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let names: ResolveFn = |_| Box::pin(async { Ok(answers(&ASKED, &[&["127.0.0.1"], &["127.0.0.2"]])) });
    let (open, private) = pair(answer(200, "", "open")).await;
    let runner = resolving(&all_but_the_servers(), names);
    let step = HttpStep::get(format!("http://moody.example:{}/", open.address.port()));
    assert_eq!(run(&runner, &step).await.unwrap()["body"], "open");
    for _ in 0..3 {
        is_private_fault(&fault(&runner, &step).await);
    }
    assert_eq!((open.calls(), private.calls()), (1, 0));
    assert_eq!(
        ASKED.load(Ordering::SeqCst),
        4,
        "the resolver is called once per connection, and the client connects to the checked address"
    );
}

#[tokio::test]
async fn a_name_rebound_before_a_redirect_does_not_reach_a_private_address() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let names: ResolveFn = |_| Box::pin(async { Ok(answers(&ASKED, &[&["127.0.0.1"], &["127.0.0.2"]])) });
    let (open, private) = pair(answer(307, "Location: /again\r\n", "")).await;
    let runner = resolving(&all_but_the_servers(), names);
    let step = HttpStep::get(format!("http://moody.example:{}/", open.address.port()));
    is_private_fault(&fault(&runner, &step).await);
    assert_eq!((open.calls(), private.calls()), (1, 0));
}

#[tokio::test]
async fn private_addresses_of_a_name_are_skipped() {
    const MIXED: &[&str] =
        &["127.0.0.2", "::1", "::ffff:127.0.0.2", "64:ff9b::7f00:2", "0.0.0.0", "127.0.0.1"];
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let names: ResolveFn = |_| Box::pin(async { Ok(answers(&ASKED, &[MIXED])) });
    let (open, private) = pair(answer(200, "", "open")).await;
    let runner = resolving(&all_but_the_servers(), names);
    let step = HttpStep::get(format!("http://moody.example:{}/", open.address.port()));
    for _ in 0..3 {
        assert_eq!(run(&runner, &step).await.unwrap()["body"], "open");
    }
    assert_eq!((open.calls(), private.calls()), (3, 0));
}

fn moved(to: &str) -> String {
    answer(307, &format!("Location: {to}\r\n"), "")
}

#[tokio::test]
async fn a_redirect_is_followed_with_the_body() {
    let server = Server::start(|seen, stream| {
        let is_first = seen.line.starts_with("POST /?q=hush");
        respond(stream, if is_first { moved("/there") } else { answer(200, "", "here") })
    })
    .await;
    let step = HttpStep::post(server.url("/?q=hush")).json(&1).header("x-own", "1");
    assert_eq!(run(&runner(&settings()), &step).await.unwrap()["body"], "here");
    let seen = server.seen().remove(1);
    assert_eq!((seen.line.as_str(), seen.body.as_str()), ("POST /there HTTP/1.1", "1"));
    assert!(seen.headers.contains_key("idempotency-key") && seen.headers.contains_key("x-own"), "{seen:?}");
    assert_eq!(seen.headers.get("referer"), None);
}

/// A destination cannot pass the step's headers and body on to another one.
#[tokio::test]
async fn a_redirect_to_another_origin_carries_nothing_of_the_step() {
    let target = Server::saying(answer(200, "", "here")).await;
    let server = Server::saying(moved(&target.url("/there"))).await;
    let step = HttpStep::post(server.url("/")).json(&"hush").header("x-own", "hush");
    assert_eq!(run(&runner(&settings()), &step).await.unwrap()["body"], "here");
    let seen = target.seen().remove(0);
    assert!(!format!("{seen:?}").contains("hush"), "the other origin received {seen:?}");
    assert!(
        seen.headers.contains_key("idempotency-key") && !seen.headers.contains_key("content-type"),
        "{seen:?}"
    );
}

#[tokio::test]
async fn a_post_becomes_a_get_where_the_status_says_so() {
    for (status, line) in [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")] {
        let server = Server::start(move |seen, stream| {
            let moved = answer(status, "Location: /there\r\n", "");
            respond(stream, if seen.line.contains(" / ") { moved } else { answer(200, "", "") })
        })
        .await;
        run(&runner(&settings()), &HttpStep::post(server.url("/")).json(&1)).await.unwrap();
        let seen = server.seen().remove(1);
        assert!(seen.line.starts_with(line), "{status}: {}", seen.line);
        assert_eq!(seen.body.is_empty(), line == "GET", "{status}");
    }
}

/// A metadata service is refused whatever the settings permit.
#[tokio::test]
async fn link_local_addresses_are_always_refused() {
    let names: ResolveFn = |_| Box::pin(async { Ok(vec!["169.254.169.254:0".parse().unwrap()]) });
    let settings = HttpSettings { allow: vec!["0.0.0.0/0".into(), "moody.example".into()], ..settings() };
    let runner = resolving(&settings, names);
    let server = Server::saying(moved("http://169.254.169.254/latest/meta-data")).await;
    for url in ["http://moody.example/", "http://[fe80::1]/", "http://169.254.169.254/", &server.url("/")] {
        let fault = fault(&runner, &HttpStep::get(url).timeout(Duration::from_secs(2))).await;
        assert_eq!(class(&fault), Class::Permanent, "{url}: {fault}");
        assert!(fault.message().contains("link-local"), "{url}: {fault}");
    }
}

#[tokio::test]
async fn a_redirect_loop_ends_at_the_limit() {
    let server = Server::saying(moved("/again?q=hush")).await;
    let settings = HttpSettings { max_redirects: 3, ..settings() };
    let fault = fault(&runner(&settings), &HttpStep::get(server.url("/"))).await;
    assert_eq!(class(&fault), Class::Permanent);
    assert_eq!(fault.message(), format!("{} redirects more than 3 times", server.address));
    assert_eq!(server.calls(), 4);
}

#[tokio::test]
async fn an_expected_redirect_is_not_followed() {
    let server = Server::saying(moved("/elsewhere")).await;
    let step = HttpStep::get(server.url("/")).expect_status(307);
    assert_eq!(run(&runner(&settings()), &step).await.unwrap()["status"], 307);
    let settings = HttpSettings { max_redirects: 0, ..settings() };
    let fault = fault(&runner(&settings), &HttpStep::get(server.url("/"))).await;
    assert_eq!(fault.message(), format!("HTTP 307 from {}", server.address));
    assert_eq!(server.calls(), 2);
}

#[tokio::test]
async fn only_redirects_to_http_are_followed() {
    for to in ["ftp://127.0.0.1/", "file:///etc/passwd"] {
        let server = Server::saying(moved(to)).await;
        assert_eq!(
            class(&fault(&runner(&settings()), &HttpStep::get(server.url("/"))).await),
            Class::Permanent
        );
    }
}

#[tokio::test]
async fn private_addresses_are_unreachable() {
    let target = Server::saying(answer(200, "", "private")).await;
    let port = target.address.port();
    let server = Server::start(move |seen, stream| {
        let host = seen.line.split(' ').nth(1).unwrap().trim_start_matches('/').to_owned();
        respond(stream, moved(&format!("http://{host}:{port}/")))
    })
    .await;
    let runner = runner(&all_but_the_servers());
    assert_eq!(run(&runner, &HttpStep::get(server.url("/127.0.0.1"))).await.unwrap()["body"], "private");
    for host in ["127.0.0.2", "2130706434", "[::1]", "[::ffff:127.0.0.2]", "169.254.169.254"] {
        let direct = fault(&runner, &HttpStep::get(format!("http://{host}:{port}/"))).await;
        let redirected = fault(&runner, &HttpStep::get(server.url(&format!("/{host}")))).await;
        for fault in [direct, redirected] {
            assert_eq!(class(&fault), Class::Permanent, "{fault}");
            let why =
                if host.starts_with("169.254") { "is a link-local address" } else { "is a private address" };
            assert!(fault.message().contains(why), "{fault}");
        }
    }
    assert_eq!(target.calls(), 1);
}

#[tokio::test]
async fn a_name_with_a_private_address_is_refused() {
    let target = Server::saying(answer(200, "", "private")).await;
    let settings = HttpSettings { deny_private: Some(true), ..settings() };
    let runner = HttpRunner::new(&settings, ClassMap::new()).unwrap();
    let fault = fault(&runner, &HttpStep::get(format!("http://localhost:{}/", target.address.port()))).await;
    assert_eq!(class(&fault), Class::Permanent);
    assert!(fault.message().starts_with("localhost is a private address"), "{fault}");
    assert_eq!(target.calls(), 0);
}
