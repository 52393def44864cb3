//! Keyboard navigation from the first page to the retry of a step.

use fantoccini::key::Key;

use crate::pages::daemon::Daemon;
use crate::pages::target::Target;
use crate::pages::visitor::Visitor;

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
        assert_eq!(focus[1], true, "{name:?} has the focus, and does not show it");
        way.push(name);
        if focus[2] == true {
            return;
        }
    }
    panic!("{css} is not reached: {way:?}");
}

#[tokio::test]
async fn a_step_is_retried_by_keys_alone() {
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
    assert_eq!(focus[2], true, "what is most likely wanted has the focus: {focus}");
    visitor.press(enter).await;
    visitor.sees(".said", "1 step: ready to be tried again.").await;
    daemon.settle(&[task], "succeeded").await;
    visitor.sees("h1 .state", "succeeded").await;
    visitor.leave().await;
}

/// While a user moves through a page with Tab, the page is redrawn and the focus stays in place.
#[tokio::test]
async fn the_focus_survives_what_happens() {
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
