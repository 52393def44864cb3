//! The ledger page: the leader, the members, and the entries as they are committed.

use serde_json::json;

use crate::pages::daemon::{Daemon, TOKENS};
use crate::pages::until;
use crate::pages::visitor::Visitor;

const NEWEST: &str = "#history tbody tr:first-child";

/// Submits a transaction that is then the newest entry. It first waits until the node's address is in the history,
/// because the node announces nothing after that.
async fn submit(daemon: &Daemon, namespace: &str, goal: &str) -> u64 {
    until("its address is in the history", async || {
        let shown = daemon.get(&format!("/v1/ledger?namespace={namespace}")).await;
        let members = shown["members"].as_array().unwrap();
        let own = members.iter().find(|member| member["here"] == true);
        own.is_some_and(|own| shown["contact"].as_str().unwrap().ends_with(own["address"].as_str().unwrap()))
    })
    .await;
    let body = json!({ "namespace": namespace, "goal": goal });
    daemon.post("/v1/ledger/transactions", body).await["index"].as_u64().unwrap()
}

#[tokio::test]
async fn a_transaction_is_seen_as_it_comes_with_what_it_changed() {
    let daemon = Daemon::with_ledgers(&["default"], "");
    submit(&daemon, "default", "=> +balance(alice, 30)").await;
    let shown = daemon.get("/v1/ledger").await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/ledger").await;
    visitor.sees("#ledger .pick", shown["contact"].as_str().unwrap()).await;
    visitor.sees("#ledger .state", "leads").await;
    visitor.sees("#leader", shown["leader"]["name"].as_str().unwrap()).await;
    visitor.sees("#chain .state", "holds").await;
    visitor.sees("#chain .facts", shown["ledger"].as_str().unwrap()).await;
    visitor.sees("#members tbody th", "this node").await;
    visitor.sees("#live-word", "live").await;
    visitor.script("window.before = true", vec![]).await;

    let pay = "balance(alice, ?a) => -balance(alice, ?a), +balance(alice, ?a - 10)";
    let index = submit(&daemon, "default", pay).await;
    until("it is there", async || visitor.text(&format!("{NEWEST} th")).await == index.to_string()).await;
    assert_eq!(visitor.text(&format!("{NEWEST} td code")).await, pay);
    assert_eq!(visitor.text(&format!("{NEWEST} .before code")).await, "balance(alice, 30)");
    assert_eq!(visitor.text(&format!("{NEWEST} .after code")).await, "balance(alice, 20)");
    submit(&daemon, "default", "balance(bob, ?b) => -balance(bob, ?b)").await;
    visitor.sees(&format!("{NEWEST} .state.failed"), "failed").await;
    visitor.sees(NEWEST, "nothing matches").await;
    let kept = visitor.script("return window.before === true", vec![]).await;
    assert_eq!(kept, true, "the page was not loaded again");

    visitor.click("#pause").await;
    visitor.sees("#live-word", "paused").await;
    let index = submit(&daemon, "default", "=> +later(1)").await;
    visitor.sees(NEWEST, "nothing matches").await;
    visitor.click("#pause").await;
    until("it goes on", async || visitor.text(&format!("{NEWEST} th")).await == index.to_string()).await;
    visitor.assert_silent("/ledger").await;
    visitor.leave().await;
}

#[tokio::test]
async fn older_entries_and_other_ledgers_are_a_click_away() {
    let daemon = Daemon::with_ledgers(&["billing", "default"], "");
    for number in 0..40 {
        submit(&daemon, "default", &format!("=> +number({number})")).await;
    }
    submit(&daemon, "billing", "=> +bill(1)").await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/ledger").await;
    visitor.sees("#ledger h2", "default").await;
    assert_eq!(visitor.count("#history tbody tr").await, 25);
    visitor.sees(NEWEST, "number(39)").await;
    visitor.follow("Older").await;
    visitor.sees(NEWEST, "number(14)").await;
    assert!(visitor.place().await.contains("before="));
    visitor.follow("Latest").await;
    visitor.sees(NEWEST, "number(39)").await;
    visitor.follow("billing").await;
    visitor.sees("#ledger h2", "billing").await;
    visitor.sees(NEWEST, "bill(1)").await;
    assert_eq!(visitor.place().await, "/ledger?namespace=billing");
    visitor.assert_silent("/ledger").await;
    visitor.leave().await;
}

#[tokio::test]
async fn a_token_of_one_namespace_sees_its_ledger_and_no_other() {
    let daemon = Daemon::with_ledgers(&["billing", "default"], TOKENS);
    submit(&daemon, "default", "=> +secret(1)").await;
    submit(&daemon, "billing", "=> +bill(1)").await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/ledger").await;
    visitor.log_in(&daemon.token(&["--name", "ada", "--scope", "read", "--namespace", "billing"])).await;
    visitor.sees("#ledger h2", "billing").await;
    visitor.sees(NEWEST, "bill(1)").await;
    assert_eq!(visitor.count(".switch").await, 0, "there is nothing to choose");
    visitor.open("/ledger?namespace=default").await;
    visitor.sees(".faint", "Status 403").await;
    assert!(!visitor.text("body").await.contains("secret"));
    visitor.leave().await;
}
