//! A page from another origin makes the browser send a form with the session cookie.

use serde_json::json;

use crate::pages::daemon::{Daemon, TOKENS};
use crate::pages::target::{Target, page};
use crate::pages::until;
use crate::pages::visitor::Visitor;

/// Returns a page that submits its form as soon as it loads.
fn trap(action: &str) -> String {
    let field = |name: &str, value: &str| format!("<input name=\"{name}\" value=\"{value}\">");
    let fields =
        [field("namespace", "default"), field("operation", "mail.send"), field("do", "pause")].concat();
    format!(
        "<form method=post action=\"{action}/queues/pause\">{fields}</form><script>document.forms[0].submit()</script>"
    )
}

#[tokio::test]
async fn a_form_from_elsewhere_is_refused() {
    let target = Target::start().await;
    for (file, needs_token) in [("", false), (TOKENS, true)] {
        let daemon = Daemon::start_with(file);
        let task = daemon.call("mail.send", "mail", &target.at("/answer/400")).await;
        daemon.settle(&[task], "failed").await;
        let visitor = Visitor::to(&daemon.url).await;
        if needs_token {
            visitor.open("/login").await;
            visitor.log_in(&daemon.token(&["--name", "ada", "--scope", "admin"])).await;
            visitor.sees("h1", "Overview").await;
        }
        // Another port is the same site and gets the cookie; another host name is not.
        let same_site = page(trap(&daemon.url)).await;
        let cross_site = same_site.replace("127.0.0.1", "localhost");
        for from in [same_site, cross_site] {
            visitor.browser.client.goto(&from).await.unwrap();
            until("the form is sent", async || visitor.place().await == "/queues/pause").await;
            until("it is answered", async || visitor.text("body").await.contains("not")).await;
            let said = visitor.text("body").await;
            assert!(said.contains("this was not sent from a page of this daemon"), "{from}: {said}");
            let queues = daemon.get("/v1/queues").await;
            assert!(queues.to_string().contains("\"paused\":false"), "{queues}");
        }
        // The pages also refuse to be framed, which prevents clickjacking.
        let frame = page(format!("<iframe src=\"{}/queues\"></iframe>", daemon.url)).await;
        visitor.browser.client.goto(&frame).await.unwrap();
        visitor.browser.client.enter_frame(0).await.unwrap();
        let seen = visitor.text("body").await;
        assert!(!seen.contains("mail.send"), "{seen}");
        // The same form on the daemon's own page works.
        visitor.open("/queues").await;
        visitor.click("#live tbody button").await;
        until("it is paused", async || visitor.place().await.contains("done=pause")).await;
        daemon.post("/v1/operations/resume", json!({ "operation": "mail.send" })).await;
        visitor.leave().await;
    }
}
