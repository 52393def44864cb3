//! An operator changes a policy's numbers, simulates them in the lab, and deploys them.

use crate::pages::daemon::Daemon;
use crate::pages::visitor::Visitor;

#[tokio::test]
async fn an_edited_policy_is_simulated_and_deployed() {
    let daemon = Daemon::start();
    let before = daemon.get("/v1/policies").await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/policies").await;
    visitor.follow("quick").await;
    visitor.sees("h1", "quick").await;
    assert_eq!(visitor.value("input[name='set.attempts']").await, "3");

    visitor.write("input[name='set.base']", "soon").await;
    visitor.click("#simulate").await;
    visitor.sees(".wrong", "soon").await;
    assert_eq!(visitor.value("input[name='set.base']").await, "soon", "the form keeps the entered value");
    assert_eq!(visitor.count("#deploy").await, 0);

    visitor.write("input[name='set.base']", "20ms").await;
    visitor.write("input[name='set.attempts']", "5").await;
    visitor.click("#simulate").await;
    visitor.sees("#storm h2", "Simulation: ").await;
    assert_eq!(visitor.count("#storm .plot canvas").await, 1, "a plot");
    assert_eq!(visitor.texts("#storm .wide tbody th").await, ["active", "edited"]);
    let cells = visitor.texts("#storm .wide tbody td").await;
    assert!(cells.len() == 8 && cells.iter().all(|cell| !cell.is_empty()), "{cells:?}");
    let changed = visitor.texts(".diff div").await.join("\n");
    assert!(changed.contains("attempts = 3") && changed.contains("attempts = 5"), "{changed}");
    visitor.assert_silent("a simulated policy").await;
    assert_eq!(
        daemon.get("/v1/policies").await["version"],
        before["version"],
        "a simulation deploys nothing"
    );
    let place = visitor.place().await;
    visitor.open(&place).await;
    assert_eq!(visitor.value("input[name='set.attempts']").await, "5", "the URL contains the edit");

    let asked = visitor.click_and_agree("#deploy").await;
    assert!(asked.contains("active on every node"), "{asked}");
    visitor.sees(".notice", "Deployed").await;
    let published = daemon.get("/v1/policies").await;
    assert_ne!(published, before);
    assert!(published.to_string().contains("attempts = 5"), "{published}");
    visitor.sees("tbody tr:first-child", "the dashboard").await;
    visitor.sees("tbody tr:first-child .tag", "active").await;

    deploy_again(&visitor).await;
    visitor.open("/policies").await;
    let old = "tbody tr:nth-child(2) a";
    visitor.click(old).await;
    visitor.sees("h2", "Changes if it is deployed again").await;
    let diff = visitor.texts(".diff div").await.join("\n");
    assert!(diff.contains("attempts = 5") && diff.contains("attempts = 7"), "{diff}");
    visitor.sees("pre", "attempts = 5").await;
    visitor.assert_silent("a version").await;

    visitor.click_and_agree("main form button").await;
    visitor.sees(".notice", "Deployed").await;
    assert!(
        daemon.get("/v1/policies").await.to_string().contains("attempts = 5"),
        "the version is active again"
    );
    visitor.open("/audit").await;
    assert_eq!(visitor.texts("tbody td code:not(.cut)").await[..3], ["policies.deploy"; 3]);
    visitor.leave().await;
}

async fn deploy_again(visitor: &Visitor) {
    visitor.open("/policies/quick").await;
    visitor.write("input[name='set.attempts']", "7").await;
    visitor.click("#simulate").await;
    visitor.click_and_agree("#deploy").await;
    visitor.sees(".notice", "Deployed").await;
}

/// Numbers that were simulated against an inactive version are not deployed.
#[tokio::test]
async fn a_concurrent_deployment_is_reported() {
    let daemon = Daemon::start();
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/policies/quick?set.attempts=5").await;
    let file = "default = \"quick\"\n[policies.quick]\nextends = \"standard\"\nattempts = 9\n";
    daemon.post("/v1/policies", serde_json::json!({ "file": file })).await;
    visitor.click_and_agree("#deploy").await;
    visitor.sees("main", "another version was deployed meanwhile").await;
    assert!(daemon.get("/v1/policies").await.to_string().contains("attempts = 9"));
    visitor.leave().await;
}
