//! A bulk action applies to all matching steps and to no others.

use fantoccini::key::Key;

use crate::pages::daemon::Daemon;
use crate::pages::target::Target;
use crate::pages::visitor::Visitor;

#[tokio::test]
async fn exactly_those_that_match_are_retried() {
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
    assert_eq!(visitor.texts(".chips li").await.len(), 3, "it says which");
    for task in &meant {
        assert_eq!(daemon.state(task).await, "failed", "nothing is done before it is confirmed");
    }
    visitor.click("#confirm").await;
    visitor.sees(".said", "5 steps: ready to be tried again.").await;
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
    assert_eq!(visitor.count("#act-retry").await, 0, "there is nothing left to do it to");
    visitor.open("/steps/act?action=retry&operation=mail.*&queue=mail").await;
    visitor.sees("h1", "nothing that this could be done to").await;
    assert_eq!(visitor.count("#confirm").await, 0);
    visitor.leave().await;
}
