//! The pages over HTTP: who may open which, their headers, and refusals.

use holdoff_server::{NewToken, Options, TokenScope};
use reqwest::header::{COOKIE, LOCATION, ORIGIN, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use serde_json::json;

use crate::support::{Daemon, Stores, Target, call, on_both_stores, options};

/// A client that does not follow redirects.
fn client() -> Client {
    Client::builder().redirect(Policy::none()).build().unwrap()
}

fn closed(stores: &Stores) -> Options {
    let mut options = options(stores.place());
    options.server.require_tokens = true;
    options
}

fn location(answer: &Response) -> &str {
    assert_eq!(answer.status(), StatusCode::SEE_OTHER);
    answer.headers()[LOCATION].to_str().unwrap()
}

fn encoded(form: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish()
}

/// Sends a form from a page of this daemon.
async fn send(daemon: &Daemon, path: &str, cookie: &str, form: &[(&str, &str)]) -> Response {
    let sent = client().post(format!("{}{path}", daemon.url)).body(encoded(form));
    sent.header("sec-fetch-site", "same-origin").header(COOKIE, cookie).send().await.unwrap()
}

async fn look(daemon: &Daemon, path: &str, cookie: &str) -> Response {
    client().get(format!("{}{path}", daemon.url)).header(COOKIE, cookie).send().await.unwrap()
}

/// Logs in and returns the cookie.
async fn log_in(daemon: &Daemon, token: &str) -> String {
    let answer = send(daemon, "/login", "", &[("token", token)]).await;
    assert_eq!(location(&answer), "/");
    let cookie = answer.headers()[SET_COOKIE].to_str().unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

async fn every_page_renders(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let target = Target::start(&[400, 409]).await;
    let failed = daemon.submit(&call("mail.send", &target.url)).await;
    daemon.until_over(&failed).await;
    let conflict = daemon.submit(&call("crm.sync", &target.url)).await;
    daemon.until_over(&conflict).await;
    let graph = json!({ "steps": [
        { "name": "pack", "operation": "pack" },
        { "name": "ship", "operation": "ship", "after": ["pack"], "expires_in": "1h" },
    ] });
    let graph = daemon.submit(&graph).await;
    let lock = json!({ "key": "deploy", "name": "ci-7", "lease": "1m" });
    assert_eq!(daemon.send("/v1/locks/acquire", &lock).await.status(), 200);
    let signal = json!({ "fingerprint": "disk db-1", "task": { "operation": "alert.page" } });
    let response = daemon.send("/v1/signals", &signal).await;
    assert!(response.status().is_success(), "{}", response.text().await.unwrap());
    let step = format!("/steps/{failed}/0");
    let pages = [
        ("/", "Failing operations"),
        ("/?window=24h", "24 hours"),
        ("/tasks", "mail.send"),
        ("/tasks?state=failed", "crm.sync"),
        (&*format!("/tasks/{graph}"), "class=\"edge\""),
        (&*format!("/steps/{graph}/1"), "start by"),
        ("/steps", "mail.send"),
        ("/steps?state=failed&operation=mail.*&min_failures=1", "1 step"),
        ("/failed", "HTTP 400"),
        ("/conflicts", "HTTP 409"),
        (&*step, "Failed for good after 1 failure: the failure is permanent"),
        (&*format!("{step}?payload=shown"), "&#34;n&#34;: 1.5"),
        (&*format!("/conflicts/{conflict}/0"), "Resolve and retry"),
        ("/steps/act?state=failed&action=retry", "Retry 1 step?"),
        ("/queues", "crm.sync"),
        ("/signals", "alert.page"),
        ("/locks", "ci-7"),
        ("/councils", "No acceptor runs in this daemon"),
        ("/ledger", "This daemon has no ledger"),
        ("/policies", "from the file"),
        ("/policies/standard", "<h2>Delays</h2>"),
        ("/policies/standard?set.attempts=2&scenario=storm&clients=20", "Simulation: "),
        ("/policies/standard?set.base=soon", "soon"),
        ("/nodes", "Nodes"),
        ("/audit", "Audit log"),
        ("/settings", "API tokens"),
    ];
    let assets: usize = {
        let mut weight = 0;
        for name in
            ["style.css", "uplot.min.css", "htmx.min.js", "uplot.min.js", "live.js", "plot.js", "icon.svg"]
        {
            weight += daemon.get(&format!("/assets/{name}")).await.bytes().await.unwrap().len();
        }
        weight
    };
    for (path, shown) in pages {
        let answer = daemon.get(path).await;
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!(answer.headers()["content-type"], "text/html; charset=utf-8", "{path}");
        let policy = answer.headers()["content-security-policy"].to_str().unwrap().to_owned();
        assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{policy}");
        let page = answer.text().await.unwrap();
        assert!(page.contains(shown), "{path} does not show {shown}:\n{page}");
        assert!(!page.contains(" style=") && !page.contains("<style"), "{path} has inline styles");
        assert!(
            page.len() + assets < 200_000,
            "{path} has {} bytes, and its assets have {assets}",
            page.len()
        );
    }
    assert!(!daemon.get(&step).await.text().await.unwrap().contains("&#34;n&#34;"), "payloads are hidden");
}

async fn page_actions_are_performed_and_audited(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let target = Target::start(&[400, 400, 200]).await;
    let mut failed = Vec::new();
    for operation in ["one", "two"] {
        let id = daemon.submit(&call(operation, &target.url)).await;
        daemon.until_over(&id).await;
        failed.push(id);
    }
    let form = [("action", "retry"), ("operation", "one"), ("state", "failed")];
    let done = send(&daemon, "/steps/act", "", &form).await;
    assert_eq!(location(&done), "/steps?operation=one&state=failed&done=retry&count=1");
    let page_text =
        daemon.get("/steps?operation=one&state=failed&done=retry&count=1").await.text().await.unwrap();
    assert!(page_text.contains("1 step: ready for another attempt."), "{page_text}");
    daemon.until(&failed[0], |task| task["state"] == "succeeded").await;
    assert_eq!(daemon.task(&failed[1]).await["state"], "failed", "a step outside the filter is not retried");

    let all = send(&daemon, "/steps/act", "", &[("action", "retry")]).await;
    assert_eq!(all.status(), 400);
    assert!(all.text().await.unwrap().contains("all steps would match"));

    let paused = send(
        &daemon,
        "/queues/pause",
        "",
        &[("namespace", "default"), ("operation", "one"), ("do", "pause")],
    )
    .await;
    assert_eq!(location(&paused), "/queues?done=pause&what=one");
    let audit = daemon.get("/audit").await.text().await.unwrap();
    for event in ["steps.retry", "operation.pause"] {
        assert!(audit.contains(event), "{event}: {audit}");
    }
}

async fn a_session_ends_with_its_token(stores: Stores) {
    let daemon = Daemon::start_with(closed(&stores)).await;
    let token_store = daemon.server.token_store();
    let issued = token_store.issue(&NewToken::new("ops", TokenScope::Admin)).await.unwrap();

    let stranger = look(&daemon, "/steps?state=failed", "").await;
    assert_eq!(location(&stranger), "/login?next=%2Fsteps%3Fstate%3Dfailed");
    let wrong = send(&daemon, "/login", "", &[("token", "holdoff_no")]).await;
    assert_eq!((wrong.status(), wrong.headers().get(SET_COOKIE)), (StatusCode::UNAUTHORIZED, None));
    assert!(wrong.text().await.unwrap().contains("Invalid API token"));

    let form = [("token", issued.token.as_str()), ("next", "/steps?state=failed")];
    let welcome = send(&daemon, "/login", "", &form).await;
    assert_eq!(location(&welcome), "/steps?state=failed");
    let cookie = welcome.headers()[SET_COOKIE].to_str().unwrap().to_owned();
    assert!(cookie.contains("; HttpOnly; SameSite=Lax") && cookie.contains("Max-Age=43200"), "{cookie}");
    assert!(!cookie.contains(&issued.token), "the token itself is not kept by the browser");
    let session = cookie.split(';').next().unwrap();
    assert_eq!(look(&daemon, "/steps", session).await.status(), 200);
    assert_eq!(look(&daemon, "/v1/steps", session).await.status(), 401, "the API accepts no session cookie");
    let secret = session.split_once('=').unwrap().1;
    let bearer = client().get(format!("{}/v1/steps", daemon.url)).bearer_auth(secret).send().await.unwrap();
    assert_eq!(bearer.status(), 401, "a session secret is no API token");
    let again = send(&daemon, "/login", "", &[("token", secret)]).await;
    assert_eq!(again.status(), 401, "a session secret cannot log in");
    assert_eq!(token_store.tokens().await.unwrap().len(), 1, "a session is not listed as a token");

    let other = log_in(&daemon, &issued.token).await;
    assert_eq!(location(&send(&daemon, "/logout", session, &[]).await), "/login");
    until_refused(&daemon, session).await;
    assert_eq!(look(&daemon, "/steps", &other).await.status(), 200, "the other session stays valid");
    assert!(token_store.revoke(&issued.record.id).await.unwrap());
    until_refused(&daemon, &other).await;
    let late = send(&daemon, "/queues/pause", &other, &[("operation", "a"), ("do", "pause")]).await;
    assert_eq!(late.status(), StatusCode::UNAUTHORIZED);
    assert!(late.headers()[SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
    assert!(late.text().await.unwrap().contains("nothing was done"));
}

/// If the token is revoked during the login, the session is not valid either.
async fn a_session_of_a_revoked_token_is_rejected(stores: Stores) {
    let daemon = Daemon::start_with(closed(&stores)).await;
    let token_store = daemon.server.token_store();
    let issued = token_store.issue(&NewToken::new("ops", TokenScope::Admin)).await.unwrap();
    // The daemon caches the token for a moment longer.
    assert_eq!(look(&daemon, "/login", "").await.status(), 200);
    let first = log_in(&daemon, &issued.token).await;
    assert!(token_store.revoke(&issued.record.id).await.unwrap());
    let late = send(&daemon, "/login", "", &[("token", &issued.token)]).await;
    if let Some(cookie) = late.headers().get(SET_COOKIE) {
        until_refused(&daemon, cookie.to_str().unwrap().split(';').next().unwrap()).await;
    }
    until_refused(&daemon, &first).await;
}

/// Another authentication scheme, such as a proxy's own, does not permit forms of other origins.
async fn another_authentication_scheme_is_no_token(stores: Stores) {
    let daemon = Daemon::start_with(closed(&stores)).await;
    let token =
        daemon.server.token_store().issue(&NewToken::new("ops", TokenScope::Admin)).await.unwrap().token;
    let session = log_in(&daemon, &token).await;
    let form = encoded(&[("namespace", "default"), ("operation", "x"), ("do", "pause")]);
    let sent = client().post(format!("{}/queues/pause", daemon.url)).basic_auth("a", Some("b")).body(form);
    let refused = sent.header(COOKIE, &session).header("sec-fetch-site", "same-site").send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let page = client().get(format!("{}/steps", daemon.url)).basic_auth("a", Some("b")).send().await.unwrap();
    assert_eq!(location(&page), "/login?next=%2Fsteps");
}

async fn until_refused(daemon: &Daemon, session: &str) {
    let refused = async {
        while look(daemon, "/steps", session).await.status() != StatusCode::SEE_OTHER {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), refused).await.unwrap();
}

async fn a_read_only_session_changes_nothing(stores: Stores) {
    let daemon = Daemon::start_with(closed(&stores)).await;
    let token_store = daemon.server.token_store();
    let token = |scope| NewToken::new("operator", scope);
    let reader = token_store.issue(&token(TokenScope::Read)).await.unwrap().token;
    let billing = token_store.issue(&token(TokenScope::Admin).namespace("billing")).await.unwrap().token;
    let admin = token_store.issue(&token(TokenScope::Admin)).await.unwrap().token;
    for (namespace, operation) in [("default", "theirs"), ("billing", "ours")] {
        let task = json!({ "operation": operation, "namespace": namespace, "delay": "1h" });
        let sent = daemon.client.post(format!("{}/v1/tasks", daemon.url)).bearer_auth(&admin).json(&task);
        assert_eq!(sent.send().await.unwrap().status(), 201);
    }
    let session = log_in(&daemon, &reader).await;
    let page = look(&daemon, "/queues", &session).await.text().await.unwrap();
    assert!(page.contains("read-only") && !page.contains("Pause theirs"), "{page}");
    let form = [("namespace", "default"), ("operation", "theirs"), ("do", "pause")];
    let refused = send(&daemon, "/queues/pause", &session, &form).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert!(refused.text().await.unwrap().contains("this request needs an API token of scope admin"));
    for place in ["/audit", "/settings", "/steps/act?state=failed&action=retry"] {
        assert_eq!(look(&daemon, place, &session).await.status(), StatusCode::FORBIDDEN, "{place}");
    }

    let session = log_in(&daemon, &billing).await;
    for place in ["/", "/tasks", "/steps", "/queues"] {
        let page = look(&daemon, place, &session).await.text().await.unwrap();
        assert!(!page.contains("theirs"), "{place}: {page}");
    }
    assert!(look(&daemon, "/steps", &session).await.text().await.unwrap().contains("ours"));
    // The token's namespace is not a filter that the administrator has chosen.
    let all = send(&daemon, "/steps/act", &session, &[("action", "cancel")]).await;
    assert_eq!(all.status(), StatusCode::BAD_REQUEST);
    assert!(all.text().await.unwrap().contains("all steps would match"));
    let paused = send(&daemon, "/queues/pause", &session, &form).await;
    assert_eq!(paused.status(), StatusCode::FORBIDDEN);
    let paused =
        daemon.client.get(format!("{}/v1/queues", daemon.url)).bearer_auth(&admin).send().await.unwrap();
    assert!(!paused.text().await.unwrap().contains("\"paused\":true"));
}

/// Neither a cookie nor a connection from loopback suffices: the form must come from a page of this daemon.
async fn cross_origin_forms_are_rejected(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let send = async |headers: &[(&str, &str)]| {
        let form = [("namespace", "default"), ("operation", "x"), ("do", "pause")];
        let mut sent = client().post(format!("{}/queues/pause", daemon.url)).body(encoded(&form));
        for (name, value) in headers {
            sent = sent.header(*name, *value);
        }
        sent.send().await.unwrap().status()
    };
    let own = daemon.url.as_str();
    assert_eq!(send(&[("sec-fetch-site", "cross-site"), ("origin", own)]).await, StatusCode::FORBIDDEN);
    assert_eq!(send(&[("sec-fetch-site", "same-site"), ("origin", own)]).await, StatusCode::FORBIDDEN);
    assert_eq!(send(&[(ORIGIN.as_str(), "http://127.0.0.1:1")]).await, StatusCode::FORBIDDEN);
    assert_eq!(send(&[(ORIGIN.as_str(), "https://evil.example")]).await, StatusCode::MISDIRECTED_REQUEST);
    assert_eq!(send(&[]).await, StatusCode::FORBIDDEN);
    assert_eq!(send(&[(ORIGIN.as_str(), own)]).await, StatusCode::SEE_OTHER);
}

async fn long_lists_have_pages(stores: Stores) {
    let daemon = Daemon::start(stores.place()).await;
    let many = vec![json!({ "operation": "later", "delay": "1h" }); 51];
    assert_eq!(daemon.post(&json!(many)).await.status(), 201);
    for place in ["/steps", "/tasks"] {
        let page = daemon.get(place).await.text().await.unwrap();
        assert!(!page.contains(">Newest<"), "{page}");
        let (before, _) = page.split_once("\">Older<").unwrap();
        let next = before.rsplit('"').next().unwrap().to_owned();
        let page = daemon.get(&next).await.text().await.unwrap();
        assert_eq!(page.matches("<th scope=\"row\">").count(), 1, "{page}");
        assert!(page.contains(&format!("href=\"{place}\">Newest<")) && !page.contains(">Older<"), "{page}");
    }
}

async fn pages_work_under_a_prefix(stores: Stores) {
    let mut options = closed(&stores);
    options.server.prefix = "/ops/holdoff".into();
    let daemon = Daemon::start_with(options).await;
    let token =
        daemon.server.token_store().issue(&NewToken::new("ops", TokenScope::Admin)).await.unwrap().token;
    for under in ["", "/ops/holdoff"] {
        let stranger = look(&daemon, &format!("{under}/steps"), "").await;
        assert_eq!(location(&stranger), "/ops/holdoff/login?next=%2Fsteps");
        let welcome = send(&daemon, &format!("{under}/login"), "", &[("token", &token)]).await;
        assert_eq!(location(&welcome), "/ops/holdoff/");
        let cookie = welcome.headers()[SET_COOKIE].to_str().unwrap();
        assert!(cookie.contains("Path=/ops/holdoff;"), "{cookie}");
        let session = cookie.split(';').next().unwrap();
        let page = look(&daemon, &format!("{under}/steps"), session).await.text().await.unwrap();
        assert!(page.contains("href=\"/ops/holdoff/assets/style.css"), "{page}");
        assert!(!page.contains("href=\"/steps") && !page.contains("action=\"/steps"), "{page}");
        assert_eq!(look(&daemon, &format!("{under}/assets/live.js"), "").await.status(), 200);
    }
}

on_both_stores!(
    every_page_renders,
    page_actions_are_performed_and_audited,
    a_session_ends_with_its_token,
    a_session_of_a_revoked_token_is_rejected,
    another_authentication_scheme_is_no_token,
    a_read_only_session_changes_nothing,
    cross_origin_forms_are_rejected,
    long_lists_have_pages,
    pages_work_under_a_prefix,
);
