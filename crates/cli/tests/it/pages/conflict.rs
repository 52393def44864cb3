//! An operator resolves a conflict after seeing it, and may change the request.

use serde_json::json;

use crate::pages::daemon::Daemon;
use crate::pages::target::Target;
use crate::pages::visitor::Visitor;

/// Returns the request with another revision, whatever its whitespace.
fn revised(sent: &str, revision: &str) -> String {
    let changed = ["", " "].iter().fold(sent.to_owned(), |text, gap| {
        text.replace(&format!("\"revision\":{gap}1"), &format!("\"revision\":{gap}{revision}"))
    });
    assert_ne!(changed, sent, "it has a revision");
    changed
}

#[tokio::test]
async fn a_conflict_is_resolved_by_changing_what_is_sent() {
    let (daemon, target) = (Daemon::start(), Target::start().await);
    let http = json!({ "url": target.at("/revision"), "body": { "revision": 1, "note": "ä \"<b>\"" } });
    let task = daemon.submit(json!({ "operation": "document.store", "http": http })).await;
    daemon.settle(std::slice::from_ref(&task), "conflicted").await;

    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/conflicts").await;
    visitor.follow("document.store").await;
    visitor.sees(".last", "revision 2 is the current one").await;
    visitor.click("#resolve").await;
    visitor.sees("h1", "Resolve document.store").await;
    visitor.sees(".last", "revision 2 is the current one").await;
    let sent = visitor.value("#edit").await;
    assert!(sent.contains("ä \\\"<b>\\\""), "{sent}");
    visitor.assert_silent("a conflict").await;

    let broken = revised(&sent, "2 oops");
    visitor.write("#edit", &broken).await;
    visitor.click("#confirm").await;
    visitor.sees(".wrong", "this is not JSON").await;
    let wrong = visitor.text(".wrong").await;
    assert!(wrong.contains("line"), "it says where: {wrong}");
    assert_eq!(visitor.value("#edit").await, broken, "what was typed is still there");
    assert_eq!(daemon.state(&task).await, "conflicted");

    visitor.write("#edit", &revised(&sent, "2")).await;
    visitor.click("#confirm").await;
    visitor.sees(".said", "Resolved: the step is tried again.").await;
    visitor.sees("h1 .state", "succeeded").await;
    daemon.settle(&[task], "succeeded").await;
    visitor.open("/audit").await;
    assert_eq!(visitor.text("tbody td code").await, "step.resolve");
    visitor.leave().await;
}

/// Unedited parts of a payload keep their text, because parsing and formatting a number may change it.
#[tokio::test]
async fn nothing_changes_but_what_was_changed() {
    let (daemon, target) = (Daemon::start(), Target::start().await);
    let body = r#"{"revision":1,"price":1.50,"account":12345678901234567890123,"a":[]}"#;
    let http = format!(r#"{{"url": "{}", "body": {body}}}"#, target.at("/revision"));
    let task = daemon.submit_text(format!(r#"{{"operation": "document.store", "http": {http}}}"#)).await;
    daemon.settle(std::slice::from_ref(&task), "conflicted").await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open(&format!("/conflicts/{task}/0")).await;
    let sent = visitor.value("#edit").await;
    visitor.write("#edit", &revised(&sent, "2")).await;
    visitor.click("#confirm").await;
    visitor.sees("h1 .state", "succeeded").await;
    let stored: String = target.stored().split_whitespace().collect();
    assert_eq!(stored, revised(body, "2"));
    visitor.leave().await;
}

/// If two operators resolve a conflict concurrently, the second gets an error.
#[tokio::test]
async fn who_comes_second_changes_nothing() {
    let (daemon, target) = (Daemon::start(), Target::start().await);
    let http = json!({ "url": target.at("/revision"), "body": { "revision": 1 } });
    let task = daemon.submit(json!({ "operation": "document.store", "http": http })).await;
    daemon.settle(std::slice::from_ref(&task), "conflicted").await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open(&format!("/conflicts/{task}/0")).await;
    let sent = visitor.value("#edit").await;
    daemon.post("/v1/steps/discard", json!({ "filter": { "task": task } })).await;
    visitor.write("#edit", &revised(&sent, "2")).await;
    visitor.click("#confirm").await;
    visitor.sees("main", "there is nothing left to decide").await;
    assert_ne!(visitor.text(".wrong").await, "", "it says why");
    assert_eq!(daemon.state(&task).await, "discarded");
    visitor.leave().await;
}
