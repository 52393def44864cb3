//! The pages behind a proxy, under a path: every link, form, style, script and event stream works.

use serde_json::json;

use crate::pages::daemon::{ACCEPTOR, Daemon, TOKENS};
use crate::pages::proxy::{Manner, Proxy};
use crate::pages::target::Target;
use crate::pages::visitor::Visitor;

const PREFIX: &str = "/ops/holdoff";

/// Returns every URL in the page with the page's own origin.
const ADDRESSES: &str = "return Array.from(document.querySelectorAll('[href], [src], [action], [hx-get]')) \
    .flatMap((e) => ['href', 'src', 'action', 'hx-get'].map((name) => e.getAttribute(name))) \
    .filter((at) => at !== null && !at.startsWith('#') && !at.startsWith('data:')) \
    .map((at) => new URL(at, location)).filter((at) => at.origin === location.origin).map((at) => at.pathname)";

#[tokio::test]
async fn every_page_works_under_a_path() {
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
        assert_eq!(visitor.cookie().await.unwrap().1, PREFIX, "{manner:?}: its cookie is nobody else's");
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
            "/councils?sort=letters",
            "/ledger?namespace=other",
            "/steps/act?state=failed&action=retry",
        ]) {
            visitor.open(page).await;
            checked(&visitor, page).await;
        }
        acted(&visitor, &daemon, &target, &task).await;
        assert_eq!(proxy.strays(), Vec::<String>::new(), "{manner:?}: asked for beside the path");
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
    assert!(visitor.script(rules, vec![]).await.as_u64().unwrap() > 50, "{page} has its styles");
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
    visitor.sees(".said", "1 step: ready to be tried again.").await;
    crate::pages::until("it was tried again", async || {
        daemon.get(&format!("/v1/tasks/{task}")).await["attempts"].as_array().unwrap().len() == 2
    })
    .await;
    visitor.open("/nowhere").await;
    visitor.sees(".faint", "Status 404").await;
    visitor.follow("To the overview").await;
    visitor.sees("h1", "Overview").await;
    visitor.click(".who form button").await;
    visitor.sees("h1", "Log in").await;
    assert_eq!(visitor.place().await, "/login");
}
