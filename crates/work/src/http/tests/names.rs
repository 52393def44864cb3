//! Names whose addresses change between resolutions.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::server::{Server, answer, say};
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
        if let Some(private) = Server::at(beside, |_, stream| say(stream, answer(200, "", "private"))).await {
            return (open, private);
        }
    }
}

fn is_private_fault(fault: &Fault) {
    assert_eq!(class(fault), Class::Permanent, "{fault}");
    assert_eq!(fault.message(), "moody.example is a private address, and http.deny_private is set");
}

#[tokio::test]
async fn a_name_that_changes_its_mind_leads_nowhere_private() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let names: Names = |_| Box::pin(async { Ok(answers(&ASKED, &[&["127.0.0.1"], &["127.0.0.2"]])) });
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
        "asked once for each connection: what was judged is connected to"
    );
}

#[tokio::test]
async fn a_name_that_changes_its_mind_before_a_redirect_leads_nowhere_private() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let names: Names = |_| Box::pin(async { Ok(answers(&ASKED, &[&["127.0.0.1"], &["127.0.0.2"]])) });
    let (open, private) = pair(answer(307, "Location: /again\r\n", "")).await;
    let runner = asking(&settings(), Some(all_but_the_servers), names);
    let step = HttpStep::get(format!("http://moody.example:{}/", open.address.port()));
    is_private_fault(&fault(&runner, &step).await);
    assert_eq!((open.calls(), private.calls()), (1, 0));
}

#[tokio::test]
async fn of_many_addresses_the_private_ones_are_left_out() {
    const MIXED: &[&str] =
        &["127.0.0.2", "::1", "::ffff:127.0.0.2", "64:ff9b::7f00:2", "0.0.0.0", "127.0.0.1"];
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let names: Names = |_| Box::pin(async { Ok(answers(&ASKED, &[MIXED])) });
    let (open, private) = pair(answer(200, "", "open")).await;
    let runner = asking(&settings(), Some(all_but_the_servers), names);
    let step = HttpStep::get(format!("http://moody.example:{}/", open.address.port()));
    for _ in 0..3 {
        assert_eq!(run(&runner, &step).await.unwrap()["body"], "open");
    }
    assert_eq!((open.calls(), private.calls()), (3, 0));
}
