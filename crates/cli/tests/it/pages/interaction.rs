//! Filters, the keyboard and live updates.

use fantoccini::key::Key;

use crate::pages::daemon::{Daemon, Target};
use crate::pages::until;
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
    assert_eq!(rows, ["mail.sort", "mail.send"], "the newest step is listed first");
    let chips = visitor.texts(CHIPS).await;
    assert_eq!(chips.len(), 5, "{chips:?}");

    let place = visitor.place().await;
    for parameter in ["state=failed", "operation=mail.", "queue=mail", "class=transient", "min_failures=3"] {
        assert!(place.contains(parameter), "{place}");
    }
    assert!(!place.contains("text="), "an empty filter is not in the URL: {place}");
    visitor.browser.client.refresh().await.unwrap();
    assert_eq!(visitor.texts(ROWS).await, rows);
    assert_eq!(
        visitor.value("input[name=operation]").await,
        "mail.*",
        "the form shows the filter of the URL"
    );
    assert_eq!(visitor.value("select[name=class]").await, "transient");

    let second = Visitor::to(&daemon.url).await;
    second.open(&place).await;
    assert_eq!((second.texts(ROWS).await, second.texts(CHIPS).await), (rows, chips.clone()));
    second.leave().await;

    visitor.click("#live .chips li:nth-child(1) a").await;
    visitor.sees(".count", "2 steps with these filters").await;
    assert_eq!(visitor.count(CHIPS).await, 4, "removing one filter keeps the others");
    visitor.write("input[name=older_than]", &format!("long{}", Key::Enter)).await;
    visitor.sees("#live .wrong", "older_than: expected a duration").await;
    visitor.leave().await;
}

/// The back button restores the previous page with its filters, and the page is live again.
#[tokio::test]
async fn the_back_button_restores_the_filters() {
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
    crate::pages::until("the form shows the filter of the URL", async || {
        visitor.value("input[name=operation]").await == "mail.*"
    })
    .await;
    visitor.sees("#live-word", "live").await;
    visitor.click("#pause").await;
    visitor.sees("#live-word", "paused").await;
    visitor.assert_silent("/failed, come back to").await;
    visitor.leave().await;
}

/// More key presses than any page should need.
const MOST: usize = 80;

/// Describes the focused element, and whether its focus is visible.
const FOCUS: &str = "const at = document.activeElement, style = getComputedStyle(at), box = at.getBoundingClientRect(); \
    return [at.id || at.innerText.trim(), at.matches(':focus-visible') && style.outlineStyle !== 'none' \
    && parseFloat(style.outlineWidth) >= 2 && box.width > 0 && box.height > 0 && box.right > 0, at.matches(arguments[0])]";

/// Presses Tab until this element has the focus. Every element on the way must show its focus.
async fn tab_to(visitor: &Visitor, css: &str) {
    let mut way = Vec::new();
    for _ in 0..MOST {
        visitor.press(char::from(Key::Tab)).await;
        let focus = visitor.script(FOCUS, vec![css.into()]).await;
        let name = focus[0].as_str().unwrap().to_owned();
        assert_eq!(focus[1], true, "the focus of {name:?} is not visible");
        way.push(name);
        if focus[2] == true {
            return;
        }
    }
    panic!("{css} is not reached: {way:?}");
}

#[tokio::test]
async fn a_step_is_retried_with_the_keyboard() {
    let (daemon, target) = (Daemon::start(), Target::start().await);
    let task = daemon.call("mail.send", "mail", &target.at("/gate")).await;
    daemon.settle(std::slice::from_ref(&task), "failed").await;
    target.open();
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/").await;
    let enter = char::from(Key::Enter);

    tab_to(&visitor, ".skip").await;
    visitor.press(enter).await;
    tab_to(&visitor, ".totals a[href='/failed']").await;
    visitor.press(enter).await;
    visitor.sees("h1", "Failed").await;
    tab_to(&visitor, "#live tbody a").await;
    visitor.press(enter).await;
    visitor.sees("h1", "mail.send").await;
    tab_to(&visitor, "#act-retry").await;
    visitor.press(enter).await;
    visitor.sees("h1", "Retry 1 step?").await;
    let focus = visitor.script(FOCUS, vec!["#confirm".into()]).await;
    assert_eq!(focus[2], true, "the confirm button has the focus: {focus}");
    visitor.press(enter).await;
    visitor.sees(".notice", "1 step: ready for another attempt.").await;
    daemon.settle(&[task], "succeeded").await;
    visitor.sees("h1 .state", "succeeded").await;
    visitor.leave().await;
}

/// While a user moves through a page with Tab, the page is redrawn and the focus stays in place.
#[tokio::test]
async fn the_focus_survives_live_updates() {
    let (daemon, target) = (Daemon::start(), Target::start().await);
    let task = daemon.call("mail.send", "mail", &target.at("/answer/400")).await;
    daemon.settle(&[task], "failed").await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/failed").await;
    visitor.sees("#live-word", "live").await;
    for (at, name) in [("#act-retry", "second"), ("#live tbody tr:last-child a", "third")] {
        tab_to(&visitor, at).await;
        daemon.call(name, "mail", &target.at("/answer/400")).await;
        visitor.sees("#live tbody th", name).await;
        crate::pages::until(&format!("{at} has the focus again"), async || {
            visitor.script(FOCUS, vec![at.into()]).await[2] == true
        })
        .await;
    }
    visitor.leave().await;
}

#[tokio::test]
async fn the_list_updates_live_unless_it_is_paused() {
    let (daemon, target) = (Daemon::start(), Target::start().await);
    let [visitor, other] = [Visitor::to(&daemon.url).await, Visitor::to(&daemon.url).await];
    for one in [&visitor, &other] {
        one.open("/failed").await;
        one.sees("#live-word", "live").await;
        one.script("window.before = true", vec![]).await;
    }
    visitor.sees(".nothing", "No step has failed.").await;
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
    assert_eq!(visitor.texts(ROWS).await, ["first"], "a paused page does not change");
    visitor.browser.client.refresh().await.unwrap();
    visitor.sees("#live-word", "paused").await;
    visitor.script("window.before = true", vec![]).await;
    assert_eq!(visitor.texts(ROWS).await, ["third", "second", "first"], "a reload shows the newest rows");
    daemon.call("fourth", "mail", &target.at("/answer/400")).await;
    other.sees(ROWS, "fourth").await;
    daemon.call("fifth", "mail", &target.at("/answer/400")).await;
    other.sees(ROWS, "fifth").await;
    assert_eq!(visitor.count(ROWS).await, 3, "the page is still paused");

    visitor.click("#pause").await;
    visitor.sees("#live-word", "live").await;
    until("the page shows all rows after the pause", async || visitor.count(ROWS).await == 5).await;
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
async fn the_overview_shows_alarms_live() {
    let (daemon, target) = (Daemon::start(), Target::start().await);
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/").await;
    visitor.sees("h2", "No work yet").await;
    visitor.sees("#live-word", "live").await;
    daemon.call("mail.send", "mail", &target.at("/answer/503")).await;
    visitor.sees(".totals .bad .figure", "1").await;
    visitor.sees(".alarms", "1 step has failed for good").await;
    until("the chart names the failed operation", async || {
        visitor.texts(".bars .label").await.join(" ").contains("mail.send")
    })
    .await;
    let fine = daemon.call("mail.fetch", "mail", &target.at("/answer/200")).await;
    daemon.settle(&[fine], "succeeded").await;
    until("the page counts the success", async || visitor.text(".facts").await.contains("succeeded\n1"))
        .await;
    let named = visitor.texts(".bars .label").await.join(" ");
    assert!(
        !named.contains("mail.fetch"),
        "the chart of failures names no operation without failures: {named}"
    );
    until("the plot is redrawn", async || visitor.count("#live .plot canvas").await == 1).await;
    visitor.assert_silent("/").await;
    visitor.leave().await;
}
