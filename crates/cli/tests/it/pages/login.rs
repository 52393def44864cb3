//! Logins, sessions, API tokens and requests from other sites.

use serde_json::{Value, json};

use crate::pages::daemon::{Daemon, TOKENS, Target, page};
use crate::pages::until;
use crate::pages::visitor::Visitor;

const SEND: &str = "const done = arguments[arguments.length - 1]; \
    fetch(arguments[0], { method: arguments[1], headers: { 'content-type': 'application/x-www-form-urlencoded' }, \
    body: arguments[2] || undefined }).then((answer) => done(answer.status), (error) => done(String(error)));";

/// Sends a form from the current page, as a script there would. Returns the status of the response.
async fn forge(visitor: &Visitor, path: &str, form: &str) -> Value {
    visitor.script_to_end(SEND, vec![path.into(), "POST".into(), form.into()]).await
}

/// Returns the status of a request with only the cookie, from outside the browser.
async fn opens(daemon: &Daemon, cookie: &str, path: &str) -> u16 {
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let request =
        client.get(format!("{}{path}", daemon.url)).header("cookie", format!("holdoff_session={cookie}"));
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_login_leads_to_the_requested_page() {
    let daemon = Daemon::start_with(TOKENS);
    let token = daemon.token(&["--name", "ada", "--scope", "admin"]);
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/steps?state=failed&text=a%26b").await;
    let place = visitor.place().await;
    assert!(place.starts_with("/login?next=%2Fsteps"), "{place}");
    visitor.assert_silent("/login").await;

    visitor.log_in("holdoff_0123456789abcdef_wrong").await;
    visitor.sees(".wrong", "Invalid API token").await;
    assert_eq!(visitor.cookie().await, None);
    assert_eq!(visitor.value("#token").await, "", "the form does not show the rejected token again");
    visitor.assert_refused(401).await;
    visitor.log_in(&token).await;
    visitor.sees("h1", "Steps").await;
    assert_eq!(visitor.place().await, "/steps?state=failed&text=a%26b");
    visitor.sees(".name", "ada").await;
    let (session, path, is_hidden, same_site) = visitor.cookie().await.unwrap();
    assert_eq!((path.as_str(), is_hidden, same_site.as_str()), ("/", true, "Lax"));
    assert!(!session.contains(token.rsplit('_').next().unwrap()), "a session is not the token");
    assert_eq!(
        visitor.script("return document.cookie", vec![]).await,
        "",
        "scripts cannot read the session cookie"
    );
    visitor.sees("#live-word", "live").await;
    visitor.assert_silent("/steps").await;
    assert_eq!(opens(&daemon, &session, "/steps").await, 200);
    assert_eq!(opens(&daemon, &session, "/v1/steps").await, 401, "the API accepts no session cookie");

    visitor.click(".who form button").await;
    visitor.sees("h1", "Log in").await;
    assert_eq!(visitor.cookie().await, None);
    until("the old session cookie is rejected", async || opens(&daemon, &session, "/steps").await == 303)
        .await;
    visitor.open("/").await;
    assert_eq!(visitor.place().await, "/login");
    visitor.log_in(&token).await;
    visitor.sees("h1", "Overview").await;

    // The `next` parameter of the login never leads to another host.
    visitor.open("/login?next=//example.com/").await;
    visitor.log_in(&token).await;
    visitor.sees("h1", "Overview").await;
    visitor.leave().await;
}

#[tokio::test]
async fn a_read_token_cannot_act() {
    let (daemon, target) = (Daemon::start_with(TOKENS), Target::start().await);
    let token = daemon.token(&["--name", "guest", "--scope", "read"]);
    let failed = daemon.call("mail.send", "mail", &target.at("/answer/400")).await;
    let http = json!({ "url": target.at("/revision"), "body": { "revision": 1 } });
    let conflicted = daemon.submit(json!({ "operation": "document.store", "http": http })).await;
    daemon.post("/v1/locks/acquire", json!({ "key": "deploy", "lease": "10m", "name": "ci" })).await;
    daemon.settle(std::slice::from_ref(&failed), "failed").await;
    daemon.settle(std::slice::from_ref(&conflicted), "conflicted").await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/login").await;
    visitor.log_in(&token).await;
    visitor.sees(".name", "read-only").await;
    let places = visitor.texts("nav a").await;
    assert!(!places.contains(&"Audit log".to_owned()), "{places:?}");

    let acts = "main form[method=post], [id^=act-], #resolve, #publish, main .danger";
    let [step, conflict] = [&failed, &conflicted].map(|task| format!("/steps/{task}/0"));
    let task = format!("/tasks/{failed}");
    let what_if = "/policies/quick?set.attempts=5";
    for page in [
        "/",
        "/failed",
        "/conflicts",
        "/queues",
        "/locks",
        "/councils",
        "/ledger",
        &step,
        &conflict,
        &task,
        what_if,
        "/policies",
    ] {
        visitor.open(page).await;
        assert_eq!(visitor.count(acts).await, 0, "{page}: a read-only visitor sees controls");
        visitor.assert_silent(page).await;
    }
    visitor.open("/failed").await;
    for (path, form) in [
        ("/steps/act", "state=failed&action=retry".to_owned()),
        ("/steps/act", format!("step={failed}/0&action=discard")),
        (&format!("/tasks/{failed}/cancel"), String::new()),
        (&format!("/conflicts/{conflicted}/0"), "seen=x".to_owned()),
        ("/queues/pause", "operation=mail.send&namespace=default&do=pause".to_owned()),
        ("/locks/release", "namespace=default&key=deploy".to_owned()),
        ("/policies/quick", "set.attempts=9".to_owned()),
        ("/settings/tokens", "name=mine&scope=admin".to_owned()),
        ("/settings/tokens/revoke", "id=0123456789abcdef".to_owned()),
    ] {
        assert_eq!(forge(&visitor, path, &form).await, 403, "{path}");
    }
    for page in ["/settings", "/audit", "/steps/act?state=failed&action=retry"] {
        visitor.open(page).await;
        visitor.sees(".faint", "Status 403").await;
    }
    assert_eq!(daemon.state(&failed).await, "failed");
    assert_eq!(daemon.state(&conflicted).await, "conflicted");
    assert!(!daemon.get("/v1/locks/show?key=deploy").await["holder"].is_null());
    visitor.leave().await;
}

#[tokio::test]
async fn a_namespace_token_sees_only_its_namespace() {
    let (daemon, target) = (Daemon::start_with(TOKENS), Target::start().await);
    let token = daemon.token(&["--name", "eu", "--scope", "admin", "--namespace", "eu"]);
    let mut tasks = Vec::new();
    for (namespace, operation) in [("eu", "seen.here"), ("us", "hidden.there")] {
        let http = json!({ "url": target.at("/answer/400") });
        tasks.push(
            daemon.submit(json!({ "namespace": namespace, "operation": operation, "http": http })).await,
        );
        let lock = json!({ "namespace": namespace, "key": operation, "lease": "10m", "name": "ci" });
        daemon.post("/v1/locks/acquire", lock).await;
    }
    daemon.settle(&tasks, "failed").await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/login").await;
    visitor.log_in(&token).await;
    visitor.sees(".name .tag", "eu").await;
    for page in ["/", "/tasks", "/steps", "/failed", "/queues", "/locks"] {
        visitor.open(page).await;
        visitor.sees("main", "seen.here").await;
        let source = visitor.browser.client.source().await.unwrap();
        assert!(!source.contains("hidden.there"), "{page}");
        visitor.assert_silent(page).await;
    }
    for page in [format!("/tasks/{}", tasks[1]), format!("/steps/{}/0", tasks[1])] {
        visitor.open(&page).await;
        visitor.sees(".faint", "Status 404").await;
    }
    for page in ["/steps?namespace=us", "/policies", "/nodes", "/settings"] {
        visitor.open(page).await;
        let source = visitor.browser.client.source().await.unwrap();
        assert!(!source.contains("hidden.there"), "{page}");
    }
    visitor.open("/failed").await;
    assert_eq!(forge(&visitor, "/locks/release", "namespace=us&key=hidden.there").await, 403);
    visitor.click("#act-retry").await;
    visitor.sees("h1", "Retry 1 step?").await;
    visitor.click("#confirm").await;
    visitor.sees(".notice", "1 step: ready for another attempt.").await;
    until("the step of the visitor's own namespace was retried", async || {
        let task = daemon.get(&format!("/v1/tasks/{}", tasks[0])).await;
        task["attempts"].as_array().unwrap().len() == 2
    })
    .await;
    assert_eq!(daemon.get(&format!("/v1/tasks/{}", tasks[1])).await["attempts"].as_array().unwrap().len(), 1);
    visitor.leave().await;
}

#[tokio::test]
async fn revoking_an_api_token_ends_its_sessions() {
    let daemon = Daemon::start_with(TOKENS);
    let [mine, other] = ["ada", "bob"].map(|name| daemon.token(&["--name", name, "--scope", "admin"]));
    let [visitor, victim] = [Visitor::to(&daemon.url).await, Visitor::to(&daemon.url).await];
    visitor.open("/login?next=/settings").await;
    visitor.log_in(&mine).await;
    victim.open("/login").await;
    victim.log_in(&other).await;
    victim.sees("h1", "Overview").await;
    let (session, ..) = victim.cookie().await.unwrap();
    victim.open("/failed").await;
    victim.sees("#live-word", "live").await;
    visitor.click_and_agree("button[aria-label='Revoke bob']").await;
    visitor.sees(".notice", "its sessions have ended").await;
    until("the session of the revoked token has ended", async || opens(&daemon, &session, "/").await == 303)
        .await;
    // The open page notices the revocation and shows the login.
    until("the open page shows the login", async || victim.place().await == "/login?next=%2Ffailed").await;
    victim.sees("h1", "Log in").await;
    visitor.open("/").await;
    visitor.sees("h1", "Overview").await;
    visitor.leave().await;
    victim.leave().await;
}

/// Returns a page that submits its form as soon as it loads.
fn trap(action: &str) -> String {
    let field = |name: &str, value: &str| format!("<input name=\"{name}\" value=\"{value}\">");
    let fields =
        [field("namespace", "default"), field("operation", "mail.send"), field("do", "pause")].concat();
    format!(
        "<form method=post action=\"{action}/queues/pause\">{fields}</form><script>document.forms[0].submit()</script>"
    )
}

#[tokio::test]
async fn a_form_from_another_site_is_rejected() {
    let target = Target::start().await;
    for (file, needs_token) in [("", false), (TOKENS, true)] {
        let daemon = Daemon::start_with(file);
        let task = daemon.call("mail.send", "mail", &target.at("/answer/400")).await;
        daemon.settle(&[task], "failed").await;
        let visitor = Visitor::to(&daemon.url).await;
        if needs_token {
            visitor.open("/login").await;
            visitor.log_in(&daemon.token(&["--name", "ada", "--scope", "admin"])).await;
            visitor.sees("h1", "Overview").await;
        }
        // Another port is the same site and gets the cookie; another host name is not.
        let same_site = page(trap(&daemon.url)).await;
        let cross_site = same_site.replace("127.0.0.1", "localhost");
        for from in [same_site, cross_site] {
            visitor.browser.client.goto(&from).await.unwrap();
            until("the form is sent", async || visitor.place().await == "/queues/pause").await;
            until("the daemon has answered the form", async || visitor.text("body").await.contains("not"))
                .await;
            let answer = visitor.text("body").await;
            assert!(answer.contains("the form was not sent from a page of this daemon"), "{from}: {answer}");
            let queues = daemon.get("/v1/queues").await;
            assert!(queues.to_string().contains("\"paused\":false"), "{queues}");
        }
        // The pages also refuse to be framed, which prevents clickjacking.
        let frame = page(format!("<iframe src=\"{}/queues\"></iframe>", daemon.url)).await;
        visitor.browser.client.goto(&frame).await.unwrap();
        visitor.browser.client.enter_frame(0).await.unwrap();
        let seen = visitor.text("body").await;
        assert!(!seen.contains("mail.send"), "{seen}");
        // The same form on the daemon's own page works.
        visitor.open("/queues").await;
        visitor.click("#live tbody button").await;
        until("the queue is paused", async || visitor.place().await.contains("done=pause")).await;
        daemon.post("/v1/operations/resume", json!({ "operation": "mail.send" })).await;
        visitor.leave().await;
    }
}

#[tokio::test]
async fn an_api_token_is_shown_once_and_revoked() {
    let daemon = Daemon::start_with(TOKENS);
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/login?next=/settings").await;
    visitor.log_in(&daemon.token(&["--name", "ada", "--scope", "admin"])).await;
    visitor.sees("h1", "Settings").await;
    visitor.write("input[name=name]", "nightly").await;
    visitor.write("input[name=expires]", "for ever").await;
    visitor.click("form.inline button").await;
    visitor.sees(".wrong", "expected a duration such as \"90d\"").await;
    visitor.assert_refused(422).await;
    assert_eq!(visitor.value("input[name=name]").await, "nightly", "the form keeps the entered name");
    visitor.write("input[name=expires]", "90d").await;
    visitor.click("form.inline button").await;
    visitor.sees(".made", "it is not shown again").await;
    let token = visitor.text("#token").await;
    assert!(token.starts_with("holdoff_"), "{token}");
    assert!(visitor.texts("tbody th").await.iter().any(|name| name.starts_with("nightly")));

    visitor.open("/settings").await;
    let source = visitor.browser.client.source().await.unwrap();
    assert!(!source.contains(&token), "the new token is shown only once");
    let row = "button[aria-label='Revoke nightly']";
    visitor.click_and_agree(row).await;
    visitor.sees(".notice", "Revoked").await;
    assert_eq!(visitor.count(row).await, 0);
    let rows = visitor.texts("tbody tr").await;
    assert!(rows.iter().any(|row| row.contains("nightly") && row.contains("revoked")), "{rows:?}");
    visitor.open("/audit").await;
    assert_eq!(visitor.texts("tbody td code:not(.cut)").await[..2], ["token.revoke", "token.create"]);
    visitor.assert_silent("/audit").await;
    visitor.leave().await;
}
