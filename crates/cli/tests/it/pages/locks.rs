//! An operator releases a lock by force.

use serde_json::json;

use crate::pages::daemon::Daemon;
use crate::pages::visitor::Visitor;

#[tokio::test]
async fn a_lock_is_taken_from_its_holder() {
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
    assert!(asked.starts_with("Take ") && asked.contains(" from its holder?"), "{asked}");
    visitor.sees(".said", "Taken from its holder; the token was raised.").await;
    assert_eq!(visitor.texts("#live tbody th").await, ["deploy"]);
    let shown = daemon.get("/v1/locks/show?key=invoice%207").await;
    assert!(shown["holder"].is_null(), "{shown}");
    visitor.click("input[name=free]").await;
    crate::pages::until("free ones are shown", async || visitor.count("#live tbody th").await == 2).await;
    visitor.write("input[name=prefix]", "dep").await;
    visitor.click(".filters button").await;
    crate::pages::until("the others are gone", async || visitor.texts("#live tbody th").await == ["deploy"])
        .await;

    visitor.open("/locks").await;
    visitor.click("#live tbody button").await;
    visitor.browser.client.dismiss_alert().await.unwrap();
    assert!(
        !daemon.get("/v1/locks/show?key=deploy").await["holder"].is_null(),
        "who says no changes nothing"
    );
    visitor.open("/audit").await;
    assert_eq!(visitor.text("tbody .message").await, "invoice 7");
    visitor.leave().await;
}
