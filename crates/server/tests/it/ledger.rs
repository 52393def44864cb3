//! Ledgers in a daemon, over the API.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::time::Duration;

use holdoff_ledger::runtime::{PeerAddress, Settings, create, join};
use holdoff_server::{NewToken, Options, StoreUrl, TokenScope};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Daemon, answer, options};

/// The options of a daemon, with its ledgers in a directory beside the work.
fn with_ledgers(folder: &TempDir) -> Options {
    let mut options = options(StoreUrl::in_directory(folder.path()));
    let mut settings = Settings::new(folder.path().join("ledger"));
    settings.listen.set_port(0);
    options.ledger = Some(Box::new(settings));
    options
}

/// Starts a daemon that is the only voter of ledgers with these names.
async fn start(folder: &TempDir, names: &[&str]) -> Daemon {
    for name in names {
        create(&folder.path().join("ledger"), name).unwrap();
    }
    let daemon = Daemon::start_with(with_ledgers(folder)).await;
    for name in names {
        // The last step of the start records the node's own address.
        let is_settled = |status: &Value| status["role"] == "leader" && status["members"] != json!([]);
        until(&daemon, name, is_settled).await;
    }
    daemon
}

async fn get(daemon: &Daemon, path: &str) -> Value {
    answer(daemon.get(path).await, 200).await
}

async fn submit(daemon: &Daemon, body: Value) -> Value {
    answer(daemon.send("/v1/ledger/transactions", &body).await, 200).await
}

/// Polls until the status of a ledger meets the condition.
async fn until(daemon: &Daemon, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let looking = async {
        loop {
            let status = get(daemon, &format!("/v1/ledger?namespace={name}")).await;
            if is_so(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(CONDITION_TIMEOUT, looking)
        .await
        .unwrap_or_else(|_| panic!("timed out waiting for the state of {name}"))
}

#[tokio::test]
async fn a_missing_node_is_a_404_with_instructions() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(StoreUrl::in_directory(folder.path())).await;
    assert_eq!(get(&daemon, "/v1/ledgers").await, json!({ "items": [] }));
    for path in
        ["/v1/ledger", "/v1/ledger/history", "/v1/ledger/events", "/v1/ledger/verify", "/v1/ledger/values/a"]
    {
        let problem = answer(daemon.get(path).await, 404).await;
        assert_eq!(problem["type"], "/problems/no-ledger", "{path}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains("holdoff ledger init"), "{problem}");
    }
    let response = daemon.send("/v1/ledger/transactions", &json!({ "goal": "=> +a(1)" })).await;
    assert_eq!(answer(response, 404).await["type"], "/problems/no-ledger");
}

#[tokio::test]
async fn a_transaction_takes_effect_once_and_is_in_the_history() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(&folder, &["default"]).await;
    let opened = submit(&daemon, json!({ "goal": "=> +balance(alice, 30)" })).await;
    assert_eq!(opened["outcome"], "committed", "{opened}");
    let pay = "balance(alice, ?a), ?a >= 10 => -balance(alice, ?a), +balance(alice, ?a - 10)";
    let body = json!({ "goal": pay, "tx_id": "0000000000000000000000000000002a" });
    let paid = submit(&daemon, body.clone()).await;
    assert_eq!(paid["result"], json!({ "variables": ["a"], "matches": [[30]] }));
    assert_eq!(paid["tx_id"], "0000000000000000000000000000002a");
    assert_eq!(submit(&daemon, body).await, paid, "the same name is the same transaction");

    let failed = submit(&daemon, json!({ "goal": "balance(bob, ?b) => -balance(bob, ?b)" })).await;
    assert_eq!(
        (&failed["outcome"], &failed["reason"]),
        (&json!("failed"), &json!("no facts match the conditions"))
    );
    let commands = json!([
        { "put": "colour", "value": { "symbol": "red" } }, { "put": "a/b", "value": "<b>" }, { "increment": "n", "by": 2 },
        { "compare_and_set": "n", "expected": 2, "new": 3 }, { "get": "colour" }
    ]);
    let put = submit(&daemon, json!({ "commands": commands })).await;
    assert_eq!(put["result"], json!([null, null, 2, 2, { "symbol": "red" }]), "{put}");

    let value = get(&daemon, "/v1/ledger/values/a%2Fb").await;
    assert_eq!((&value["key"], &value["value"]), (&json!("a/b"), &json!("<b>")));
    assert!(value["index"].as_u64() >= put["index"].as_u64(), "{value} {put}");
    for how in ["local", "quorum", "lease"] {
        let body = json!({ "goal": "balance(alice, ?a)", "consistency": how });
        let found = answer(daemon.send("/v1/ledger/read", &body).await, 200).await;
        assert_eq!(found["result"]["matches"], json!([[20]]), "{how}");
        assert_eq!(get(&daemon, &format!("/v1/ledger/values/n?consistency={how}")).await["value"], 3);
    }
    let problem = answer(daemon.get("/v1/ledger/values/nothing").await, 404).await;
    assert_eq!(problem["type"], "/problems/no-such-value");

    let history = get(&daemon, "/v1/ledger/history").await;
    let entries = history["entries"].as_array().unwrap();
    let mine: Vec<&Value> = entries.iter().filter(|entry| entry["kind"] == "transaction").collect();
    assert_eq!(mine.len(), 4, "{history}");
    assert_eq!(mine[1]["diff"], json!(["+ balance(alice, 20)", "- balance(alice, 30)"]));
    assert_eq!((&mine[1]["goal"], &mine[1]["tx_id"]), (&json!(pay), &paid["tx_id"]));
    assert_eq!((&mine[2]["status"], &mine[2]["diff"]), (&json!("failed"), &json!([])));
    assert_eq!((&mine[3]["commands"], &mine[3]["result"]), (&commands, &put["result"]));
    assert_eq!(mine[3]["diff"], json!(["+ a/b = \"<b>\"", "+ colour = red", "+ n = 3"]));
    let indices: Vec<_> = entries.iter().map(|entry| entry["index"].as_u64().unwrap()).collect();
    assert!(indices.iter().copied().eq(1..=put["index"].as_u64().unwrap()), "{indices:?}");

    let page = get(&daemon, "/v1/ledger/history?limit=2").await;
    assert_eq!(page["entries"].as_array().unwrap()[..], entries[..2]);
    let rest = get(&daemon, &format!("/v1/ledger/history?after={}", page["next"])).await;
    assert_eq!((&rest["entries"].as_array().unwrap()[..], &rest["next"]), (&entries[2..], &Value::Null));

    let status = get(&daemon, "/v1/ledger").await;
    assert_eq!((&status["index"], &status["pending"]), (&put["index"], &json!(0)), "{status}");
    assert_eq!((&status["leader"]["key"], status["members"].as_array().unwrap().len()), (&status["key"], 1));
    assert_eq!((&status["members"][0]["lag"], &status["members"][0]["votes"]), (&json!(0), &json!(true)));
    let verified = get(&daemon, "/v1/ledger/verify").await;
    assert_eq!((&verified["first"], &verified["last"]), (&json!(1), &put["index"]));
    assert_eq!(verified["broken"], Value::Null);
    let problem = answer(daemon.send("/v1/ledger/step-down", &json!({})).await, 409).await;
    assert_eq!(
        problem["type"], "/problems/not-now",
        "a leader without another voter cannot step down: {problem}"
    );
    let made = answer(daemon.send("/v1/ledger/snapshot", &json!({})).await, 200).await;
    assert_eq!(made["through"], put["index"]);
    daemon.server.shutdown().await;
}

/// The ledger no longer remembers the transactions since the birth: the response says so, and the history shows the rest.
#[tokio::test]
async fn a_forgotten_transaction_is_a_409_and_is_not_executed_again() {
    let folder = tempfile::tempdir().unwrap();
    create(&folder.path().join("ledger"), "default").unwrap();
    let mut options = with_ledgers(&folder);
    options.ledger.as_mut().unwrap().ledger.dedup.transactions = 8;
    let daemon = Daemon::start_with(options).await;
    until(&daemon, "default", |status| status["role"] == "leader" && status["members"] != json!([])).await;
    let birth = get(&daemon, "/v1/ledger").await["index"].clone();
    let add = json!({ "commands": [{ "increment": "n" }], "tx_id": "0000000000000000000000000000002a", "birth": birth });
    let first = submit(&daemon, add.clone()).await;
    for _ in 0..10 {
        submit(&daemon, json!({ "commands": [{ "put": "m", "value": 1 }] })).await;
    }
    let problem = answer(daemon.send("/v1/ledger/transactions", &add).await, 409).await;
    assert_eq!(problem["type"], "/problems/transaction-expired", "{problem}");
    assert_eq!((&problem["tx_id"], &problem["birth"]), (&first["tx_id"], &birth), "{problem}");
    assert!(problem["through"].as_u64() >= first["index"].as_u64(), "{problem}");
    assert_eq!(get(&daemon, "/v1/ledger/values/n").await["value"], 1);
    let history = get(&daemon, &format!("/v1/ledger/history?after={birth}")).await;
    assert_eq!(history["entries"][0]["tx_id"], first["tx_id"], "{history}");
}

#[tokio::test]
async fn invalid_transactions_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(&folder, &["default"]).await;
    let before = get(&daemon, "/v1/ledger").await["index"].clone();
    let to = "/v1/ledger/transactions";
    for (body, detail) in [
        (json!({}), "expected `goal` (a text) or `commands`"),
        (json!({ "goal": "=> +a(1)", "commands": [] }), "got both"),
        (json!({ "goal": "=> a(" }), "goal: "),
        (json!({ "commands": [{ "get": "a" }, { "put": "a" }] }), "commands[1]: `value` is missing"),
        (json!({ "commands": [{ "put": "a", "value": 1.5 }] }), "commands[0].value: expected an integer"),
        (json!({ "goal": "=> +a(1)", "tx_id": "+000000000000000000000000000002a" }), "32 hexadecimal digits"),
        (json!({ "goal": "=> +a(1)", "birth": 1 }), "birth: expected with `tx_id` only"),
        (json!({ "goal": "=> +a(1)", "timeout": "26s" }), "expected at most 25s"),
        (json!({ "gaol": "=> +a(1)" }), "unknown field `gaol`"),
    ] {
        let problem = answer(daemon.send(to, &body).await, 400).await;
        assert_eq!(problem["type"], "/problems/invalid-body", "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{body}: {problem}");
    }
    let long = json!({ "goal": "x".repeat(3 << 20) });
    assert_eq!(answer(daemon.send(to, &long).await, 413).await["type"], "/problems/too-large");
    for path in [
        "history?after=-1",
        "history?limit=0",
        "history?limit=1001",
        "values/a?consistency=fast",
        "values/%FF",
        "verify?x=1",
    ] {
        let problem = answer(daemon.get(&format!("/v1/ledger/{path}")).await, 400).await;
        assert_eq!(problem["type"], "/problems/invalid-query", "{path}: {problem}");
    }
    let many = vec![json!({ "get": "a" }); 65];
    let outcome = submit(&daemon, json!({ "commands": many })).await;
    assert!(outcome["reason"].as_str().unwrap().contains("exceeds the limit of 64 commands"), "{outcome}");
    let after = get(&daemon, "/v1/ledger").await["index"].clone();
    assert_eq!(
        after.as_u64(),
        before.as_u64().map(|index| index + 1),
        "a failed transaction adds one entry to the history"
    );
}

#[tokio::test]
async fn compacted_entries_are_a_410() {
    let folder = tempfile::tempdir().unwrap();
    create(&folder.path().join("ledger"), "default").unwrap();
    let mut options = with_ledgers(&folder);
    options.ledger.as_mut().unwrap().ledger.kept = 16;
    let daemon = Daemon::start_with(options).await;
    for _ in 0..60 {
        submit(&daemon, json!({ "commands": [{ "increment": "n" }] })).await;
    }
    // Old entries are removed a moment after the snapshot is on disk.
    let gone = async {
        loop {
            let response = daemon.get("/v1/ledger/history").await;
            if response.status() == 410 {
                return answer(response, 410).await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let problem =
        tokio::time::timeout(CONDITION_TIMEOUT, gone).await.expect("the node did not compact its entries");
    let first = problem["first"].as_u64().unwrap();
    assert_eq!(problem["type"], "/problems/history-compacted");
    assert!(first > 1, "{problem}");
    let mut event_stream = EventStream::new(daemon.get("/v1/ledger/events?after=0").await);
    event_stream.until("event: missed\ndata: {\"first\":").await;
    event_stream.until("event: entry\n").await;
    let missed = event_stream.text.split("\"first\":").nth(1).unwrap().split('}').next().unwrap();
    let first: u64 = missed.parse().unwrap();
    assert!(event_stream.text.contains(&format!("id: {first}\nevent: entry\n")), "{}", event_stream.text);
    let page = get(&daemon, "/v1/ledger/history?after=58").await;
    assert_eq!(page["entries"][0]["index"], 59, "an entry that was not compacted is listed");
}

/// The events that a stream has received so far.
struct EventStream {
    response: reqwest::Response,
    text: String,
}

impl EventStream {
    fn new(response: reqwest::Response) -> Self {
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    async fn until(&mut self, what: &str) {
        while !self.text.contains(what) {
            let chunk = tokio::time::timeout(CONDITION_TIMEOUT, self.response.chunk()).await;
            let chunk = chunk.unwrap_or_else(|_| panic!("no {what:?} in {}", self.text)).unwrap();
            let chunk =
                chunk.unwrap_or_else(|| panic!("the event stream ended without {what:?}: {}", self.text));
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

#[tokio::test]
async fn entries_are_streamed_as_they_are_applied() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(&folder, &["default"]).await;
    let head = get(&daemon, "/v1/ledger").await["index"].as_u64().unwrap();
    let mut event_stream = EventStream::new(daemon.get("/v1/ledger/events").await);
    event_stream.until(&format!("event: ready\ndata: {{\"after\":{head}}}\n\n")).await;
    let done = submit(&daemon, json!({ "goal": "=> +seen(1)" })).await;
    let index = done["index"].as_u64().unwrap();
    event_stream.until(&format!("id: {index}\nevent: entry\ndata: {{\"index\":{index},")).await;
    event_stream.until("\"diff\":[\"+ seen(1)\"]").await;
    assert!(!event_stream.text.contains(&format!("id: {head}\n")), "{}", event_stream.text);

    let again = daemon.client.get(format!("{}/v1/ledger/events?after=0", daemon.url));
    let again = again.header("last-event-id", index.to_string()).send().await.unwrap();
    let mut event_stream = EventStream::new(again);
    event_stream.until(&format!("event: ready\ndata: {{\"after\":{index}}}")).await;
    let next = submit(&daemon, json!({ "goal": "=> +seen(2)" })).await["index"].clone();
    event_stream.until(&format!("id: {next}\nevent: entry\n")).await;
    assert!(
        !event_stream.text.contains("seen(1)"),
        "a reconnect does not repeat entries: {}",
        event_stream.text
    );
    daemon.server.shutdown().await;
}

#[tokio::test]
async fn a_second_daemon_joins_and_commits_need_a_majority() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = start(&folders[0], &["default"]).await;
    let contact: PeerAddress = get(&first, "/v1/ledger").await["contact"].as_str().unwrap().parse().unwrap();
    let key = join(&folders[1].path().join("ledger"), "default", &[contact]).unwrap().to_string();
    let second = Daemon::start_with(with_ledgers(&folders[1])).await;
    assert_eq!(
        get(&second, "/v1/ledgers").await["items"],
        json!([{ "namespace": "default", "joined": false }])
    );
    let status = get(&second, "/v1/ledger").await;
    assert_eq!(
        (&status["role"], &status["key"], &status["index"]),
        (&json!("joining"), &json!(key), &Value::Null)
    );
    let problem = answer(second.get("/v1/ledger/history").await, 503).await;
    assert_eq!(problem["type"], "/problems/not-joined");
    assert!(problem["detail"].as_str().unwrap().contains(&key), "{problem}");

    let address = status["contact"].as_str().unwrap().split_once('@').unwrap().1;
    for (body, detail) in [
        (json!({ "key": "00", "address": address }), "key: "),
        (json!({ "key": key, "address": "nowhere" }), "address: expected a host and a port"),
        (json!({ "key": key, "address": address, "name": "n".repeat(65) }), "name: expected at most 64"),
    ] {
        let problem = answer(first.send("/v1/ledger/members", &body).await, 400).await;
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
    }
    let body = json!({ "key": key, "address": address, "name": "<second>" });
    let admitted = answer(first.send("/v1/ledger/members", &body).await, 200).await;
    let both_vote = |status: &Value| {
        let members = status["members"].as_array().unwrap();
        members.len() == 2 && members.iter().all(|member| member["votes"] == true)
    };
    let status = until(&first, "default", both_vote).await;
    assert!(status["index"].as_u64() >= admitted["index"].as_u64());
    let name = |member: &&Value| member["key"] == *key;
    assert_eq!(status["members"].as_array().unwrap().iter().find(name).unwrap()["name"], "<second>");
    until(&second, "default", both_vote).await;

    let done = submit(&second, json!({ "commands": [{ "put": "from", "value": "there" }] })).await;
    assert_eq!(done["outcome"], "committed", "{done}");
    assert_eq!(get(&first, "/v1/ledger/values/from").await["value"], "there");

    let request = first.client.delete(format!("{}/v1/ledger/members/{}", first.url, &key[..10]));
    answer(request.send().await.unwrap(), 400).await;
    let stranger = holdoff_net::SecretKey::from_secret(&[5; 32]).public();
    let request = first.client.delete(format!("{}/v1/ledger/members/{stranger}", first.url));
    let problem = answer(request.send().await.unwrap(), 404).await;
    assert_eq!(problem["type"], "/problems/no-such-member");

    step_down(&first).await;

    second.server.shutdown().await;
    let body =
        json!({ "commands": [{ "put": "alone", "value": 1 }], "timeout": "1s", "tx_id": "2".repeat(32) });
    let response = first.send("/v1/ledger/transactions", &body).await;
    let status = response.status().as_u16();
    let problem: Value = response.json().await.unwrap();
    // The outcome depends on whether the node knew already that it no longer leads when it received the transaction.
    let expected = if status == 503 { "/problems/no-quorum" } else { "/problems/outcome-unknown" };
    assert!(matches!(status, 503 | 504) && problem["type"] == expected, "{status} {problem}");
    assert_eq!(problem["tx_id"], "2".repeat(32));
    assert!(problem["birth"].as_u64().is_some_and(|birth| birth > 0), "{problem}");
    assert!(
        problem["detail"].as_str().unwrap().contains("with the `tx_id` and the `birth` of this response"),
        "{problem}"
    );
    let body = json!({ "commands": [{ "get": "alone" }], "consistency": "quorum", "timeout": "500ms" });
    let problem = answer(first.send("/v1/ledger/read", &body).await, 503).await;
    assert_eq!(problem["type"], "/problems/no-quorum", "{problem}");
    let body = json!({ "commands": [{ "get": "alone" }], "consistency": "local" });
    let found = answer(first.send("/v1/ledger/read", &body).await, 200).await;
    assert_eq!(found["result"], json!([null]), "a write without a quorum is not applied");
    first.server.shutdown().await;
}

/// Transfers the leadership to the other node. A leader may refuse while the other node catches up; then it is asked
/// again.
async fn step_down(daemon: &Daemon) {
    let handing = async {
        loop {
            let status = until(daemon, "default", |status| !status["leader"].is_null()).await;
            let others = |member: &&Value| member["key"] != status["leader"]["key"];
            let to = status["members"].as_array().unwrap().iter().find(others).unwrap()["key"].clone();
            let response = daemon.send("/v1/ledger/step-down", &json!({ "to": to })).await;
            let (code, reply) = (response.status().as_u16(), response.json::<Value>().await.unwrap());
            if code == 200 {
                assert_eq!(reply["leader"], to);
                return to;
            }
            assert!(matches!(code, 409 | 503), "{code} {reply}");
        }
    };
    let to = tokio::time::timeout(CONDITION_TIMEOUT, handing).await.unwrap();
    until(daemon, "default", |status| status["leader"]["key"] == to).await;
}

#[tokio::test]
async fn a_namespaced_token_sees_one_ledger() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["billing", "default"] {
        create(&folder.path().join("ledger"), name).unwrap();
    }
    let mut options = with_ledgers(&folder);
    options.server.require_tokens = true;
    let daemon = Daemon::start_with(options).await;
    let new = NewToken::new("one", TokenScope::Work).namespace("billing");
    let token = daemon.server.token_store().issue(&new).await.unwrap().token;
    let get_with_token = async |path: &str| {
        let request = daemon.client.get(format!("{}{path}", daemon.url)).bearer_auth(&token);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let (_, names) = get_with_token("/v1/ledgers").await;
    assert_eq!(names["items"], json!([{ "namespace": "billing", "joined": true }]));
    assert_eq!(get_with_token("/v1/ledger").await.1["namespace"], "billing");
    for path in
        ["/v1/ledger", "/v1/ledger/history", "/v1/ledger/events", "/v1/ledger/verify", "/v1/ledger/values/a"]
    {
        let (status, problem) = get_with_token(&format!("{path}?namespace=default")).await;
        assert_eq!((status, &problem["type"]), (403, &json!("/problems/forbidden")), "{path}");
    }
    let post = async |path: &str, body: Value| {
        let request = daemon.client.post(format!("{}{path}", daemon.url)).bearer_auth(&token).json(&body);
        request.send().await.unwrap().status().as_u16()
    };
    let elsewhere = json!({ "namespace": "default", "goal": "=> +a(1)" });
    assert_eq!(post("/v1/ledger/transactions", elsewhere.clone()).await, 403);
    assert_eq!(post("/v1/ledger/read", elsewhere).await, 403);
    assert_eq!(post("/v1/ledger/transactions", json!({ "goal": "=> +a(1)" })).await, 200);
    assert_eq!(
        post("/v1/ledger/snapshot", json!({})).await,
        403,
        "only an administrator can request a snapshot"
    );
}

/// A stream that was idle when its token was revoked sends nothing more.
#[tokio::test]
async fn a_revoked_token_receives_no_event() {
    let folder = tempfile::tempdir().unwrap();
    create(&folder.path().join("ledger"), "default").unwrap();
    let mut options = with_ledgers(&folder);
    options.server.require_tokens = true;
    let daemon = Daemon::start_with(options).await;
    let token_store = daemon.server.token_store();
    let admin = token_store.issue(&NewToken::new("admin", TokenScope::Admin)).await.unwrap().token;
    let reader = token_store.issue(&NewToken::new("reader", TokenScope::Read)).await.unwrap();
    let submit = async |goal: &str| {
        let url = format!("{}/v1/ledger/transactions", daemon.url);
        let sent = daemon.client.post(url).bearer_auth(&admin).json(&json!({ "goal": goal })).send().await;
        answer(sent.unwrap(), 200).await
    };
    submit("=> +a(0)").await;
    let mut streams = Vec::new();
    for path in ["/v1/ledger/events", "/v1/events", "/live"] {
        let request = daemon.client.get(format!("{}{path}", daemon.url)).bearer_auth(&reader.token);
        let mut stream = EventStream::new(request.send().await.unwrap());
        stream.until("event: ready\n").await;
        streams.push((path, stream));
    }
    assert!(token_store.revoke(&reader.record.id).await.unwrap());
    // Every daemon refuses a revoked token within two seconds.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let index = submit("=> +a(1)").await["index"].clone();
    for (path, mut stream) in streams {
        let rest = async {
            while let Ok(Some(chunk)) = stream.response.chunk().await {
                stream.text.push_str(std::str::from_utf8(&chunk).unwrap());
            }
        };
        tokio::time::timeout(CONDITION_TIMEOUT, rest).await.unwrap_or_else(|_| panic!("{path} does not end"));
        let is_sent = stream.text.contains(&format!("\"index\":{index}"));
        assert!(!is_sent, "{path} sent an event after the end of its token: {}", stream.text);
    }
}

/// A caller with a scope of `work` must not exhaust the memory or the disk of every member.
#[tokio::test]
async fn a_full_ledger_refuses_transactions_that_add_to_it() {
    let folder = tempfile::tempdir().unwrap();
    create(&folder.path().join("ledger"), "default").unwrap();
    let mut options = with_ledgers(&folder);
    let settings = options.ledger.as_mut().unwrap();
    (settings.ledger.max_state_bytes, settings.ledger.kept_bytes) = (64 << 10, 256 << 10);
    settings.max_transaction_bytes = 20 << 10;
    let daemon = Daemon::start_with(options).await;
    until(&daemon, "default", |status| status["role"] == "leader" && status["members"] != json!([])).await;
    let put = async |key: &str, value: &str, status: u16| {
        let body = json!({ "commands": [{ "put": key, "value": value }] });
        answer(daemon.send("/v1/ledger/transactions", &body).await, status).await
    };
    let value = "x".repeat(15_000);
    for key in ["a", "b", "c", "d"] {
        put(key, &value, 200).await;
    }
    let full = put("e", &value, 507).await;
    assert_eq!(full["type"], "/problems/ledger-full");
    assert!(full["detail"].as_str().unwrap().contains("max_state"), "{full}");
    assert!(full["index"].as_u64() > Some(0), "the history contains the failure: {full}");
    put("a", &value.replace('x', "y"), 200).await;
    submit(&daemon, json!({ "commands": [{ "delete": "b" }] })).await;
    put("e", &value, 200).await;

    let two = json!({ "commands": [{ "put": "c", "value": value }, { "put": "d", "value": value }] });
    let large = answer(daemon.send("/v1/ledger/transactions", &two).await, 413).await;
    assert!(large["detail"].as_str().unwrap().contains("max_transaction"), "{large}");

    // Few large entries are compacted as many small ones are.
    let written = async || {
        for round in 0..40 {
            put("a", &value.replace('x', if round % 2 == 0 { "x" } else { "y" }), 200).await;
        }
    };
    written().await;
    let compacting = async {
        while daemon.get("/v1/ledger/history?after=0").await.status() != 410 {
            written().await;
        }
    };
    tokio::time::timeout(CONDITION_TIMEOUT, compacting).await.expect("the history is compacted by its size");
    daemon.server.shutdown().await;
}

#[tokio::test]
async fn ledger_metrics_are_exported() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(&folder, &["counted"]).await;
    let goal = |goal: &str| json!({ "namespace": "counted", "goal": goal });
    let index = submit(&daemon, goal("=> +a(1)")).await["index"].clone();
    submit(&daemon, goal("b(1) => -b(1)")).await;
    let metrics = daemon.get("/metrics").await.text().await.unwrap();
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse::<f64>().unwrap()
    };
    assert!((value("holdoff_ledger_is_leader{namespace=\"counted\"}") - 1.0).abs() < f64::EPSILON);
    assert!((value("holdoff_ledger_voters{namespace=\"counted\"}") - 1.0).abs() < f64::EPSILON);
    assert!(value("holdoff_ledger_index{namespace=\"counted\"}") > index.as_f64().unwrap());
    assert!(value("holdoff_ledger_lag_entries{namespace=\"counted\"}").abs() < f64::EPSILON);
    assert!(value("holdoff_ledger_transactions_total{namespace=\"counted\",outcome=\"committed\"}") >= 1.0);
    let failed = value("holdoff_ledger_transactions_total{namespace=\"counted\",outcome=\"failed\"}");
    assert!((failed - 1.0).abs() < f64::EPSILON, "{failed}");
    for line in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap();
        assert!(metrics.contains(&format!("# HELP {name} ")), "{name} has no help text");
    }
}

#[tokio::test]
async fn ledger_changes_are_streamed_as_events() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(&folder, &["default"]).await;
    let mut event_stream = EventStream::new(daemon.get("/v1/events").await);
    event_stream.until("event: ready").await;
    let index = submit(&daemon, json!({ "goal": "=> +a(1)" })).await["index"].clone();
    event_stream
        .until(&format!("event: ledger\ndata: [{{\"namespace\":\"default\",\"index\":{index},\"leader\":\""))
        .await;
}

#[tokio::test]
async fn the_ledger_page_escapes_user_input() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(&folder, &["default", "other"]).await;
    submit(&daemon, json!({ "goal": "=> +note(\"<script>planted()</script>\")" })).await;
    submit(&daemon, json!({ "goal": "=> -note(\"<img src=x>\")" })).await;
    let many: Vec<Value> =
        (0..20).map(|key| json!({ "put": format!("key {key}"), "value": "x".repeat(999) })).collect();
    submit(&daemon, json!({ "commands": many })).await;
    let page = async |path: &str| {
        let answer = daemon.get(path).await;
        let status = answer.status().as_u16();
        (status, answer.text().await.unwrap())
    };
    let (status, text) = page("/ledger").await;
    assert_eq!(status, 200, "{text}");
    assert!(!text.contains("<script>planted") && !text.contains("<img src=x"), "{text}");
    for shown in [
        "note(&#34;&#60;script&#62;planted()&#60;/script&#62;&#34;)",
        "does not exist and cannot be removed",
        "class=\"after\"",
        "and 12 more",
        "<span class=\"state succeeded\">leader</span>",
        "<span class=\"state succeeded\">valid</span>",
        "href=\"/ledger?namespace=other\"",
    ] {
        assert!(text.contains(shown), "no {shown} in {text}");
    }
    assert!(!text.contains(&"x".repeat(300)), "a long value is truncated");
    let (_, text) = page("/ledger?before=2").await;
    assert!(
        text.contains("href=\"/ledger?namespace=default\">Latest</a>") && !text.contains("rel=\"next\""),
        "{text}"
    );
    for (path, status) in
        [("/ledger?before=x", 400), ("/ledger?namespace=%3Cb%3E", 404), ("/ledger?before=0", 200)]
    {
        let (found, text) = page(path).await;
        assert_eq!(found, status, "{path}: {text}");
        assert!(!text.contains("<b>"), "{text}");
    }
}
