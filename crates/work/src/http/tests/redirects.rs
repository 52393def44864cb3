//! Servers that redirect requests.

use super::server::{Server, answer, say};
use super::*;

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
async fn a_circle_is_left_after_the_limit() {
    let server = Server::saying(moved("/again?q=hush")).await;
    let settings = HttpSettings { max_redirects: 3, ..settings() };
    let fault = fault(&runner(&settings), &HttpStep::get(server.url("/"))).await;
    assert_eq!(class(&fault), Class::Permanent);
    assert_eq!(fault.message(), format!("{} redirects more than 3 times", server.address));
    assert_eq!(server.calls(), 4);
}

#[tokio::test]
async fn a_redirect_can_be_what_is_expected() {
    let server = Server::saying(moved("/elsewhere")).await;
    let step = HttpStep::get(server.url("/")).expect_status(307);
    assert_eq!(run(&runner(&settings()), &step).await.unwrap()["status"], 307);
    let settings = HttpSettings { max_redirects: 0, ..settings() };
    let fault = fault(&runner(&settings), &HttpStep::get(server.url("/"))).await;
    assert_eq!(fault.message(), format!("HTTP 307 from {}", server.address));
    assert_eq!(server.calls(), 2);
}

#[tokio::test]
async fn only_http_is_followed() {
    for to in ["ftp://127.0.0.1/", "file:///etc/passwd"] {
        let server = Server::saying(moved(to)).await;
        assert_eq!(
            class(&fault(&runner(&settings()), &HttpStep::get(server.url("/"))).await),
            Class::Permanent
        );
    }
}

#[tokio::test]
async fn no_way_leads_to_a_private_address() {
    let target = Server::saying(answer(200, "", "private")).await;
    let port = target.address.port();
    let server = Server::start(move |seen, stream| {
        let host = seen.line.split(' ').nth(1).unwrap().trim_start_matches('/').to_owned();
        say(stream, moved(&format!("http://{host}:{port}/")))
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
async fn a_name_of_a_private_address_is_found_out() {
    let target = Server::saying(answer(200, "", "private")).await;
    let settings = HttpSettings { deny_private: true, ..settings() };
    let runner = HttpRunner::new(&settings, ClassMap::new()).unwrap();
    let fault = fault(&runner, &HttpStep::get(format!("http://localhost:{}/", target.address.port()))).await;
    assert_eq!(class(&fault), Class::Permanent);
    assert_eq!(fault.message(), "localhost is a private address, and http.deny_private is set");
    assert_eq!(target.calls(), 0);
}
