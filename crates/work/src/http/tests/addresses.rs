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
    assert_eq!(fault.message(), "moody.example is a private address, and http.deny_private is set");
}

#[tokio::test]
async fn a_rebound_name_does_not_reach_a_private_address() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let names: ResolveFn = |_| Box::pin(async { Ok(answers(&ASKED, &[&["127.0.0.1"], &["127.0.0.2"]])) });
    let (open, private) = pair(answer(200, "", "open")).await;
    let runner = asking(&settings(), Some(all_but_the_servers), names);
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
    let runner = asking(&settings(), Some(all_but_the_servers), names);
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
    let runner = asking(&settings(), Some(all_but_the_servers), names);
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
    let target = Server::saying(answer(200, "", "here")).await;
    let server = Server::saying(moved(&target.url("/there"))).await;
    let output = run(&runner(&settings()), &HttpStep::post(server.url("/?q=hush")).json(&1)).await.unwrap();
    assert_eq!(output["body"], "here");
    let seen = target.seen().remove(0);
    assert_eq!(seen.body, "1");
    assert!(seen.headers.contains_key("idempotency-key"));
    assert_eq!(seen.headers.get("referer"), None);
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
    let runner = guarded(&settings(), Some(all_but_the_servers));
    assert_eq!(run(&runner, &HttpStep::get(server.url("/127.0.0.1"))).await.unwrap()["body"], "private");
    for host in ["127.0.0.2", "2130706434", "[::1]", "[::ffff:127.0.0.2]", "169.254.169.254"] {
        let direct = fault(&runner, &HttpStep::get(format!("http://{host}:{port}/"))).await;
        let redirected = fault(&runner, &HttpStep::get(server.url(&format!("/{host}")))).await;
        for fault in [direct, redirected] {
            assert_eq!(class(&fault), Class::Permanent, "{fault}");
            assert!(
                fault.message().ends_with("is a private address, and http.deny_private is set"),
                "{fault}"
            );
        }
    }
    assert_eq!(target.calls(), 1);
}

#[tokio::test]
async fn a_name_with_a_private_address_is_refused() {
    let target = Server::saying(answer(200, "", "private")).await;
    let settings = HttpSettings { deny_private: true, ..settings() };
    let runner = HttpRunner::new(&settings, ClassMap::new()).unwrap();
    let fault = fault(&runner, &HttpStep::get(format!("http://localhost:{}/", target.address.port()))).await;
    assert_eq!(class(&fault), Class::Permanent);
    assert_eq!(fault.message(), "localhost is a private address, and http.deny_private is set");
    assert_eq!(target.calls(), 0);
}
