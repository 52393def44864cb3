//! The page shows changes without a reload, unless the user pauses it.

use crate::pages::daemon::Daemon;
use crate::pages::target::Target;
use crate::pages::until;
use crate::pages::visitor::Visitor;

const ROWS: &str = "#live tbody th";

#[tokio::test]
async fn what_happens_is_seen_and_a_pause_holds() {
    let (daemon, target) = (Daemon::start(), Target::start().await);
    let [visitor, other] = [Visitor::to(&daemon.url).await, Visitor::to(&daemon.url).await];
    for one in [&visitor, &other] {
        one.open("/failed").await;
        one.sees("#live-word", "live").await;
        one.script("window.before = true", vec![]).await;
    }
    visitor.sees(".nothing", "Nothing has been given up.").await;
    daemon.call("first", "mail", &target.at("/answer/400")).await;
    visitor.sees(ROWS, "first").await;
    visitor.sees(".count", "1 step").await;

    visitor.click("#pause").await;
    visitor.sees("#live-word", "paused").await;
    assert_eq!(visitor.text("#pause").await, "Resume");
    // A second visitor sees two changes, one after the other and with the minimum time between them. The paused page
    // shows neither.
    for name in ["second", "third"] {
        daemon.call(name, "mail", &target.at("/answer/400")).await;
        other.sees(ROWS, name).await;
    }
    assert_eq!(visitor.texts(ROWS).await, ["first"], "nothing changes while it is paused");
    visitor.browser.client.refresh().await.unwrap();
    visitor.sees("#live-word", "paused").await;
    visitor.script("window.before = true", vec![]).await;
    assert_eq!(visitor.texts(ROWS).await, ["third", "second", "first"], "a reload is a look");
    daemon.call("fourth", "mail", &target.at("/answer/400")).await;
    other.sees(ROWS, "fourth").await;
    daemon.call("fifth", "mail", &target.at("/answer/400")).await;
    other.sees(ROWS, "fifth").await;
    assert_eq!(visitor.count(ROWS).await, 3, "it is still paused");

    visitor.click("#pause").await;
    visitor.sees("#live-word", "live").await;
    until("it catches up", async || visitor.count(ROWS).await == 5).await;
    for one in [&visitor, &other] {
        let kept = one.script("return window.before === true", vec![]).await;
        assert_eq!(kept, true, "the page was not loaded again");
        one.assert_silent("/failed").await;
    }
    visitor.leave().await;
    other.leave().await;
}

/// The figures, the plot and the alarms of the overview change too.
#[tokio::test]
async fn the_overview_tells_of_trouble_as_it_comes() {
    let (daemon, target) = (Daemon::start(), Target::start().await);
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/").await;
    visitor.sees("h2", "No work yet").await;
    visitor.sees("#live-word", "live").await;
    daemon.call("mail.send", "mail", &target.at("/answer/503")).await;
    visitor.sees(".totals .bad .figure", "1").await;
    visitor.sees(".alarms", "1 step is given up").await;
    until("its operation is named", async || {
        visitor.texts(".bars .label").await.join(" ").contains("mail.send")
    })
    .await;
    let fine = daemon.call("mail.fetch", "mail", &target.at("/answer/200")).await;
    daemon.settle(&[fine], "succeeded").await;
    until("it is counted", async || visitor.text(".facts").await.contains("succeeded\n1")).await;
    let named = visitor.texts(".bars .label").await.join(" ");
    assert!(!named.contains("mail.fetch"), "what never failed is not among what fails: {named}");
    until("the plot is drawn anew", async || visitor.count("#live .plot canvas").await == 1).await;
    visitor.assert_silent("/").await;
    visitor.leave().await;
}
