//! A task's graph and a step's attempts.

use serde_json::json;

use crate::pages::daemon::Daemon;
use crate::pages::target::Target;
use crate::pages::visitor::Visitor;

#[tokio::test]
async fn a_task_is_shown_with_its_graph() {
    let (daemon, target) = (Daemon::start(), Target::start().await);
    let step = |name: &str, after: &[&str], path: &str| json!({ "name": name, "operation": format!("order.{name}"), "after": after, "http": { "url": target.at(path) } });
    let steps = [
        step("check", &[], "/answer/200"),
        step("charge", &["check"], "/answer/400"),
        step("reserve", &["check"], "/answer/200"),
        step("ship", &["charge", "reserve"], "/answer/200"),
    ];
    let task = daemon.submit(json!({ "steps": steps })).await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/tasks").await;
    visitor.follow("order.check").await;
    assert_eq!(visitor.place().await, format!("/tasks/{task}"));
    visitor.sees("h1 .state", "failed").await;
    assert_eq!((visitor.count(".graph .node").await, visitor.count(".graph .edge").await), (4, 4));
    crate::pages::until("the graph has their states", async || {
        visitor.count(".graph .node.succeeded").await == 2
            && visitor.count(".graph .node.failed").await == 1
            && visitor.count(".graph .node.blocked").await == 1
    })
    .await;
    visitor.assert_silent("a task").await;
    visitor.click(".graph a:nth-of-type(4)").await;
    visitor.sees("h1", "order.ship").await;
    visitor.sees(".next", "It waits for 1 step of its task.").await;

    visitor.open(&format!("/tasks/{task}")).await;
    visitor.click_and_agree(".actions button").await;
    visitor.sees(".said", "cancelled").await;
    visitor.sees("h1 .state", "cancelled").await;
    visitor.leave().await;
}

#[tokio::test]
async fn a_step_shows_its_tries_and_keeps_its_payload_to_itself() {
    let (daemon, target) = (Daemon::start(), Target::start().await);
    let http = json!({ "url": target.at("/gate"), "body": { "card": "4111-hidden" } });
    let task = daemon.submit(json!({ "operation": "card.charge", "http": http })).await;
    daemon.settle(std::slice::from_ref(&task), "failed").await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/failed").await;
    visitor.follow("card.charge").await;
    visitor.sees(".next", "Given up after 3 failures").await;
    visitor.sees(".last", "closed for the night").await;
    assert_eq!(visitor.count(".timeline rect.try").await, 3, "every try is drawn");
    assert_eq!(visitor.count(".timeline rect.window").await, 2, "and when the next was allowed");
    let outcomes = visitor.texts("tbody td .state").await;
    assert_eq!(outcomes, ["retried", "retried", "failed"]);
    let source = visitor.browser.client.source().await.unwrap();
    assert!(!source.contains("4111-hidden"), "what is hidden is not in the page at all");
    visitor.click("#show-payload").await;
    visitor.sees("#payload pre", "4111-hidden").await;
    visitor.follow("Hide").await;
    visitor.sees("#payload", "Hidden").await;
    visitor.assert_silent("a step").await;

    target.open();
    visitor.click("#act-retry").await;
    visitor.sees("h1", "Retry 1 step?").await;
    visitor.click("#confirm").await;
    visitor.sees("h1 .state", "succeeded").await;
    visitor.sees(".next", "It is done.").await;
    visitor.leave().await;
}
