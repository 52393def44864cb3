//! The pages of councils and ledgers.

use holdoff_council::CouncilId;
use serde_json::json;

use crate::pages::daemon::{ACCEPTOR, Daemon, Device, TOKENS};
use crate::pages::until;
use crate::pages::visitor::Visitor;

const ROWS: &str = "#live tbody th";

#[tokio::test]
async fn a_council_appears_live_without_its_id() {
    let daemon = Daemon::start_with(ACCEPTOR);
    let shown = daemon.get("/v1/acceptor").await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/councils").await;
    visitor.sees("#acceptor .pick", shown["acceptor"].as_str().unwrap()).await;
    visitor.sees("#acceptor .state", "running").await;
    visitor.sees("#acceptor .facts", shown["node"].as_str().unwrap()).await;
    visitor.sees("#acceptor .facts", shown["incarnation"].as_str().unwrap()).await;
    visitor.sees(".nothing.card", "No councils yet.").await;
    visitor.sees("#live-word", "live").await;
    visitor.script("window.before = true", vec![]).await;

    let id = daemon.found("laptop").await;
    let short_id = id.parse::<CouncilId>().unwrap().short_id().to_string();
    until("the page lists the new council and its mail", async || {
        visitor.texts(ROWS).await == [short_id.clone()]
            && visitor.text("#live tbody td:nth-child(6)").await == "1"
    })
    .await;
    let kept = visitor.script("return window.before === true", vec![]).await;
    assert_eq!(kept, true, "the page was not loaded again");
    let [latest, compacted, slots, bytes, letters, asked] =
        visitor.texts("#live tbody td").await.try_into().unwrap();
    assert!(latest != "0" && slots != "0", "{latest} {slots}");
    assert_eq!((&*compacted, &*letters), ("0", "1"), "the council has one message, the invitation");
    assert!(bytes.ends_with("of 64 MiB") && (asked == "now" || asked.ends_with("ago")), "{bytes} {asked}");
    let page = daemon.page("/councils").await;
    assert!(page.contains(&short_id) && !page.contains(&id) && !page.contains(&id[..8]), "{page}");
    visitor.assert_silent("/councils").await;
    visitor.leave().await;
}

#[tokio::test]
async fn councils_are_sorted_and_paginated() {
    const COUNCILS: u8 = 60;
    let daemon = Daemon::start_with(ACCEPTOR);
    let device = Device::to(&daemon.acceptor().await);
    for council in 1..=COUNCILS {
        device.promise(council, council).await;
    }
    device.pretend().await;
    let short_ids = |numbers: &mut dyn Iterator<Item = u8>| -> Vec<String> {
        numbers.map(|number| device.council(number).short_id().to_string()).collect()
    };
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/councils").await;
    visitor.sees("#acceptor .facts", "60 of 10\u{202f}000").await;
    assert_eq!(visitor.text("th[aria-sort=descending]").await, "Last request");
    visitor.sees(".bars .label", "foreign ballot").await;
    visitor.sees(".columns .row .faint", "1 connection").await;
    visitor.sees(".peers", "from 127.0.0.1:").await;
    visitor.follow("Slots").await;
    visitor.sees("th[aria-sort=descending]", "Slots").await;
    assert_eq!(visitor.place().await, "/councils?sort=slots");
    // The browser shows the head of a table before it has received all rows.
    until("the first page lists the councils with the most slots", async || {
        visitor.texts(ROWS).await == short_ids(&mut (11..=COUNCILS).rev())
    })
    .await;
    visitor.follow("More").await;
    until("the second page lists the remaining councils", async || {
        visitor.texts(ROWS).await == short_ids(&mut (1..11).rev())
    })
    .await;
    visitor.follow("First").await;
    until("the first page is shown again", async || visitor.count(ROWS).await == 50).await;
    visitor.follow("Council").await;
    visitor.sees("th[aria-sort=ascending]", "Council").await;
    assert!(visitor.texts(ROWS).await.is_sorted());
    visitor.assert_silent("/councils").await;
    visitor.leave().await;
}

const NEWEST: &str = "#history tbody tr:first-child";

/// Submits a transaction that is then the newest entry. It first waits until the node's address is in the history,
/// because the node announces nothing after that.
async fn submit(daemon: &Daemon, namespace: &str, goal: &str) -> u64 {
    until("the node's address is in the history", async || {
        let shown = daemon.get(&format!("/v1/ledger?namespace={namespace}")).await;
        let members = shown["members"].as_array().unwrap();
        let own = members.iter().find(|member| member["reachable"] == true);
        own.is_some_and(|own| shown["contact"].as_str().unwrap().ends_with(own["address"].as_str().unwrap()))
    })
    .await;
    let body = json!({ "namespace": namespace, "goal": goal });
    daemon.post("/v1/ledger/transactions", body).await["index"].as_u64().unwrap()
}

#[tokio::test]
async fn a_transaction_appears_live_with_its_changes() {
    let daemon = Daemon::with_ledgers(&["default"], "");
    submit(&daemon, "default", "=> +balance(alice, 30)").await;
    let shown = daemon.get("/v1/ledger").await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/ledger").await;
    visitor.sees("#ledger .pick", shown["contact"].as_str().unwrap()).await;
    visitor.sees("#ledger .state", "leader").await;
    visitor.sees("#leader", shown["leader"]["name"].as_str().unwrap()).await;
    visitor.sees("#chain .state", "valid").await;
    visitor.sees("#chain .facts", shown["ledger"].as_str().unwrap()).await;
    visitor.sees("#members tbody th", "this node").await;
    visitor.sees("#live-word", "live").await;
    visitor.script("window.before = true", vec![]).await;

    let pay = "balance(alice, ?a) => -balance(alice, ?a), +balance(alice, ?a - 10)";
    let index = submit(&daemon, "default", pay).await;
    until("the page shows the new entry", async || {
        visitor.text(&format!("{NEWEST} th")).await == index.to_string()
    })
    .await;
    assert_eq!(visitor.text(&format!("{NEWEST} td code")).await, pay);
    assert_eq!(visitor.text(&format!("{NEWEST} .before code")).await, "balance(alice, 30)");
    assert_eq!(visitor.text(&format!("{NEWEST} .after code")).await, "balance(alice, 20)");
    submit(&daemon, "default", "balance(bob, ?b) => -balance(bob, ?b)").await;
    visitor.sees(&format!("{NEWEST} .state.failed"), "failed").await;
    visitor.sees(NEWEST, "no facts match the conditions").await;
    let kept = visitor.script("return window.before === true", vec![]).await;
    assert_eq!(kept, true, "the page was not loaded again");

    visitor.click("#pause").await;
    visitor.sees("#live-word", "paused").await;
    let index = submit(&daemon, "default", "=> +later(1)").await;
    visitor.sees(NEWEST, "no facts match the conditions").await;
    visitor.click("#pause").await;
    until("the page shows the new entry after the pause", async || {
        visitor.text(&format!("{NEWEST} th")).await == index.to_string()
    })
    .await;
    visitor.assert_silent("/ledger").await;
    visitor.leave().await;
}

#[tokio::test]
async fn older_entries_and_other_ledgers_are_linked() {
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
async fn a_namespace_token_sees_only_its_ledger() {
    let daemon = Daemon::with_ledgers(&["billing", "default"], TOKENS);
    submit(&daemon, "default", "=> +secret(1)").await;
    submit(&daemon, "billing", "=> +bill(1)").await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/ledger").await;
    visitor.log_in(&daemon.token(&["--name", "ada", "--scope", "read", "--namespace", "billing"])).await;
    visitor.sees("#ledger h2", "billing").await;
    visitor.sees(NEWEST, "bill(1)").await;
    assert_eq!(visitor.count(".switch").await, 0, "a visitor with one namespace has no ledger to choose");
    visitor.open("/ledger?namespace=default").await;
    visitor.sees(".faint", "Status 403").await;
    assert!(!visitor.text("body").await.contains("secret"));
    visitor.leave().await;
}
