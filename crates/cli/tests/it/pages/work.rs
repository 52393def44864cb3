//! Tasks, steps, conflicts, queues and locks.

use fantoccini::key::Key;
use serde_json::json;

use crate::pages::daemon::{Daemon, Target};
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
    crate::pages::until("the graph shows the states of the steps", async || {
        visitor.count(".graph .node.succeeded").await == 2
            && visitor.count(".graph .node.failed").await == 1
            && visitor.count(".graph .node.blocked").await == 1
    })
    .await;
    visitor.assert_silent("a task").await;
    visitor.click(".graph a:nth-of-type(4)").await;
    visitor.sees("h1", "order.ship").await;
    visitor.sees(".next", "Waiting for 1 step of its task.").await;

    visitor.open(&format!("/tasks/{task}")).await;
    visitor.click_and_agree(".actions button").await;
    visitor.sees(".notice", "cancelled").await;
    visitor.sees("h1 .state", "cancelled").await;
    visitor.leave().await;
}

#[tokio::test]
async fn a_step_shows_its_attempts_and_hides_its_payload() {
    let (daemon, target) = (Daemon::start(), Target::start().await);
    let http = json!({ "url": target.at("/gate"), "body": { "card": "4111-hidden" } });
    let task = daemon.submit(json!({ "operation": "card.charge", "http": http })).await;
    daemon.settle(std::slice::from_ref(&task), "failed").await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/failed").await;
    visitor.follow("card.charge").await;
    visitor.sees(".next", "Failed for good after 3 failures").await;
    visitor.sees(".last", "closed for the night").await;
    assert_eq!(visitor.count(".timeline rect.attempt").await, 3, "every attempt is drawn");
    assert_eq!(visitor.count(".timeline rect.window").await, 2, "each delay between attempts is drawn");
    let outcomes = visitor.texts("tbody td .state").await;
    assert_eq!(outcomes, ["retried", "retried", "failed"]);
    let source = visitor.browser.client.source().await.unwrap();
    assert!(!source.contains("4111-hidden"), "the page source does not contain the redacted value");
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
    visitor.sees(".next", "Succeeded.").await;
    visitor.leave().await;
}

#[tokio::test]
async fn only_matching_steps_are_retried() {
    let (daemon, target) = (Daemon::start(), Target::start().await);
    let (mut meant, mut others) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        meant.push(daemon.call("mail.send", "mail", &target.at("/gate")).await);
    }
    for (operation, queue) in [("mail.send", "bulk"), ("sms.send", "mail"), ("sms.send", "sms")] {
        others.push(daemon.call(operation, queue, &target.at("/gate")).await);
    }
    daemon.settle(&meant, "failed").await;
    daemon.settle(&others, "failed").await;
    target.open();

    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/failed").await;
    visitor.sees(".count", "8 steps").await;
    visitor.write("input[name=operation]", &format!("mail.*{}", Key::Enter)).await;
    visitor.sees(".count", "6 steps with these filters").await;
    visitor.write("input[name=queue]", &format!("mail{}", Key::Enter)).await;
    visitor.sees(".count", "5 steps with these filters").await;
    visitor.click("#act-retry").await;
    visitor.sees("h1", "Retry 5 steps?").await;
    assert_eq!(visitor.texts(".chips li").await.len(), 3, "the confirmation shows the filters");
    for task in &meant {
        assert_eq!(daemon.state(task).await, "failed", "no step is retried before the confirmation");
    }
    visitor.click("#confirm").await;
    visitor.sees(".notice", "5 steps: ready for another attempt.").await;
    let place = visitor.place().await;
    assert!(place.starts_with("/steps?") && place.contains("queue=mail"), "{place}");

    daemon.settle(&meant, "succeeded").await;
    for task in &others {
        let attempts = daemon.get(&format!("/v1/steps/{task}/0/attempts")).await;
        assert_eq!(attempts["items"].as_array().or(attempts.as_array()).unwrap().len(), 3, "{attempts}");
        assert_eq!(daemon.state(task).await, "failed");
    }
    visitor.open("/audit").await;
    let row = visitor.texts("tbody tr:first-child > *").await;
    assert_eq!(row[2], "steps.retry", "{row:?}");
    assert!(row[3].contains("mail"), "{row:?}");
    assert_eq!(row[4], "5", "{row:?}");
    visitor.assert_silent("/audit").await;

    visitor.open("/failed?operation=mail.*&queue=mail").await;
    assert_eq!(visitor.count("#act-retry").await, 0, "a filter that matches no step offers no retry");
    visitor.open("/steps/act?action=retry&operation=mail.*&queue=mail").await;
    visitor.sees("h1", "No step matches").await;
    assert_eq!(visitor.count("#confirm").await, 0);
    visitor.leave().await;
}

/// Returns the request with another revision, whatever its whitespace.
fn revised(sent: &str, revision: &str) -> String {
    let changed = ["", " "].iter().fold(sent.to_owned(), |text, gap| {
        text.replace(&format!("\"revision\":{gap}1"), &format!("\"revision\":{gap}{revision}"))
    });
    assert_ne!(changed, sent, "the request contains a revision");
    changed
}

#[tokio::test]
async fn a_conflict_is_resolved_with_an_edited_payload() {
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
    visitor.sees(".wrong", "the payload is not JSON").await;
    let wrong = visitor.text(".wrong").await;
    assert!(wrong.contains("line"), "the problem names the line: {wrong}");
    assert_eq!(visitor.value("#edit").await, broken, "the form keeps the entered payload");
    assert_eq!(daemon.state(&task).await, "conflicted");

    visitor.write("#edit", &revised(&sent, "2")).await;
    visitor.click("#confirm").await;
    visitor.sees(".notice", "Resolved: the step is ready for another attempt.").await;
    visitor.sees("h1 .state", "succeeded").await;
    daemon.settle(&[task], "succeeded").await;
    visitor.open("/audit").await;
    assert_eq!(visitor.text("tbody td code").await, "step.resolve");
    visitor.leave().await;
}

/// Unedited parts of a payload keep their text, because parsing and formatting a number may change it.
#[tokio::test]
async fn resolving_keeps_the_rest_of_the_payload() {
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
async fn a_conflict_that_was_already_decided_is_not_resolved_again() {
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
    visitor.sees("main", "there is nothing to resolve").await;
    assert_ne!(visitor.text(".wrong").await, "", "the page shows the reason");
    assert_eq!(daemon.state(&task).await, "discarded");
    visitor.leave().await;
}

#[tokio::test]
async fn a_paused_operation_waits_until_it_is_resumed() {
    let (daemon, target) = (Daemon::start(), Target::start().await);
    target.open();
    let parked = daemon.call("mail.send", "mail", &target.at("/slow")).await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/queues").await;
    visitor.sees("#live tbody th", "mail.send").await;
    visitor.click("#live tbody button").await;
    done(&visitor, "pause").await;
    visitor.sees("#live tbody th .tag", "paused").await;
    let waiting = daemon.call("mail.send", "mail", &target.at("/gate")).await;
    let other = daemon.call("sms.send", "sms", &target.at("/gate")).await;
    daemon.settle(&[other], "succeeded").await;
    assert_eq!(daemon.state(&waiting).await, "ready");
    visitor.open("/").await;
    visitor.sees(".alarms", "mail.send is paused").await;
    visitor.open("/queues").await;
    visitor.click("#live tbody tr:first-child button").await;
    done(&visitor, "resume").await;
    daemon.settle(&[waiting], "succeeded").await;
    assert_eq!(visitor.count("#live tbody .tag").await, 0);

    visitor.write("form.inline input[name=queue]", "mail").await;
    visitor.click("form.inline button[value=pause]").await;
    done(&visitor, "pause").await;
    let waiting = daemon.call("mail.sort", "mail", &target.at("/gate")).await;
    visitor.sees("#live", "mail.sort").await;
    assert_eq!(daemon.state(&waiting).await, "ready");
    visitor.write("form.inline input[name=queue]", "mail").await;
    visitor.click("form.inline button[value=resume]").await;
    done(&visitor, "resume").await;
    daemon.settle(&[waiting], "succeeded").await;
    visitor.open("/audit").await;
    let did = visitor.texts("tbody td code:not(.cut)").await;
    assert_eq!(did[..4], ["queue.resume", "queue.pause", "operation.resume", "operation.pause"]);
    visitor.assert_silent("/audit").await;
    assert_eq!(daemon.state(&parked).await, "running");
    visitor.leave().await;
}

/// Waits until the page confirms the action.
async fn done(visitor: &Visitor, what: &str) {
    let done = format!("done={what}");
    crate::pages::until(&done, async || visitor.place().await.contains(&done)).await;
    assert_ne!(visitor.text(".notice").await, "");
}

#[tokio::test]
async fn a_lock_is_released_by_force() {
    let daemon = Daemon::start();
    for (key, name) in [("deploy", "ci-7"), ("invoice 7", "billing-1")] {
        daemon.post("/v1/locks/acquire", json!({ "key": key, "lease": "10m", "name": name })).await;
    }
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/locks").await;
    assert_eq!(visitor.texts("#live tbody th").await, ["deploy", "invoice 7"]);
    assert_eq!(visitor.text("#live tbody td").await, "ci-7");
    visitor.assert_silent("/locks").await;
    let asked = visitor.click_and_agree("#live tbody tr:nth-child(2) button").await;
    assert!(asked.starts_with("Release ") && asked.contains(" by force?"), "{asked}");
    visitor.sees(".notice", "Released by force; the fencing token was increased.").await;
    assert_eq!(visitor.texts("#live tbody th").await, ["deploy"]);
    let shown = daemon.get("/v1/locks/show?key=invoice%207").await;
    assert!(shown["holder"].is_null(), "{shown}");
    visitor.click("input[name=free]").await;
    crate::pages::until("free locks are shown", async || visitor.count("#live tbody th").await == 2).await;
    visitor.write("input[name=prefix]", "dep").await;
    visitor.click(".filters button").await;
    crate::pages::until("only locks with the prefix are shown", async || {
        visitor.texts("#live tbody th").await == ["deploy"]
    })
    .await;

    visitor.open("/locks").await;
    visitor.click("#live tbody button").await;
    visitor.browser.client.dismiss_alert().await.unwrap();
    assert!(
        !daemon.get("/v1/locks/show?key=deploy").await["holder"].is_null(),
        "a dismissed confirmation changes nothing"
    );
    visitor.open("/audit").await;
    assert_eq!(visitor.text("tbody .message").await, "invoice 7");
    visitor.leave().await;
}
