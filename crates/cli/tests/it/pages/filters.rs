//! Filters combine and are part of the URL, so that an operator can share a view.

use fantoccini::key::Key;

use crate::pages::daemon::Daemon;
use crate::pages::target::Target;
use crate::pages::visitor::Visitor;

const ROWS: &str = "#live tbody th";
const CHIPS: &str = "#live .chips li";

#[tokio::test]
async fn filters_combine_and_survive_a_reload() {
    let (daemon, target) = (Daemon::start(), Target::start().await);
    let mut failed = Vec::new();
    for (operation, queue, path) in [
        ("mail.send", "mail", "/answer/503"),
        ("mail.sort", "mail", "/answer/503"),
        ("mail.send", "bulk", "/answer/503"),
        ("mail.burn", "mail", "/answer/400"),
        ("sms.send", "mail", "/answer/503"),
    ] {
        failed.push(daemon.call(operation, queue, &target.at(path)).await);
    }
    daemon.settle(&failed, "failed").await;
    let done = daemon.call("mail.send", "mail", &target.at("/answer/200")).await;
    daemon.settle(&[done], "succeeded").await;

    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/steps").await;
    visitor.click("input[name=state][value=failed]").await;
    visitor.sees(".count", "5 steps with these filters").await;
    visitor.write("input[name=operation]", &format!("mail.*{}", Key::Enter)).await;
    visitor.sees(".count", "4 steps with these filters").await;
    visitor.write("input[name=queue]", &format!("mail{}", Key::Enter)).await;
    visitor.sees(".count", "3 steps with these filters").await;
    visitor.write("input[name=min_failures]", &format!("3{}", Key::Enter)).await;
    visitor.sees(".count", "2 steps with these filters").await;
    visitor.choose("select[name=class]", "transient").await;
    visitor.sees("#live .chips", "class: transient").await;
    visitor.sees(".count", "2 steps with these filters").await;
    let rows = visitor.texts(ROWS).await;
    assert_eq!(rows, ["mail.sort", "mail.send"], "the newest first");
    let chips = visitor.texts(CHIPS).await;
    assert_eq!(chips.len(), 5, "{chips:?}");

    let place = visitor.place().await;
    for said in ["state=failed", "operation=mail.", "queue=mail", "class=transient", "min_failures=3"] {
        assert!(place.contains(said), "{place}");
    }
    assert!(!place.contains("text="), "what is empty does not stand in the address: {place}");
    visitor.browser.client.refresh().await.unwrap();
    assert_eq!(visitor.texts(ROWS).await, rows);
    assert_eq!(visitor.value("input[name=operation]").await, "mail.*", "the form says so too");
    assert_eq!(visitor.value("select[name=class]").await, "transient");

    let somebody = Visitor::to(&daemon.url).await;
    somebody.open(&place).await;
    assert_eq!((somebody.texts(ROWS).await, somebody.texts(CHIPS).await), (rows, chips.clone()));
    somebody.leave().await;

    visitor.click("#live .chips li:nth-child(1) a").await;
    visitor.sees(".count", "2 steps with these filters").await;
    assert_eq!(visitor.count(CHIPS).await, 4, "one filter is taken away, the others stay");
    visitor.write("input[name=older_than]", &format!("long{}", Key::Enter)).await;
    visitor.sees("#live .wrong", "older_than: expected a time").await;
    visitor.leave().await;
}

/// The back button restores the previous page with its filters, and the page is live again.
#[tokio::test]
async fn the_way_back_leads_to_the_filters_before() {
    let (daemon, target) = (Daemon::start(), Target::start().await);
    let tasks = [
        daemon.call("mail.send", "mail", &target.at("/answer/400")).await,
        daemon.call("sms.send", "sms", &target.at("/answer/400")).await,
    ];
    daemon.settle(&tasks, "failed").await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/failed").await;
    visitor.write("input[name=operation]", &format!("mail.*{}", Key::Enter)).await;
    visitor.sees(".count", "1 step with these filters").await;
    visitor.write("input[name=operation]", &format!("sms.*{}", Key::Enter)).await;
    visitor.sees(ROWS, "sms.send").await;
    visitor.browser.client.back().await.unwrap();
    visitor.sees(ROWS, "mail.send").await;
    crate::pages::until("the form says so too", async || {
        visitor.value("input[name=operation]").await == "mail.*"
    })
    .await;
    visitor.sees("#live-word", "live").await;
    visitor.click("#pause").await;
    visitor.sees("#live-word", "paused").await;
    visitor.assert_silent("/failed, come back to").await;
    visitor.leave().await;
}
