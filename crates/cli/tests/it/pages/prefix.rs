//! Pages behind a proxy that serves them under a path.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::pages::daemon::{ACCEPTOR, Daemon, TOKENS, Target};
use crate::pages::visitor::Visitor;

const PREFIX: &str = "/ops/holdoff";

/// Returns every URL in the page with the page's own origin.
const ADDRESSES: &str = "return Array.from(document.querySelectorAll('[href], [src], [action], [hx-get]')) \
    .flatMap((e) => ['href', 'src', 'action', 'hx-get'].map((name) => e.getAttribute(name))) \
    .filter((at) => at !== null && !at.startsWith('#') && !at.startsWith('data:')) \
    .map((at) => new URL(at, location)).filter((at) => at.origin === location.origin).map((at) => at.pathname)";

#[tokio::test]
async fn every_page_works_under_a_prefix() {
    let target = Target::start().await;
    let file = format!("{TOKENS}prefix = \"{PREFIX}\"\n{ACCEPTOR}");
    for manner in [Manner::TakesItAway, Manner::LeavesIt] {
        let daemon = Daemon::with_ledgers(&["default", "other"], &file);
        daemon.found("laptop").await;
        let task = daemon.call("mail.send", "mail", &target.at("/answer/400")).await;
        daemon.post("/v1/locks/acquire", json!({ "key": "deploy", "lease": "10m", "name": "ci" })).await;
        daemon.settle(std::slice::from_ref(&task), "failed").await;
        let proxy = Proxy::start(daemon.address(), PREFIX, manner).await;
        let visitor = Visitor::to(&format!("{}{PREFIX}", proxy.url)).await;

        visitor.open("/failed").await;
        assert_eq!(visitor.place().await, "/login?next=%2Ffailed", "{manner:?}");
        visitor.log_in(&daemon.token(&["--name", "ada", "--scope", "admin"])).await;
        visitor.sees("h1", "Failed").await;
        assert_eq!(visitor.place().await, "/failed", "{manner:?}");
        assert_eq!(
            visitor.cookie().await.unwrap().1,
            PREFIX,
            "{manner:?}: the cookie is limited to the prefix"
        );
        visitor.sees("#live-word", "live").await;

        let mut pages = visitor.texts("nav a").await;
        assert_eq!(pages.len(), 14, "{pages:?}");
        for name in pages.drain(..) {
            visitor.follow(&name).await;
            visitor.sees("nav a[aria-current]", &name).await;
            checked(&visitor, &name).await;
        }
        let more =
            [format!("/steps/{task}/0"), format!("/tasks/{task}"), "/policies/quick?set.attempts=4".into()];
        for page in more.iter().map(String::as_str).chain([
            "",
            "/",
            "/docs",
            "/councils?sort=mail",
            "/ledger?namespace=other",
            "/steps/act?state=failed&action=retry",
        ]) {
            visitor.open(page).await;
            checked(&visitor, page).await;
        }
        acted(&visitor, &daemon, &target, &task).await;
        assert_eq!(proxy.strays(), Vec::<String>::new(), "{manner:?}: requests outside the prefix");
        visitor.leave().await;
    }
}

/// Asserts that the page has its style, has no console messages, and links only to URLs under the path.
async fn checked(visitor: &Visitor, page: &str) {
    let addresses = visitor.script(ADDRESSES, vec![]).await;
    let addresses = addresses.as_array().unwrap();
    assert!(!addresses.is_empty());
    for at in addresses {
        assert!(at.as_str().unwrap().starts_with(PREFIX), "{page} leads to {at}");
    }
    let rules =
        "return Array.from(document.styleSheets).reduce((sum, sheet) => sum + sheet.cssRules.length, 0)";
    assert!(visitor.script(rules, vec![]).await.as_u64().unwrap() > 50, "{page} has no styles");
    visitor.assert_silent(page).await;
}

/// Uses filters, events, forms and redirects.
async fn acted(visitor: &Visitor, daemon: &Daemon, target: &Target, task: &str) {
    visitor.open("/failed").await;
    visitor.sees("#live-word", "live").await;
    daemon.call("sms.send", "sms", &target.at("/answer/400")).await;
    visitor.sees("#live tbody th", "sms.send").await;
    visitor.write("input[name=operation]", "mail.*\u{e007}").await;
    visitor.sees(".count", "1 step with these filters").await;
    assert_eq!(visitor.place().await, "/failed?operation=mail.*");
    visitor.click("#act-retry").await;
    visitor.click("#confirm").await;
    visitor.sees(".notice", "1 step: ready for another attempt.").await;
    crate::pages::until("the step was retried", async || {
        daemon.get(&format!("/v1/tasks/{task}")).await["attempts"].as_array().unwrap().len() == 2
    })
    .await;
    visitor.open("/nowhere").await;
    visitor.sees(".faint", "Status 404").await;
    visitor.follow("Overview").await;
    visitor.sees("h1", "Overview").await;
    visitor.click(".who form button").await;
    visitor.sees("h1", "Log in").await;
    assert_eq!(visitor.place().await, "/login");
}

/// The proxy's treatment of the path prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// The proxy removes the prefix before it forwards a request.
    TakesItAway,
    LeavesIt,
}

/// A proxy that handles one request per connection.
pub(crate) struct Proxy {
    pub(crate) url: String,
    strays: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    pub(crate) async fn start(to: &str, prefix: &'static str, manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let strays = Arc::new(Mutex::new(Vec::new()));
        let (seen, to) = (Arc::clone(&strays), to.to_owned());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (seen, to) = (Arc::clone(&seen), to.clone());
                tokio::spawn(async move {
                    let stray = pass(client, &to, prefix, manner).await;
                    seen.lock().unwrap().extend(stray);
                });
            }
        });
        Self { url, strays }
    }

    /// Returns the requested paths outside the prefix, which belong to other services.
    pub(crate) fn strays(&self) -> Vec<String> {
        self.strays.lock().unwrap().clone()
    }
}

/// Forwards one request and its response until either side closes. Returns the path if it is outside the prefix.
async fn pass(mut client: TcpStream, to: &str, prefix: &str, manner: Manner) -> Option<String> {
    let (head, rest) = head(&mut client).await?;
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path, version) = (first.next()?, first.next()?, first.next()?);
    let Some(inner) = path.strip_prefix(prefix) else {
        let _ = client
            .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .await;
        return Some(path.to_owned());
    };
    let path = match manner {
        Manner::LeavesIt => path.to_owned(),
        Manner::TakesItAway if inner.starts_with('/') => inner.to_owned(),
        Manner::TakesItAway => format!("/{inner}"),
    };
    let headers = lines.filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let headers = headers.collect::<Vec<_>>().join("\r\n");
    let mut daemon = TcpStream::connect(to).await.ok()?;
    let request = format!("{method} {path} {version}\r\n{headers}\r\nConnection: close\r\n\r\n");
    daemon.write_all(request.as_bytes()).await.ok()?;
    daemon.write_all(&rest).await.ok()?;
    let _ = copy_bidirectional(&mut client, &mut daemon).await;
    None
}

/// Reads the head of a request. Returns it with the bytes that came after it.
async fn head(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut seen = Vec::new();
    loop {
        let mut some = [0; 4096];
        let count = client.read(&mut some).await.ok().filter(|count| *count > 0)?;
        seen.extend_from_slice(&some[..count]);
        if let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = seen.split_off(end + 4);
            return Some((String::from_utf8(seen).ok()?.trim_end().to_owned(), rest));
        }
    }
}
