//! Workers that pull steps over the API, from any daemon.

use std::time::Duration;

use holdoff_server::StoreUrl;
use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection};
use tokio::time::Instant;

use crate::support::{Daemon, Stores, answer, on_both_stores};

async fn claim(daemon: &Daemon, more: &Value) -> Vec<Value> {
    let mut form = json!({ "worker": "tester", "operations": ["a", "b"], "wait": "20s" });
    form.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let claimed = answer(daemon.send("/v1/workers/claim", &form).await, 200).await;
    claimed["items"].as_array().unwrap().clone()
}

async fn claim_one(daemon: &Daemon, more: &Value) -> Value {
    let claimed = claim(daemon, more).await;
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    claimed[0].clone()
}

/// The fields that every report has, and more.
fn of(claimed: &Value, more: &Value) -> Value {
    let mut form = json!({ "step": claimed["step"], "token": claimed["token"] });
    form.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    form
}

async fn a_graph_is_processed_through_two_daemons(stores: Stores) {
    let place = stores.place();
    let (here, there) = (Daemon::start(place.clone()).await, Daemon::start(place).await);
    let graph = json!({ "steps": [
        { "name": "x", "operation": "a", "payload": { "n": 1.50 } },
        { "name": "y", "operation": "b", "after": ["x"] },
    ] });
    let id = here.submit(&graph).await;
    let first = &claim_one(&there, &json!({ "lease": "30s" })).await;
    assert_eq!((&first["operation"], &first["attempt"]), (&json!("a"), &json!(1)));
    assert_eq!(first["payload"].to_string(), r#"{"n":1.5}"#);
    let held =
        answer(here.send("/v1/workers/heartbeat", &of(first, &json!({ "lease": "60s" }))).await, 200).await;
    assert_eq!(held["expires_in"], 60.0);

    // The policy retries a failure, and the failure counts on whichever daemon it is reported.
    let failed = of(first, &json!({ "class": "transient", "message": "busy", "retry_after": "10ms" }));
    let received = answer(here.send("/v1/workers/fail", &failed).await, 200).await;
    assert_eq!(received, json!({ "accepted": true }));
    let received = answer(there.send("/v1/workers/fail", &failed).await, 200).await;
    assert_eq!(
        received,
        json!({ "accepted": false, "recorded": "retried" }),
        "a repeated report is not accepted again"
    );
    let second = &claim_one(&here, &json!({})).await;
    assert_eq!(second["attempt"], 2);
    assert!(second["token"].as_u64() > first["token"].as_u64());

    let snoozed = of(second, &json!({ "wait": "10ms", "reason": "not yet" }));
    answer(there.send("/v1/workers/snooze", &snoozed).await, 200).await;
    let third = &claim_one(&there, &json!({})).await;
    assert_eq!(third["attempt"], 2, "a snooze does not count as an attempt");
    answer(here.send("/v1/workers/complete", &of(third, &json!({ "output": ["out"] }))).await, 200).await;

    let child = &claim_one(&there, &json!({})).await;
    assert_eq!(child["inputs"], json!([{ "name": "x", "output": ["out"] }]));
    let done = of(child, &json!({ "output_base64": "AAEC" }));
    answer(here.send("/v1/workers/complete", &done).await, 200).await;
    let task = answer(here.get(&format!("/v1/tasks/{id}?payloads=true")).await, 200).await;
    assert_eq!(task["state"], "succeeded");
    assert_eq!(task["steps"][1]["output_base64"], "AAEC");
}

async fn reports_of_a_lost_lease_are_rejected(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let id = daemon.submit(&json!({ "operation": "a" })).await;
    let claimed = &claim_one(&daemon, &json!({})).await;
    answer(daemon.send(&format!("/v1/tasks/{id}/cancel"), &json!({})).await, 200).await;
    let reports = [
        ("heartbeat", json!({})),
        ("complete", json!({ "output": 1 })),
        ("fail", json!({ "message": "late" })),
        ("snooze", json!({ "wait": "1s" })),
    ];
    for (what, more) in reports {
        let problem =
            answer(daemon.send(&format!("/v1/workers/{what}"), &of(claimed, &more)).await, 409).await;
        assert_eq!(problem["type"], "/problems/step-not-held", "{what}");
    }
    assert_eq!(daemon.task(&id).await["state"], "cancelled");
}

async fn a_claim_waits_for_a_matching_step(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    assert!(claim(&daemon, &json!({ "wait": "0s" })).await.is_empty());
    daemon.submit(&json!({ "operation": "c" })).await;
    daemon.submit(&json!({ "operation": "a", "namespace": "elsewhere" })).await;
    assert!(
        claim(&daemon, &json!({ "wait": "50ms" })).await.is_empty(),
        "a step of another operation or namespace does not match"
    );
    let wish = json!({ "queues": ["q"], "limit": 10 });
    let waiting = claim(&daemon, &wish);
    let submitting = async {
        daemon.submit(&json!({ "operation": "a" })).await;
        daemon.submit(&json!({ "operation": "b", "queue": "q" })).await;
    };
    let (claimed, ()) = tokio::join!(waiting, submitting);
    assert_eq!((claimed.len(), &claimed[0]["operation"]), (1, &json!("b")));
    assert_eq!(claim(&daemon, &json!({ "namespace": "elsewhere" })).await.len(), 1);
}

async fn invalid_claims_and_reports_name_the_problem(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let step = "00000000-0000-0000-0000-000000000000/0";
    let wrong = [
        ("claim", json!({ "worker": "w", "operations": [] }), "1 to 100 operations"),
        ("claim", json!({ "worker": "", "operations": ["a"] }), "worker"),
        ("claim", json!({ "worker": "w", "operations": ["a"], "wait": "21s" }), "expected at most 20s"),
        ("claim", json!({ "worker": "w", "operations": ["a"], "lease": "10ms" }), "1s to 24h"),
        ("claim", json!({ "worker": "w", "operations": ["a"], "limit": 0 }), "1 to 100"),
        ("heartbeat", json!({ "step": "x", "token": 1 }), "TASK/NUMBER"),
        ("fail", json!({ "step": step, "token": 1, "class": "odd" }), "class"),
        ("snooze", json!({ "step": step, "token": 1, "wait": "366d" }), "365d"),
        ("complete", json!({ "step": step, "token": 1, "output": 1, "output_base64": "" }), "both"),
        ("complete", json!({ "step": step, "token": 1, "output_base64": "?" }), "not base64"),
    ];
    for (what, body, expected) in wrong {
        let problem = answer(daemon.send(&format!("/v1/workers/{what}"), &body).await, 400).await;
        assert!(problem["detail"].as_str().unwrap().contains(expected), "{problem}");
    }
}

/// The step has succeeded, so neither a failure nor a repetition would be right.
async fn a_step_with_an_output_above_the_limit_succeeds(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let id = daemon.submit(&json!({ "operation": "a" })).await;
    let claimed = &claim_one(&daemon, &json!({})).await;
    let done = of(claimed, &json!({ "output": "x".repeat(300 << 10) }));
    answer(daemon.send("/v1/workers/complete", &done).await, 200).await;
    let task = daemon.task(&id).await;
    assert_eq!(task["state"], "succeeded");
    let note = task["steps"][0]["message"].as_str().unwrap();
    assert_eq!(note, "the output of 307202 bytes was dropped: the limit is 262144 (work.max_output)");
}

/// A claim in progress when the daemon stops runs to its end: the claimed steps are delivered.
#[tokio::test]
async fn a_shutdown_delivers_the_steps_of_a_claim_in_progress() {
    let store = holdoff_testbed::Postgres::shared().create_database("server");
    let daemon = Daemon::start(StoreUrl::new(store.clone())).await;
    daemon.submit(&json!({ "operation": "a" })).await;
    // Another session holds the table's lock, so the claim waits until it is released.
    let mut other = PgConnection::connect(&store).await.unwrap();
    let mut lock = other.begin().await.unwrap();
    lock.execute("lock table holdoff.steps in access exclusive mode").await.unwrap();
    let wish = json!({ "worker": "tester", "operations": ["a"], "wait": "20s" });
    let request = daemon.client.post(format!("{}/v1/workers/claim", daemon.url)).json(&wish);
    let claiming = tokio::spawn(request.send());
    let blocked = "select count(*) from pg_stat_activity where datname = current_database()
        and wait_event_type = 'Lock' and query like '%claimed_at = clock_timestamp()%'";
    // A separate connection: within the transaction Postgres shows other sessions as they were at the first query.
    let mut watch = PgConnection::connect(&store).await.unwrap();
    let since = Instant::now();
    while sqlx::query_scalar::<_, i64>(blocked).fetch_one(&mut watch).await.unwrap() == 0 {
        assert!(since.elapsed() < Duration::from_secs(20), "the claim does not wait for the table lock");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let Daemon { server, url, client } = daemon;
    let letting_go = async {
        // The daemon no longer accepts connections: it is stopping.
        while client.get(&url).send().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        lock.rollback().await.unwrap();
    };
    let (claimed, (), ()) = tokio::join!(claiming, server.shutdown(), letting_go);
    let claimed = answer(claimed.unwrap().unwrap(), 200).await;
    assert_eq!(claimed["items"].as_array().unwrap().len(), 1, "{claimed}");
}

/// Texts that a database may be unable to store, in every field that takes one.
async fn text_with_nul_is_rejected_before_the_store(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let odd = "a\u{0}b";
    let task = json!({ "operation": "a" });
    let sent = [
        ("/v1/tasks", json!({ "operation": odd })),
        ("/v1/tasks", json!({ "operation": "a", "dedup": odd })),
        ("/v1/tasks", json!({ "operation": "a", "namespace": odd })),
        ("/v1/signals", json!({ "fingerprint": "f", "namespace": odd, "task": task })),
        ("/v1/workers/claim", json!({ "worker": odd, "operations": ["a"] })),
        ("/v1/workers/claim", json!({ "worker": "w", "operations": [odd] })),
        ("/v1/steps/retry", json!({ "filter": { "queue": odd } })),
        ("/v1/queues/pause", json!({ "queue": odd })),
    ];
    for (path, body) in sent {
        assert_eq!(daemon.send(path, &body).await.status(), 400, "{path}: {body}");
    }
    answer(daemon.send("/v1/signals", &json!({ "fingerprint": odd, "task": task })).await, 201).await;
}

async fn a_failed_step_says_why_it_gave_up(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let fail = async |failure: &Value| {
        let claimed = claim_one(&daemon, &json!({})).await;
        answer(daemon.send("/v1/workers/fail", &of(&claimed, failure)).await, 200).await;
    };
    let cases = [
        (json!({ "class": "permanent" }), "permanent"),
        (json!({ "retry_after": "2d" }), "retry_after_too_long"),
        (json!({ "class": "transient" }), "exhausted"),
    ];
    for (failure, reason) in cases {
        let id = daemon.submit(&json!({ "operation": "a" })).await;
        let mut task = Value::Null;
        while task["state"] != "failed" {
            fail(&failure).await;
            task = daemon.task(&id).await;
        }
        let last = task["attempts"].as_array().unwrap().last().unwrap();
        assert_eq!(
            (&task["steps"][0]["reason"], &last["reason"]),
            (&json!(reason), &json!(reason)),
            "{task:#}"
        );
    }
    // The policy alone waits for at most 20 ms.
    for (asked, asked_us, source) in [("1h", 3_600_000_000_u64, "server"), ("0s", 0, "policy")] {
        let id = daemon.submit(&json!({ "operation": "a" })).await;
        fail(&json!({ "retry_after": asked })).await;
        let attempt = &daemon.task(&id).await["attempts"][0];
        assert_eq!(
            (&attempt["retry_after_us"], &attempt["delay_source"]),
            (&json!(asked_us), &json!(source))
        );
    }
}

on_both_stores!(
    a_failed_step_says_why_it_gave_up,
    text_with_nul_is_rejected_before_the_store,
    a_graph_is_processed_through_two_daemons,
    reports_of_a_lost_lease_are_rejected,
    a_claim_waits_for_a_matching_step,
    invalid_claims_and_reports_name_the_problem,
    a_step_with_an_output_above_the_limit_succeeds,
);
