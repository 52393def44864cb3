//! If API tokens are required, a token opens a session, and the session has no more rights than the token.

use serde_json::{Value, json};

use crate::pages::daemon::{Daemon, TOKENS};
use crate::pages::target::Target;
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
async fn a_token_opens_the_page_that_was_asked_for() {
    let daemon = Daemon::start_with(TOKENS);
    let token = daemon.token(&["--name", "ada", "--scope", "admin"]);
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/steps?state=failed&text=a%26b").await;
    let place = visitor.place().await;
    assert!(place.starts_with("/login?next=%2Fsteps"), "{place}");
    visitor.assert_silent("/login").await;

    visitor.log_in("holdoff_0123456789abcdef_wrong").await;
    visitor.sees(".wrong", "This token opens nothing here").await;
    assert_eq!(visitor.cookie().await, None);
    assert_eq!(visitor.value("#token").await, "", "what was typed is not shown again");
    visitor.assert_refused(401).await;
    visitor.log_in(&token).await;
    visitor.sees("h1", "Steps").await;
    assert_eq!(visitor.place().await, "/steps?state=failed&text=a%26b");
    visitor.sees(".name", "ada").await;
    let (session, path, is_hidden, same_site) = visitor.cookie().await.unwrap();
    assert_eq!((path.as_str(), is_hidden, same_site.as_str()), ("/", true, "Lax"));
    assert!(!session.contains(token.rsplit('_').next().unwrap()), "a session is not the token");
    assert_eq!(visitor.script("return document.cookie", vec![]).await, "", "no script reads it");
    visitor.sees("#live-word", "live").await;
    visitor.assert_silent("/steps").await;
    assert_eq!(opens(&daemon, &session, "/steps").await, 200);
    assert_eq!(opens(&daemon, &session, "/v1/steps").await, 401, "the API takes no cookie");

    visitor.click(".who form button").await;
    visitor.sees("h1", "Log in").await;
    assert_eq!(visitor.cookie().await, None);
    until("the old cookie opens nothing", async || opens(&daemon, &session, "/steps").await == 303).await;
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
async fn who_may_only_look_cannot_act() {
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
        assert_eq!(visitor.count(acts).await, 0, "{page}: something to act with");
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
async fn a_token_of_one_namespace_sees_only_it() {
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
    visitor.sees(".said", "1 step: ready to be tried again.").await;
    until("its own was tried again", async || {
        let tries = daemon.get(&format!("/v1/tasks/{}", tasks[0])).await;
        tries["attempts"].as_array().unwrap().len() == 2
    })
    .await;
    assert_eq!(daemon.get(&format!("/v1/tasks/{}", tasks[1])).await["attempts"].as_array().unwrap().len(), 1);
    visitor.leave().await;
}

#[tokio::test]
async fn revoking_a_token_ends_its_sessions() {
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
    visitor.sees(".said", "its sessions are over").await;
    until("its session is over", async || opens(&daemon, &session, "/").await == 303).await;
    // The open page notices the revocation and shows the login.
    until("it is asked to log in", async || victim.place().await == "/login?next=%2Ffailed").await;
    victim.sees("h1", "Log in").await;
    visitor.open("/").await;
    visitor.sees("h1", "Overview").await;
    visitor.leave().await;
    victim.leave().await;
}
