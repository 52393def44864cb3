//! API tokens and the audit log: the token store on every engine, and authentication on real daemons on both stores.

use std::time::Duration;

use holdoff_server::{
    AuditEvent, AuditPage, Error, NewToken, Options, Server, StoreUrl, TokenScope, TokenStore,
};
use holdoff_testbed::Postgres;
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection};
use tokio::time::Instant;

use crate::support::{Daemon, Target, options};

fn places() -> (tempfile::TempDir, [StoreUrl; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let postgres = holdoff_testbed::Postgres::shared().create_database("tokens");
    let place = StoreUrl::in_directory(folder.path().join("data"));
    (folder, [place, StoreUrl::new(postgres)])
}

fn closed(place: &StoreUrl) -> Options {
    let mut options = options(place.clone());
    options.server.require_tokens = true;
    options
}

/// A caller with a token.
struct Caller<'d> {
    daemon: &'d Daemon,
    token: String,
}

impl<'d> Caller<'d> {
    async fn new(daemon: &'d Daemon, new: NewToken) -> Self {
        let token = daemon.server.token_store().issue(&new).await.unwrap().token;
        Self { daemon, token }
    }

    async fn get(&self, path: &str) -> Response {
        let url = format!("{}{path}", self.daemon.url);
        self.daemon.client.get(url).bearer_auth(&self.token).send().await.unwrap()
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let url = format!("{}{path}", self.daemon.url);
        let sent = self.daemon.client.post(url).bearer_auth(&self.token).json(body);
        let answer = sent.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }
}

const UNKNOWN_TASK: &str = "/v1/tasks/00000000-0000-0000-0000-000000000000";

/// Two daemons share the store. A third party revokes the token.
#[tokio::test]
async fn every_daemon_rejects_a_revoked_token() {
    let (_folder, places) = places();
    for place in places {
        let (one, two) = (Daemon::start_with(closed(&place)).await, Daemon::start_with(closed(&place)).await);
        let caller = Caller::new(&one, NewToken::new("ci", TokenScope::Read)).await;
        let there = Caller { daemon: &two, token: caller.token.clone() };
        for caller in [&caller, &there] {
            assert_eq!(caller.get(UNKNOWN_TASK).await.status(), StatusCode::NOT_FOUND);
        }
        let record = one.server.token_store().tokens().await.unwrap().remove(0);
        assert!(record.used_at.is_some(), "the store records the use of the token");
        let token_store = holdoff_server::TokenStore::open(place.as_str()).await.unwrap();
        assert!(token_store.revoke(&record.id).await.unwrap());
        let since = Instant::now();
        for caller in [&caller, &there] {
            while caller.get(UNKNOWN_TASK).await.status() != StatusCode::UNAUTHORIZED {
                assert!(since.elapsed() < Duration::from_secs(20), "the token is still valid in {place}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// A wait ends with its token: before the wait of another caller that began with it and is half as long.
#[tokio::test]
async fn a_waiting_request_ends_with_its_token() {
    let (_folder, [place, _]) = places();
    let daemon = Daemon::start_with(closed(&place)).await;
    let holder = Caller::new(&daemon, NewToken::new("holder", TokenScope::Admin)).await;
    assert_eq!(holder.post("/v1/locks/acquire", &json!({ "key": "k", "lease": "5m" })).await.0, 200);
    let claim = |wait: &str| json!({ "worker": "w", "operations": ["a"], "wait": wait });
    let lock = |wait: &str| json!({ "key": "k", "wait": wait });
    for (path, body) in
        [("/v1/workers/claim", &claim as &dyn Fn(&str) -> Value), ("/v1/locks/acquire", &lock)]
    {
        let caller = Caller::new(&daemon, NewToken::new("ci", TokenScope::Work)).await;
        let (long, short) = (body("20s"), body("10s"));
        let (waiting, other) = (caller.post(path, &long), holder.post(path, &short));
        let revoking = async {
            let id = caller.token.split('_').nth(1).unwrap();
            assert!(daemon.server.token_store().revoke(id).await.unwrap());
            std::future::pending::<()>().await;
        };
        tokio::select! {
            (status, ended) = waiting => assert!(status == 401 || ended["items"] == json!([]), "{path}: {ended}"),
            answer = other => panic!("{path}: the request waits on without a valid token: {answer:?}"),
            () = revoking => {}
        }
    }
}

#[tokio::test]
async fn an_expired_token_is_rejected() {
    let (_folder, places) = places();
    for place in places {
        let daemon = Daemon::start_with(closed(&place)).await;
        let new = NewToken::new("ci", TokenScope::Read).expires(Duration::from_secs(5));
        let caller = Caller::new(&daemon, new).await;
        let first = caller.get(UNKNOWN_TASK).await.status();
        assert_eq!(first, StatusCode::NOT_FOUND);
        let since = Instant::now();
        while caller.get(UNKNOWN_TASK).await.status() != StatusCode::UNAUTHORIZED {
            assert!(since.elapsed() < Duration::from_secs(60), "the token is still valid in {place}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A token of one namespace neither sees nor changes objects of another, and responses do not reveal them.
#[tokio::test]
async fn a_namespaced_token_is_confined_to_its_namespace() {
    let (_folder, places) = places();
    for place in places {
        let daemon = Daemon::start_with(closed(&place)).await;
        let of = |namespace: &str| NewToken::new(namespace, TokenScope::Admin).namespace(namespace);
        let (ours, theirs) =
            (Caller::new(&daemon, of("ours")).await, Caller::new(&daemon, of("theirs")).await);
        let all = Caller::new(&daemon, NewToken::new("all", TokenScope::Admin)).await;
        let later = json!({ "operation": "a", "delay": "1h" });

        // Tasks: the token's namespace is the default. Another namespace is refused, also within a list.
        let (status, task) = ours.post("/v1/tasks", &later).await;
        assert_eq!(status, 201, "{task}");
        let path = format!("/v1/tasks/{}", task["id"].as_str().unwrap());
        let shown: Value = ours.get(&path).await.json().await.unwrap();
        assert_eq!(shown["steps"][0]["namespace"], "ours");
        assert_eq!(theirs.get(&path).await.status(), StatusCode::NOT_FOUND);
        assert_eq!(all.get(&path).await.status(), StatusCode::OK);
        let mut named = later.clone();
        named["namespace"] = json!("theirs");
        let (status, problem) = ours.post("/v1/tasks", &json!([later, named])).await;
        assert_eq!((status, problem["type"].as_str()), (403, Some("/problems/forbidden")));

        // Signals: the same fingerprint in two namespaces is two tasks.
        let signal = json!({ "fingerprint": "disk", "task": later });
        let (ours_made, theirs_made) =
            (ours.post("/v1/signals", &signal).await, theirs.post("/v1/signals", &signal).await);
        assert_eq!((ours_made.0, theirs_made.0), (201, 201));
        assert_ne!(ours_made.1["task"], theirs_made.1["task"]);
        let elsewhere = json!({ "fingerprint": "disk", "task": named });
        assert_eq!(ours.post("/v1/signals", &elsewhere).await.0, 403);

        // Locks: the same key in two namespaces is two locks.
        let key = json!({ "key": "deploy" });
        let (status, lock) = ours.post("/v1/locks/acquire", &key).await;
        assert_eq!((status, lock["namespace"].as_str()), (200, Some("ours")));
        assert_eq!(theirs.post("/v1/locks/acquire", &key).await.0, 200);
        let held =
            json!({ "key": "deploy", "namespace": "ours", "token": lock["token"], "lock": lock["lock"] });
        for act in ["renew", "release", "force-release"] {
            let body = if act == "force-release" {
                json!({ "key": "deploy", "namespace": "ours" })
            } else {
                held.clone()
            };
            assert_eq!(theirs.post(&format!("/v1/locks/{act}"), &body).await.0, 403, "{act}");
        }
        assert_eq!(theirs.get("/v1/locks?namespace=ours").await.status(), StatusCode::FORBIDDEN);
        assert_eq!(
            theirs.get("/v1/locks/show?key=deploy&namespace=ours").await.status(),
            StatusCode::FORBIDDEN
        );
        let locks = |list: Value| -> Vec<String> {
            let names = list["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|lock| lock["namespace"].as_str().unwrap().to_owned());
            names.collect()
        };
        // The list also contains the locks of signals.
        let seen = locks(theirs.get("/v1/locks?prefix=deploy").await.json().await.unwrap());
        assert_eq!(seen, ["theirs"]);
        let seen = locks(all.get("/v1/locks?prefix=deploy").await.json().await.unwrap());
        assert_eq!(seen, ["ours", "theirs"]);

        // The audit log.
        assert_eq!(ours.post("/v1/locks/force-release", &key).await.0, 200);
        let audit = |answer: Value| answer.as_array().unwrap().len();
        assert_eq!(audit(ours.get("/v1/audit").await.json().await.unwrap()), 1);
        assert_eq!(audit(theirs.get("/v1/audit").await.json().await.unwrap()), 0);
        assert_eq!(theirs.get("/v1/audit?namespace=ours").await.status(), StatusCode::FORBIDDEN);
    }
}

/// Every action is in the audit log, also if the client disconnects before it ends.
#[tokio::test]
async fn an_action_of_a_disconnected_client_is_audited() {
    let url = holdoff_testbed::Postgres::shared().create_database("server");
    let daemon = Daemon::start_with(closed(&StoreUrl::new(url.clone()))).await;
    let caller = Caller::new(&daemon, NewToken::new("ops", TokenScope::Admin)).await;
    let (_, task) = caller.post("/v1/tasks", &json!({ "operation": "a", "delay": "1h" })).await;
    let mut other = PgConnection::connect(&url).await.unwrap();
    let mut lock = other.begin().await.unwrap();
    lock.execute("lock table holdoff.steps in exclusive mode").await.unwrap();
    let request = daemon.client.post(format!("{}/v1/steps/cancel", daemon.url)).bearer_auth(&caller.token);
    let asking = tokio::spawn(request.json(&json!({ "filter": { "operation": "a" } })).send());
    let blocked = "select count(*) from pg_stat_activity where datname = current_database()
        and wait_event_type = 'Lock' and query like '%holdoff.steps%'";
    // A separate connection: within the transaction Postgres shows other sessions as they were at the first query.
    let mut watch = PgConnection::connect(&url).await.unwrap();
    let since = Instant::now();
    while sqlx::query_scalar::<_, i64>(blocked).fetch_one(&mut watch).await.unwrap() == 0 {
        assert!(since.elapsed() < Duration::from_secs(20), "the request does not wait for the table lock");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    // When the daemon has served a later request, it has noticed that the connection is closed.
    assert_eq!(caller.get(UNKNOWN_TASK).await.status(), StatusCode::NOT_FOUND);
    lock.rollback().await.unwrap();
    let since = Instant::now();
    let audit = loop {
        let audit: Value = caller.get("/v1/audit").await.json().await.unwrap();
        if !audit.as_array().unwrap().is_empty() {
            break audit;
        }
        assert!(since.elapsed() < Duration::from_secs(20), "the audit event was never recorded");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((&audit[0]["actor"], &audit[0]["count"]), (&json!("ops"), &json!(1)), "{audit}");
    let id = task["id"].as_str().unwrap();
    let shown: Value = caller.get(&format!("/v1/tasks/{id}")).await.json().await.unwrap();
    assert_eq!(shown["state"], "cancelled");
}

/// An action whose entry cannot be written waits for the store, longer than the store's own timeout.
#[tokio::test]
async fn a_forced_release_is_audited_when_the_store_recovers() {
    let url = Postgres::shared().create_database("server");
    let daemon = Daemon::start(StoreUrl::new(url.clone())).await;
    let mut other = PgConnection::connect(&url).await.unwrap();
    let mut lock = other.begin().await.unwrap();
    lock.execute("lock table holdoff.server_audit in access exclusive mode").await.unwrap();
    let request = daemon.client.post(format!("{}/v1/locks/force-release", daemon.url));
    let mut releasing = tokio::spawn(request.json(&json!({ "key": "deploy" })).send());
    // The store gives up waiting for the table after five seconds; then the daemon tries again.
    let attempts = "select count(distinct query_start) from pg_stat_activity where datname = current_database()
        and wait_event_type = 'Lock' and query like 'insert into holdoff.server_audit%' and query_start > to_timestamp($1)";
    let mut watch = PgConnection::connect(&url).await.unwrap();
    let mut first = 0.0;
    let mut seen = 0;
    while seen < 2 && !releasing.is_finished() {
        let count: i64 = sqlx::query_scalar(attempts).bind(first).fetch_one(&mut watch).await.unwrap();
        if count > 0 {
            let newest = "select extract(epoch from max(query_start))::float8 + 0.0005 from pg_stat_activity
                where datname = current_database() and query like 'insert into holdoff.server_audit%'";
            first = sqlx::query_scalar(newest).fetch_one(&mut watch).await.unwrap();
            seen += 1;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    lock.rollback().await.unwrap();
    assert_eq!((&mut releasing).await.unwrap().unwrap().status(), StatusCode::OK);
    let audit: Value = daemon.get("/v1/audit").await.json().await.unwrap();
    assert_eq!(
        (audit.as_array().unwrap().len(), &audit[0]["action"]),
        (1, &json!("lock.force-release")),
        "{audit}"
    );
}

#[tokio::test]
async fn a_dry_run_is_not_audited() {
    let daemon = Daemon::start(StoreUrl::new("sqlite::memory:")).await;
    daemon.submit(&json!({ "operation": "a", "delay": "1h" })).await;
    let audit = async || -> Value { daemon.get("/v1/audit").await.json().await.unwrap() };
    let wish = json!({ "filter": { "operation": "a" }, "dry_run": true });
    let policies = json!({ "file": "[policies.x]\nextends = \"standard\"", "dry_run": true });
    for (path, wish) in [("/v1/steps/cancel", &wish), ("/v1/policies", &policies)] {
        assert_eq!(daemon.send(path, wish).await.status(), StatusCode::OK, "{path}");
    }
    assert_eq!(audit().await, json!([]));
    let wish = json!({ "filter": { "operation": "a" } });
    assert_eq!(daemon.send("/v1/steps/cancel", &wish).await.status(), StatusCode::OK);
    assert_eq!(audit().await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn operator_actions_are_audited() {
    let (_folder, places) = places();
    for place in places {
        let daemon = Daemon::start_with(closed(&place)).await;
        let caller = Caller::new(&daemon, NewToken::new("ops", TokenScope::Admin)).await;
        assert_eq!(caller.post("/v1/locks/acquire", &json!({ "key": "deploy" })).await.0, 200);
        let url = format!("{}/v1/locks/force-release", daemon.url);
        let sent = daemon.client.post(url).bearer_auth(&caller.token).header("x-request-id", "mine-17");
        assert_eq!(sent.json(&json!({ "key": "deploy" })).send().await.unwrap().status(), 200);
        let audit: Value = caller.get("/v1/audit").await.json().await.unwrap();
        let entry = &audit[0];
        assert_eq!(audit.as_array().unwrap().len(), 1, "acquiring a lock is not audited: {audit}");
        let id = &daemon.server.token_store().tokens().await.unwrap()[0].id;
        assert_eq!((&entry["actor"], &entry["token"]), (&json!("ops"), &json!(id)));
        assert_eq!((&entry["action"], &entry["object"]), (&json!("lock.force-release"), &json!("deploy")));
        assert_eq!((&entry["namespace"], &entry["count"]), (&json!("default"), &json!(1)));
        assert_eq!(entry["request"], "mine-17");
        assert!(entry["at"].as_str().unwrap().starts_with("20"), "{entry}");
    }
    let daemon = Daemon::start(StoreUrl::new("sqlite::memory:")).await;
    let url = format!("{}/v1/locks/force-release", daemon.url);
    daemon.client.post(url).json(&json!({ "key": "deploy" })).send().await.unwrap();
    let audit: Value = daemon.get("/v1/audit").await.json().await.unwrap();
    assert_eq!((&audit[0]["actor"], &audit[0]["count"]), (&json!("loopback"), &json!(0)));
}

/// A namespace that the audit log cannot keep is refused before the action, and no store fails because of it.
#[tokio::test]
async fn a_namespace_with_a_control_character_is_refused() {
    let (_folder, places) = places();
    for place in places {
        let daemon = Daemon::start(place).await;
        for path in [
            "audit",
            "locks",
            "locks/show?key=a",
            "tasks",
            "steps",
            "failed",
            "queues",
            "conflicts",
            "ledger",
            "ledger/history",
        ] {
            let mark = if path.contains('?') { '&' } else { '?' };
            let answer = daemon.get(&format!("/v1/{path}{mark}namespace=a%00b")).await;
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{path}: {}", answer.text().await.unwrap());
        }
        let named = json!({ "key": "deploy", "namespace": "a\0b" });
        for act in ["acquire", "force-release"] {
            assert_eq!(daemon.send(&format!("/v1/locks/{act}"), &named).await.status(), 400, "{act}");
        }
        let form = "namespace=a%00b&key=deploy&digest=0".to_owned();
        let page = daemon.client.post(format!("{}/locks/release", daemon.url)).body(form);
        assert_eq!(page.header("sec-fetch-site", "same-origin").send().await.unwrap().status(), 400);
        let audit: Value = daemon.get("/v1/audit").await.json().await.unwrap();
        assert_eq!(audit, json!([]));
    }
}

/// A caller without a token does not see a node's policies.
#[tokio::test]
async fn only_an_authenticated_caller_sees_policy_drift() {
    let (_folder, [place, _]) = places();
    let daemon = Daemon::start_with(closed(&place)).await;
    let admin = Caller::new(&daemon, NewToken::new("ops", TokenScope::Admin)).await;
    let mut new = NewToken::new("probe", TokenScope::Read);
    new.namespace = Some("default".to_owned());
    let probe = Caller::new(&daemon, new).await;
    let file = "[policies.other]\nextends = \"standard\"";
    assert_eq!(admin.post("/v1/policies", &json!({ "file": file })).await.0, 200);
    while daemon.server.work().drift().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let ready = daemon.get("/readyz").await;
    assert_eq!((ready.status(), ready.text().await.unwrap().as_str()), (StatusCode::OK, "ready\n"));
    let wrong = Caller { daemon: &daemon, token: "nonsense".to_owned() };
    let ready = wrong.get("/readyz").await;
    assert_eq!((ready.status(), ready.text().await.unwrap().as_str()), (StatusCode::OK, "ready\n"));
    let readiness = probe.get("/readyz").await.text().await.unwrap();
    assert!(readiness.starts_with("ready\npolicy drift: "), "{readiness}");
}

/// If tokens are required, the submitters of work do not own the daemon's network: a step calls a private address only if
/// the settings list it, and a metadata service never.
#[tokio::test]
async fn steps_do_not_call_private_addresses_unless_listed() {
    let target = Target::start(&[]).await;
    for (http, expected) in [
        ("", "is a private address, and http.deny_private is set"),
        ("[http]\nallow = [\"127.0.0.0/8\"]", ""),
        ("[http]\ndeny_private = false", ""),
    ] {
        let (_folder, [place, _]) = places();
        let mut options = closed(&place);
        options.settings = holdoff_work::Settings::from_toml(http).unwrap();
        let daemon = Daemon::start_with(options).await;
        let caller = Caller::new(&daemon, NewToken::new("ci", TokenScope::Work)).await;
        for (url, expected) in
            [(target.url.as_str(), expected), ("http://169.254.169.254/", "is a link-local address")]
        {
            let request = json!({ "url": url, "timeout": "3s" });
            let (status, task) =
                caller.post("/v1/tasks", &json!({ "operation": "a", "http": request })).await;
            assert_eq!(status, 201, "{task}");
            let path = format!("/v1/tasks/{}", task["id"].as_str().unwrap());
            let step = loop {
                let shown: Value = caller.get(&path).await.json().await.unwrap();
                let step = shown["steps"][0].clone();
                if step["failures"] != 0 || step["state"] == "succeeded" {
                    break step;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            let message = step["message"].as_str().unwrap_or_default();
            assert!(message.contains(expected), "{http} {url}: {step}");
            assert_eq!(
                step["state"],
                if expected.is_empty() { "succeeded" } else { "failed" },
                "{http} {url}: {step}"
            );
        }
    }
}

/// Notifications cover all namespaces, so tokens of another namespace must not see them.
#[tokio::test]
async fn notifications_are_hidden_from_namespaced_tokens() {
    let (_folder, [place, _]) = places();
    let mut options = closed(&place);
    let unheard = "http://127.0.0.1:9/hook".to_owned();
    options.settings.notify = vec![holdoff_work::NotifyRule { url: unheard, ..Default::default() }];
    let daemon = Daemon::start_with(options).await;
    let mut new = NewToken::new("default", TokenScope::Admin);
    new.namespace = Some("default".to_owned());
    let ours = Caller::new(&daemon, new).await;
    let all = Caller::new(&daemon, NewToken::new("all", TokenScope::Admin)).await;
    all.post("/v1/tasks", &json!({ "operation": "a", "namespace": "secret" })).await;
    let wish = json!({ "worker": "w", "operations": ["a"], "namespace": "secret", "wait": "20s" });
    let (_, claimed) = all.post("/v1/workers/claim", &wish).await;
    let step = &claimed["items"][0];
    let failed =
        json!({ "step": step["step"], "token": step["token"], "class": "permanent", "message": "no" });
    assert_eq!(all.post("/v1/workers/fail", &failed).await.0, 200);
    let seen = async |caller: &Caller<'_>| -> Value {
        caller.get("/v1/steps?operation=holdoff.notification").await.json().await.unwrap()
    };
    let listed = seen(&all).await;
    assert_eq!(listed["items"][0]["namespace"], "holdoff.notifications", "{listed}");
    assert_eq!(seen(&ours).await["items"], json!([]));
    let intruding = json!({ "operation": "a", "namespace": "holdoff.notifications" });
    let (status, problem) = all.post("/v1/tasks", &intruding).await;
    assert_eq!((status, &problem["type"]), (400, &json!("/problems/invalid-task")));
}

/// Malformed tokens count like invalid ones, also if many arrive at once.
#[tokio::test]
async fn invalid_and_malformed_tokens_share_one_limit() {
    let (_folder, [place, _]) = places();
    let daemon = Daemon::start_with(closed(&place)).await;
    let unknown = format!("holdoff_{}_{}", "0".repeat(16), "0".repeat(64));
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..60 {
        let token = if number % 2 == 0 { unknown.clone() } else { format!("nonsense{number}") };
        let request = daemon.client.get(format!("{}{UNKNOWN_TASK}", daemon.url)).bearer_auth(token);
        asking.spawn(async move { request.send().await.unwrap().status() });
    }
    let statuses = asking.join_all().await;
    let refused = statuses.iter().filter(|status| **status == StatusCode::UNAUTHORIZED).count();
    let slowed = statuses.iter().filter(|status| **status == StatusCode::TOO_MANY_REQUESTS).count();
    assert_eq!(refused + slowed, 60, "{statuses:?}");
    // Ten at once, and one more each second while they arrive.
    assert!((10..30).contains(&refused), "{refused} of 60 requests were answered with 401");
    for token in [unknown.as_str(), "nonsense"] {
        let caller = Caller { daemon: &daemon, token: token.to_owned() };
        let mut answers = Vec::new();
        for _ in 0..5 {
            answers.push(caller.get(UNKNOWN_TASK).await.status());
        }
        assert!(answers.contains(&StatusCode::TOO_MANY_REQUESTS), "{token}: {answers:?}");
    }
}

/// A wrong secret, an unknown id and a missing token get the same response.
#[tokio::test]
async fn invalid_tokens_get_one_response_and_are_throttled() {
    let (_folder, [place, _]) = places();
    let daemon = Daemon::start_with(closed(&place)).await;
    let good = Caller::new(&daemon, NewToken::new("ci", TokenScope::Read)).await;
    let (head, _) = good.token.rsplit_once('_').unwrap();
    let wrong_secret = format!("{head}_{}", "0".repeat(64));
    let unknown = format!("holdoff_{}_{}", "0".repeat(16), "0".repeat(64));
    let with = |token: &str| Caller { daemon: &daemon, token: token.to_owned() };
    let mut bodies = vec![daemon.get(UNKNOWN_TASK).await.text().await.unwrap()];
    for token in [wrong_secret.as_str(), &unknown, "nonsense"] {
        bodies.push(with(token).get(UNKNOWN_TASK).await.text().await.unwrap());
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "{bodies:?}");

    assert_eq!(good.get(UNKNOWN_TASK).await.status(), StatusCode::NOT_FOUND);
    let slowed = async {
        loop {
            let answer = with(&unknown).get(UNKNOWN_TASK).await;
            if answer.status() == StatusCode::TOO_MANY_REQUESTS {
                return answer;
            }
            assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        }
    };
    let slowed = tokio::time::timeout(Duration::from_secs(20), slowed).await.unwrap();
    assert!(slowed.headers().contains_key("retry-after"));
    // The daemon looks a token up before it throttles: also one from this address that it has never seen.
    for number in 0..20 {
        let unseen = Caller::new(&daemon, NewToken::new(format!("new{number}"), TokenScope::Read)).await;
        let _ = with(&unknown).get(UNKNOWN_TASK).await;
        assert_eq!(
            unseen.get(UNKNOWN_TASK).await.status(),
            StatusCode::NOT_FOUND,
            "a valid token is throttled"
        );
    }
    // A valid token from the same address works, also after its cache entry has expired.
    for _ in 0..3 {
        assert_eq!(good.get(UNKNOWN_TASK).await.status(), StatusCode::NOT_FOUND);
        tokio::time::sleep(Duration::from_millis(700)).await;
        let _ = with(&unknown).get(UNKNOWN_TASK).await;
    }
    let metrics = daemon.get("/metrics").await;
    assert_eq!(metrics.status(), StatusCode::UNAUTHORIZED);
    let counted = good.get("/metrics").await.text().await.unwrap();
    for reason in ["missing", "refused", "throttled"] {
        let line = format!("holdoff_server_authentications_failed_total{{reason=\"{reason}\"}}");
        assert!(counted.contains(&line), "{reason}");
    }
}

#[tokio::test]
async fn each_token_has_its_own_rate_limit() {
    let (_folder, [place, _]) = places();
    let mut slow = closed(&place);
    slow.server.rate = Some("5/h".parse().unwrap());
    let daemon = Daemon::start_with(slow).await;
    let (one, two) = (
        Caller::new(&daemon, NewToken::new("one", TokenScope::Read)).await,
        Caller::new(&daemon, NewToken::new("two", TokenScope::Read)).await,
    );
    for _ in 0..5 {
        assert_eq!(one.get(UNKNOWN_TASK).await.status(), StatusCode::NOT_FOUND);
    }
    let refused = one.get(UNKNOWN_TASK).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=720).contains(&wait), "{wait}");
    assert_eq!(refused.json::<Value>().await.unwrap()["type"], "/problems/too-many-requests");
    assert_eq!(two.get(UNKNOWN_TASK).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(
        one.get("/healthz").await.status(),
        StatusCode::OK,
        "a request that needs no token is not rate limited"
    );
}

#[tokio::test]
async fn a_reachable_address_requires_tokens_and_tls() {
    let (_folder, [place, _]) = places();
    let mut open = options(place.clone());
    open.listen = "0.0.0.0:0".parse().unwrap();
    let refused = Server::start(open.clone()).await.unwrap_err();
    assert!(matches!(refused, Error::NotLoopback(_)) && refused.to_string().contains("--require-token"));
    open.server.require_tokens = true;
    let refused = Server::start(open.clone()).await.unwrap_err();
    assert!(matches!(refused, Error::Plain(_)) && refused.to_string().contains("--tls-cert"), "{refused}");
    open.server.insecure = true;
    let refused = Server::start(open.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("holdoff token create --name ME --scope admin"), "{refused}");

    let token_store = holdoff_server::TokenStore::open(place.as_str()).await.unwrap();
    token_store.issue(&NewToken::new("me", TokenScope::Admin)).await.unwrap();
    open.server.hosts = vec!["holdoff.example.com".to_owned()];
    let daemon = Daemon::start_with(open).await;
    let url = format!("http://127.0.0.1:{}/healthz", daemon.server.address().port());
    let as_host = async |host: &str| {
        let sent = daemon.client.get(&url).header("host", host).send().await.unwrap();
        sent.status().as_u16()
    };
    assert_eq!(as_host("holdoff.example.com:443").await, 200);
    assert_eq!(as_host("127.0.0.1").await, 200);
    assert_eq!(as_host("evil.example").await, 421);
}

/// A daemon that may still refuse to start accepts no connection: clients and probes must not take it for one that serves.
#[tokio::test]
async fn the_port_is_closed_until_the_daemon_may_serve() {
    let url = Postgres::shared().create_database("server");
    let mut options = closed(&StoreUrl::new(url.clone()));
    TokenStore::open(&url).await.unwrap();
    let mut other = PgConnection::connect(&url).await.unwrap();
    let mut lock = other.begin().await.unwrap();
    lock.execute("lock table holdoff.server_tokens in access exclusive mode").await.unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    options.listen.set_port(port);
    let starting = tokio::spawn(Server::start(options));
    let blocked = "select count(*) from pg_stat_activity where datname = current_database()
        and wait_event_type = 'Lock' and query like '%holdoff.server_tokens%'";
    let mut watch = PgConnection::connect(&url).await.unwrap();
    while sqlx::query_scalar::<_, i64>(blocked).fetch_one(&mut watch).await.unwrap() == 0 {
        assert!(!starting.is_finished(), "the daemon did not look for an administrator");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let early = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
    assert!(early.is_err(), "the daemon accepts connections before it has checked its tokens");
    lock.rollback().await.unwrap();
    let server = starting.await.unwrap().unwrap();
    tokio::net::TcpStream::connect(server.address()).await.unwrap();
}

/// Every engine, each with a store of its own.
async fn token_stores() -> Vec<(&'static str, TokenStore, Option<tempfile::TempDir>)> {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("a.db").display());
    let postgres = Postgres::shared().create_database("token_store");
    vec![
        ("sqlite", TokenStore::open(&url).await.unwrap(), Some(folder)),
        ("postgres", TokenStore::open(&postgres).await.unwrap(), None),
        ("memory", TokenStore::open("sqlite::memory:").await.unwrap(), None),
    ]
}

#[tokio::test]
async fn a_token_is_issued_listed_and_revoked_once() {
    for (engine, token_store, _folder) in token_stores().await {
        assert!(!token_store.has_admin().await.unwrap(), "{engine}");
        let one =
            token_store.issue(&NewToken::new("ci", TokenScope::Work).namespace("billing")).await.unwrap();
        let hour = Duration::from_secs(3600);
        let two = token_store.issue(&NewToken::new("ops", TokenScope::Admin).expires(hour)).await.unwrap();
        assert_ne!(one.token, two.token);
        assert_eq!(two.record.expires_at.unwrap().since(two.record.created_at), hour, "{engine}");
        assert!(token_store.has_admin().await.unwrap(), "{engine}");

        let listed = token_store.tokens().await.unwrap();
        assert_eq!(listed, [two.record.clone(), one.record.clone()], "{engine}");
        assert!(token_store.revoke(&two.record.id).await.unwrap(), "{engine}");
        assert!(!token_store.revoke(&two.record.id).await.unwrap(), "{engine}: the token was revoked before");
        assert!(!token_store.revoke("unknown").await.unwrap(), "{engine}");
        assert!(
            !token_store.has_admin().await.unwrap(),
            "{engine}: a revoked token does not count as an administrator"
        );
        let listed = token_store.tokens().await.unwrap();
        assert!(listed[0].revoked_at.is_some() && listed[1].revoked_at.is_none(), "{engine}");
    }
}

#[tokio::test]
async fn a_namespaced_or_expired_admin_does_not_count() {
    for (engine, token_store, _folder) in token_stores().await {
        token_store.issue(&NewToken::new("a", TokenScope::Admin).namespace("billing")).await.unwrap();
        assert!(!token_store.has_admin().await.unwrap(), "{engine}");
        let second = Duration::from_secs(1);
        token_store.issue(&NewToken::new("b", TokenScope::Admin).expires(second)).await.unwrap();
        while token_store.has_admin().await.unwrap() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let refused = token_store.issue(&NewToken::new("", TokenScope::Admin)).await.unwrap_err();
        assert!(matches!(refused, Error::Token(_)), "{engine}");
    }
}

#[tokio::test]
async fn audit_entries_are_listed_newest_first_and_pruned() {
    for (engine, token_store, _folder) in token_stores().await {
        for number in 0..5 {
            let event = AuditEvent::new("task.cancel", format!("task {number}")).by("ops").with_count(number);
            let event = if number % 2 == 0 { event.in_namespace("billing") } else { event };
            token_store.record(&event).await.unwrap();
        }
        let objects = |entries: &[holdoff_server::AuditEntry]| {
            entries.iter().map(|entry| entry.object.clone()).collect::<Vec<_>>()
        };
        let newest = token_store.audit(&AuditPage::newest(2)).await.unwrap();
        assert_eq!(objects(&newest), ["task 4", "task 3"], "{engine}");
        assert_eq!((newest[0].actor.as_str(), newest[0].count), ("ops", 4), "{engine}");
        let mut rest = AuditPage::newest(100);
        rest.before = Some(newest[1].id);
        rest.namespace = Some("billing".to_owned());
        assert_eq!(objects(&token_store.audit(&rest).await.unwrap()), ["task 2", "task 0"], "{engine}");

        assert_eq!(token_store.prune(Duration::from_secs(3600), 100).await.unwrap(), 0, "{engine}");
        assert_eq!(
            token_store.prune(Duration::ZERO, 3).await.unwrap(),
            3,
            "{engine}: prune respects its limit"
        );
        let left = token_store.audit(&AuditPage::newest(100)).await.unwrap();
        assert_eq!(objects(&left), ["task 4", "task 3"], "{engine}: prune deletes the oldest entries first");
    }
}

/// Two daemons and a command open a new store at once.
#[tokio::test]
async fn concurrent_opens_migrate_once() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("a.db").display());
    for url in [url, Postgres::shared().create_database("token_store")] {
        let opened = tokio::join!(TokenStore::open(&url), TokenStore::open(&url), TokenStore::open(&url));
        let issued = opened.0.unwrap().issue(&NewToken::new("a", TokenScope::Read)).await.unwrap();
        for other in [opened.1, opened.2] {
            let listed = other.unwrap().tokens().await.unwrap();
            assert_eq!(listed, std::slice::from_ref(&issued.record));
        }
    }
}
