//! Steps over the API: queries, and actions of operators.

use serde_json::{Value, json};

use crate::support::{Daemon, Stores, answer, on_both_stores};

/// Claims a step of this operation and reports this failure. Returns the step's id.
async fn failed(daemon: &Daemon, operation: &str, class: &str) -> String {
    daemon.submit(&json!({ "operation": operation, "payload": { "n": 1 } })).await;
    let claim = json!({ "worker": "tester", "operations": [operation] });
    let claimed = answer(daemon.send("/v1/workers/claim", &claim).await, 200).await;
    let [step, token] = ["step", "token"].map(|key| claimed["items"][0][key].clone());
    let report = json!({ "step": step, "token": token, "class": class, "message": "it said no" });
    answer(daemon.send("/v1/workers/fail", &report).await, 200).await;
    step.as_str().unwrap().to_owned()
}

async fn ids(daemon: &Daemon, path: &str) -> Vec<String> {
    let page = answer(daemon.get(path).await, 200).await;
    let mut ids: Vec<String> = page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["id"].as_str().unwrap().to_owned())
        .collect();
    ids.reverse();
    ids
}

async fn steps_are_found_by_filters(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let one = failed(&daemon, "mail.send", "permanent").await;
    let two = failed(&daemon, "mail.read", "conflict").await;
    let three = format!("{}/0", daemon.submit(&json!({ "operation": "other", "delay": "1h" })).await);
    let [only_one, only_two] = [vec![one.clone()], vec![two.clone()]];
    let both = [one.clone(), two.clone()];
    assert_eq!(ids(&daemon, "/v1/steps").await, [one.clone(), two.clone(), three]);
    assert_eq!(ids(&daemon, "/v1/steps?state=failed,conflicted").await, both);
    assert_eq!(ids(&daemon, "/v1/steps?operation=mail.*&min_failures=1").await, both);
    assert_eq!(ids(&daemon, "/v1/steps?state=failed,ready&text=said").await, only_one);
    assert_eq!(ids(&daemon, "/v1/steps?class=conflict").await, only_two);
    assert_eq!(ids(&daemon, "/v1/failed").await, only_one);
    assert_eq!(ids(&daemon, "/v1/conflicts?operation=mail.read").await, only_two);
    assert!(ids(&daemon, "/v1/conflicts?operation=mail.send").await.is_empty());
    assert!(ids(&daemon, "/v1/steps?older_than=1h").await.is_empty());

    let page = answer(daemon.get("/v1/steps?limit=2").await, 200).await;
    let next = page["next"].as_str().unwrap();
    assert_eq!(ids(&daemon, &format!("/v1/steps?limit=2&cursor={next}")).await, only_one);

    let looked = answer(daemon.get(&format!("/v1/steps/{one}")).await, 200).await;
    assert_eq!(
        (&looked["step"]["payload"], &looked["attempts"][0]["worker"]),
        (&json!({ "n": 1 }), &json!("tester"))
    );
    let attempts = answer(daemon.get(&format!("/v1/steps/{one}/attempts")).await, 200).await;
    assert_eq!(attempts["items"], looked["attempts"]);
    for wrong in ["state=nonsense", "task=x", "step=x", "queue=%00", "state=failed&limit=0"] {
        assert_eq!(daemon.get(&format!("/v1/steps?{wrong}")).await.status(), 400, "{wrong}");
    }
    assert_eq!(daemon.get("/v1/failed?state=ready").await.status(), 400);
    assert_eq!(
        answer(daemon.get(&format!("/v1/steps/{one}7")).await, 404).await["type"],
        "/problems/no-such-step"
    );
    assert_eq!(daemon.get("/v1/steps/x/0").await.status(), 400);
}

async fn a_dry_run_counts_and_an_action_changes(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    for operation in ["a", "a", "b"] {
        failed(&daemon, operation, "permanent").await;
    }
    let order = |filter: Value, dry_run: bool| json!({ "filter": filter, "dry_run": dry_run });
    let act = async |what: &str, order: &Value| {
        let done = answer(daemon.send(&format!("/v1/steps/{what}"), order).await, 200).await;
        done["count"].as_u64().unwrap()
    };
    let a = json!({ "operation": "a", "state": ["failed"] });
    for what in ["retry", "discard", "cancel"] {
        assert_eq!(act(what, &order(a.clone(), true)).await, 2, "{what}");
    }
    assert_eq!(ids(&daemon, "/v1/failed").await.len(), 3, "a dry run changes no step");
    assert_eq!(act("retry", &order(a.clone(), false)).await, 2);
    assert_eq!(act("discard", &order(json!({ "operation": "b" }), false)).await, 1);
    assert_eq!(act("cancel", &order(json!({ "operation": "a" }), false)).await, 2);
    assert_eq!(ids(&daemon, "/v1/steps?state=cancelled").await.len(), 2);
    assert_eq!(ids(&daemon, "/v1/steps?state=discarded").await.len(), 1);
    for wrong in [order(json!({}), true), json!({}), json!({ "filter": { "states": ["failed"] } })] {
        let problem = answer(daemon.send("/v1/steps/retry", &wrong).await, 400).await;
        assert_eq!(problem["type"], "/problems/invalid-body", "{wrong}");
    }
}

async fn a_conflict_resolution_requires_the_current_etag(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let step = failed(&daemon, "a", "conflict").await;
    let etag = async || {
        daemon.get(&format!("/v1/steps/{step}")).await.headers()["etag"].to_str().unwrap().to_owned()
    };
    let resolve = async |seen: Option<&str>, body: Value| {
        let mut request =
            daemon.client.post(format!("{}/v1/conflicts/{step}/resolve", daemon.url)).json(&body);
        if let Some(seen) = seen {
            request = request.header("if-match", seen);
        }
        request.send().await.unwrap()
    };
    let seen = etag().await;
    let new = || json!({ "payload": { "n": 2 } });
    assert_eq!(answer(resolve(None, new()).await, 428).await["type"], "/problems/if-match-required");
    assert_eq!(
        answer(resolve(Some("\"0-failed\""), new()).await, 412).await["type"],
        "/problems/precondition-failed"
    );
    let resolved = answer(resolve(Some(&seen), new()).await, 200).await;
    assert_eq!((&resolved["state"], &resolved["payload"]), (&json!("ready"), &json!({ "n": 2 })));
    assert_ne!(etag().await, seen);
    assert_eq!(answer(resolve(None, json!({})).await, 409).await["type"], "/problems/not-in-conflict");
    assert_eq!(resolve(Some(&seen), new()).await.status(), 412);
    let both = json!({ "payload": 1, "payload_base64": "AA==" });
    assert_eq!(resolve(Some(&etag().await), both).await.status(), 400);
}

on_both_stores!(
    steps_are_found_by_filters,
    a_dry_run_counts_and_an_action_changes,
    a_conflict_resolution_requires_the_current_etag,
);
