//! Client-provided content is shown as plain text.

use serde_json::{Value, json};

use crate::pages::daemon::{ACCEPTOR, Daemon, TOKENS, Target};
use crate::pages::until;
use crate::pages::visitor::Visitor;

/// Content that would execute if a page inserted it unescaped into text, attributes with either kind of quotes,
/// scripts or styles.
const SCRIPT: &str =
    "<script>planted=1</script><img src=x onerror=planted=1>\"'><svg/onload=planted=1>{{7*7}}";

/// Finds injected content from any source.
const INJECTED: &str = "return [typeof planted !== 'undefined', Array.from(document.querySelectorAll( \
    'script:not([src]), [onerror], [onload], img[src=\"x\"], main img, svg:not([class],[width]), base, iframe')) \
    .map((e) => e.outerHTML)]";

/// Returns the content with the name of its field, so that a failure names the field.
fn injected(field: &str) -> String {
    format!("{field} {SCRIPT}")
}

/// Encodes the text for a URL.
fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[tokio::test]
async fn values_from_clients_are_escaped() {
    let (daemon, target) = (Daemon::with_ledgers(&["default"], ACCEPTOR), Target::start().await);
    let (task, pulled) = inject(&daemon, &target).await;
    let visitor = Visitor::to(&daemon.url).await;
    let p = encoded(SCRIPT);
    let policy = encoded(&injected("policy")).replace('+', "%20");
    let [step, other] = [format!("/steps/{task}/0"), format!("/steps/{pulled}/0")];
    // Each page, and the texts that it must contain.
    let pages: Vec<(String, Vec<&str>)> = vec![
        ("/".into(), vec!["operation <script>", "operation"]),
        ("/tasks".into(), vec!["operation", "namespace"]),
        (format!("/tasks?text={p}&operation={p}&queue={p}"), vec![]),
        ("/steps".into(), vec!["operation", "step", "queue", "namespace", "message"]),
        (format!("/steps?operation={p}&queue={p}&destination={p}&text={p}"), vec!["text: ", "destination: "]),
        (format!("/steps?state={p}"), vec![]),
        (format!("/steps?class={p}&namespace={p}&older_than={p}&after={p}"), vec![]),
        (format!("/failed?text={p}&min_failures={p}"), vec![]),
        ("/failed".into(), vec!["operation", "message"]),
        ("/conflicts".into(), vec!["operation", "message"]),
        (format!("/tasks/{task}"), vec!["step", "operation", "message"]),
        (format!("{step}?payload=shown"), vec!["\"x-planted\"", "step", "queue", "namespace", "message"]),
        (format!("{other}?payload=shown"), vec!["payload", "worker", "report"]),
        (format!("/conflicts/{task}/0"), vec!["operation", "message"]),
        (format!("/steps/act?action=retry&text={p}&operation={p}"), vec![]),
        (format!("/steps/act?action={p}&step={p}"), vec![]),
        (format!("/steps/act?action=retry&step={p}"), vec![]),
        ("/queues".into(), vec!["operation", "queue", "namespace"]),
        ("/signals".into(), vec!["signal"]),
        ("/locks".into(), vec!["lock", "owner"]),
        (format!("/locks?prefix={p}"), vec![]),
        ("/councils".into(), vec!["The acceptor in this daemon"]),
        (format!("/councils?sort={p}"), vec!["sort: expected one of"]),
        (format!("/councils?sort=bytes&after={p}&done={p}"), vec!["after: expected a cursor"]),
        ("/ledger".into(), vec!["goal <script>", "value <script>", "member <script>", "cause <script>"]),
        (format!("/ledger?namespace={p}"), vec![]),
        (format!("/ledger?before={p}&done={p}"), vec!["before: expected an index"]),
        ("/policies".into(), vec!["policy", "everything else"]),
        (format!("/policies/{policy}"), vec!["policy"]),
        (format!("/policies/{policy}?set.base={p}&scenario={p}&clients={p}"), vec!["policy", "is"]),
        (format!("/policies/{p}"), vec![]),
        (format!("/policies/versions/{p}"), vec![]),
        ("/nodes".into(), vec![]),
        ("/audit".into(), vec!["<script>"]),
        (format!("/audit?before={p}"), vec![]),
        ("/settings".into(), vec!["token"]),
        (format!("/?window={p}"), vec![]),
        (format!("/?done={p}&count={p}&what={p}"), vec![]),
        (format!("/queues?done=pause&what={p}"), vec!["operation"]),
        (format!("/tasks/{p}"), vec![]),
        (format!("/assets/{p}"), vec![]),
        (format!("/{p}"), vec![]),
    ];
    for (page, seen) in &pages {
        visitor.open(page).await;
        assert_not_injected(&visitor, page).await;
        for field in seen {
            visitor.sees("body", field).await;
        }
        let text = visitor.text("body").await;
        if seen.contains(&"operation") {
            assert!(
                text.contains("<script>planted=1</script><img src=x"),
                "{page}: the page shows the whole text: {text}"
            );
        }
    }
    // Redrawn content and repeated input are harmless too.
    visitor.open("/steps").await;
    visitor.sees("#live-word", "live").await;
    daemon.submit(json!({ "operation": injected("later"), "payload": 1 })).await;
    visitor.sees("#live tbody th", "later <script>").await;
    assert_not_injected(&visitor, "/steps, redrawn").await;
    visitor.write("#text", SCRIPT).await;
    until("the URL contains the search text", async || visitor.place().await.contains("text=")).await;
    assert_not_injected(&visitor, "/steps, searched").await;
    visitor.open(&format!("/conflicts/{task}/0")).await;
    visitor.write("#edit", SCRIPT).await;
    visitor.click("#confirm").await;
    visitor.sees(".wrong", "the payload is not JSON").await;
    assert_eq!(visitor.value("#edit").await, SCRIPT);
    assert_not_injected(&visitor, "a conflict, refused").await;
    visitor.leave().await;
}

/// The login and the displayed name of the user.
#[tokio::test]
async fn values_on_the_login_page_are_escaped() {
    let daemon = Daemon::start_with(TOKENS);
    let token = daemon.token(&["--name", &injected("token"), "--scope", "admin"]);
    let visitor = Visitor::to(&daemon.url).await;
    for next in [SCRIPT, "javascript:planted=1", "/\"><script>planted=1</script>", "//example.com/"] {
        visitor.browser.client.delete_all_cookies().await.unwrap();
        visitor.open(&format!("/login?next={}", encoded(next))).await;
        assert_not_injected(&visitor, "/login").await;
        visitor.log_in(SCRIPT).await;
        visitor.sees(".wrong", "Invalid API token").await;
        assert_not_injected(&visitor, "/login, refused").await;
        visitor.log_in(&token).await;
        visitor.sees(".brand", "holdoff").await;
        assert_not_injected(&visitor, "the page after the login").await;
        let place = visitor.place().await;
        assert!(place.starts_with('/') && !place.starts_with("/login"), "{next}: {place}");
    }
    visitor.open("/").await;
    visitor.sees(".name", "token <script>planted=1</script>").await;
    assert_not_injected(&visitor, "/, by name").await;
    visitor.open("/settings").await;
    visitor.write("input[name=name]", &injected("token two")).await;
    visitor.write("input[name=expires]", SCRIPT).await;
    visitor.click("form.inline button").await;
    visitor.sees(".wrong", "expected a duration").await;
    assert_not_injected(&visitor, "/settings, refused").await;
    visitor.write("input[name=expires]", "1d").await;
    visitor.click("form.inline button").await;
    visitor.sees(".made", "token two <script>").await;
    assert_not_injected(&visitor, "/settings, made").await;
    visitor.leave().await;
}

/// Writes the content into every field that a client can set. Returns a conflicted task and a task that a worker
/// failed.
async fn inject(daemon: &Daemon, target: &Target) -> (String, String) {
    let names = (injected("namespace"), injected("queue"), injected("operation"), injected("step"));
    let (namespace, queue, operation, step) = &names;
    let http = |path: &str| json!({ "url": target.at(path), "body_text": injected("message"), "headers": { "x-planted": SCRIPT } });
    let file = format!(
        "default = {0:?}\n[policies.{0:?}]\nextends = \"standard\"\nbase = \"10ms\"\nattempts = 2\n\
         [operations]\n{1:?} = {0:?}\n[namespaces.{2:?}]\ndefault = {0:?}\n",
        injected("policy"),
        operation,
        namespace
    );
    daemon.post("/v1/policies", json!({ "file": file })).await;
    let steps = json!([
        { "name": step, "operation": operation, "queue": queue, "http": http("/echo/409") },
        { "name": "after", "operation": injected("after"), "after": [step], "payload": SCRIPT },
    ]);
    let task = daemon.submit(json!({ "namespace": namespace, "dedup": SCRIPT, "steps": steps })).await;
    let given_up =
        json!({ "namespace": namespace, "operation": operation, "queue": queue, "http": http("/echo/400") });
    let given_up = daemon.submit(given_up).await;
    daemon.settle(std::slice::from_ref(&task), "conflicted").await;
    daemon.settle(&[given_up], "failed").await;

    let pulled = injected("pulled");
    let payload = json!({ injected("payload"): [SCRIPT] });
    let pulled_task = daemon.submit(json!({ "operation": pulled, "payload": payload })).await;
    let claim = json!({ "worker": injected("worker"), "operations": [pulled], "wait": "20s", "lease": "1m" });
    let claimed = daemon.post("/v1/workers/claim", claim).await;
    let (of, token) = (&claimed["items"][0]["step"], &claimed["items"][0]["token"]);
    let report = json!({ "step": of, "token": token, "class": "permanent", "message": injected("report") });
    daemon.post("/v1/workers/fail", report).await;
    daemon.settle(std::slice::from_ref(&pulled_task), "failed").await;

    let data: Value = json!({ "host": SCRIPT, SCRIPT: SCRIPT });
    let signal = json!({ "fields": ["host", SCRIPT], "data": data, "task": { "operation": injected("signal"), "payload": SCRIPT } });
    daemon.post("/v1/signals", signal).await;
    daemon
        .post(
            "/v1/locks/acquire",
            json!({ "key": injected("lock"), "name": injected("owner"), "lease": "10m" }),
        )
        .await;
    let goal = json!({ "goal": format!("=> +planted({:?})", injected("goal")) });
    let put = json!({ "commands": [{ "put": injected("key"), "value": injected("value") }] });
    let failed = json!({ "commands": [{ "compare_and_set": injected("cause"), "expected": SCRIPT }] });
    for transaction in [goal, put, failed] {
        daemon.post("/v1/ledger/transactions", transaction).await;
    }
    let key = holdoff_net::SecretKey::from_secret(&[7; 32]).public().to_string();
    let name: String = injected("member").chars().take(60).collect();
    let member = json!({ "key": key, "address": "<b>.example:1", "name": name, "votes": false });
    daemon.post("/v1/ledger/members", member).await;
    daemon.token(&["--name", &injected("token"), "--scope", "read"]);
    // The content of the audit log: a filter, a key, and a request id.
    let pause = json!({ "operation": operation, "namespace": namespace });
    let id = SCRIPT.replace(' ', "/");
    daemon.post_as(&id, "/v1/operations/pause", pause).await;
    daemon.post("/v1/steps/retry", json!({ "filter": { "text": injected("filter") } })).await;
    (task, pulled_task)
}

async fn assert_not_injected(visitor: &Visitor, page: &str) {
    let found = visitor.script(INJECTED, vec![]).await;
    assert_eq!(found, json!([false, []]), "{page}");
    let forbidden = visitor.script("return window.forbidden", vec![]).await;
    assert_eq!(forbidden, json!([]), "{page}: forbidden by the page's policy");
}
