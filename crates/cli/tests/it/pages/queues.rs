//! An operator pauses and resumes operations and queues.

use crate::pages::daemon::Daemon;
use crate::pages::target::Target;
use crate::pages::visitor::Visitor;

#[tokio::test]
async fn what_is_paused_waits_until_it_is_resumed() {
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
    assert_ne!(visitor.text(".said").await, "");
}
