//! Credentials and their access tokens.

use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use tokio::task::JoinSet;

use super::server::{Server, answer, respond};
use super::*;
use crate::{Credential, Secret};

const SECRET: &str = "very-secret-sauce";

/// Returns a file with the secret, and settings with one credential.
fn with_credential(make: impl FnOnce(Secret) -> Credential) -> (TempDir, HttpSettings) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, format!("{SECRET}\n")).unwrap();
    let mut settings = settings();
    settings.credentials.insert("shop".into(), make(Secret::File(path)));
    settings.credential_hosts.insert("shop".into(), vec!["127.0.0.1".into()]);
    (folder, settings)
}

/// Issues `token-1`, `token-2` and so on, with this lifetime.
async fn token_endpoint(expires_in: &'static str) -> Server {
    let given = AtomicUsize::new(0);
    Server::start(move |_, stream| {
        let number = given.fetch_add(1, Ordering::SeqCst) + 1;
        let body = format!(r#"{{"access_token":"token-{number}","token_type":"bearer"{expires_in}}}"#);
        respond(stream, answer(200, "Content-Type: application/json\r\n", &body))
    })
    .await
}

fn client_credentials(url: String) -> impl FnOnce(Secret) -> Credential {
    move |client_secret| Credential::ClientCredentials {
        token_url: url,
        client_id: "me&you".into(),
        client_secret,
        scope: Some("read write".into()),
    }
}

/// Accepts requests with this token.
async fn protected_api(token: &'static str) -> Server {
    Server::start(move |seen, stream| {
        let open = seen.headers.get("authorization").is_some_and(|sent| sent == &format!("Bearer {token}"));
        respond(stream, if open { answer(200, "", "in") } else { answer(401, "", "who are you?") })
    })
    .await
}

fn generation(fault: &Fault) -> u64 {
    assert_eq!(class(fault), Class::Unauthorized);
    let FaultKind::Failed { credential: Some(generation), .. } = fault.kind else { panic!("{fault:?}") };
    generation
}

#[tokio::test]
async fn one_refresh_serves_all_rejected_requests() {
    let (tokens, api) = (token_endpoint("").await, protected_api("token-2").await);
    let (_folder, settings) = with_credential(client_credentials(tokens.url("/token")));
    let runner = runner(&settings);
    let payload = HttpStep::post(api.url("/")).credential("shop").payload().unwrap();
    let mut callers = JoinSet::new();
    for _ in 0..20 {
        let (runner, payload) = (Arc::clone(&runner), payload.clone());
        callers.spawn(async move {
            let refused = runner.run(&context(1), &payload).await.unwrap_err();
            assert!(!format!("{refused:?} {runner:?}").contains("token-1"), "{refused:?}");
            runner.refresh(&payload, generation(&refused)).await.unwrap();
            runner.run(&context(2), &payload).await.unwrap()
        });
    }
    for output in callers.join_all().await {
        assert_eq!(output.read::<Value>().unwrap()["body"], "in");
    }
    assert_eq!(tokens.calls(), 2, "one token request for the first token and one for the second");
    let seen = tokens.seen().remove(0);
    assert_eq!(seen.body, "grant_type=client_credentials&scope=read+write");
    assert!(seen.headers["authorization"].starts_with("Basic "), "{seen:?}");
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires() {
    let (tokens, api) = (token_endpoint(r#","expires_in":"0.002""#).await, protected_api("token-2").await);
    let (_folder, settings) = with_credential(client_credentials(tokens.url("/")));
    let runner = runner(&settings);
    let payload = HttpStep::post(api.url("/")).credential("shop").payload().unwrap();
    let first = runner.run(&context(1), &payload).await.unwrap_err();
    assert_eq!(generation(&first), 1);
    // The token's lifetime of two milliseconds has ended before the next request.
    tokio::time::sleep(Duration::from_millis(3)).await;
    runner.run(&context(2), &payload).await.unwrap();
}

#[tokio::test]
async fn a_token_that_cannot_be_renewed_is_used_until_it_expires() {
    let calls = AtomicUsize::new(0);
    let tokens = Server::start(move |_, stream| {
        let first = calls.fetch_add(1, Ordering::SeqCst) == 0;
        let body = r#"{"access_token":"token-1","expires_in":1}"#;
        respond(stream, if first { answer(200, "", body) } else { answer(500, "", "") })
    })
    .await;
    let api = protected_api("token-1").await;
    let (_folder, settings) = with_credential(client_credentials(tokens.url("/")));
    let (runner, step) = (runner(&settings), HttpStep::get(api.url("/")).credential("shop"));
    let mut served = 0;
    let failed = loop {
        match run(&runner, &step).await {
            Ok(_) => served += 1,
            Err(failed) => break failed,
        }
    };
    assert!(served > 0);
    assert!(tokens.calls() >= 3, "one failed early renewal and one renewal after the expiry");
    assert_eq!(class(&failed), Class::Transient);
    let reason = format!("credential `shop` could not be refreshed: HTTP 500 from {}", tokens.address);
    assert_eq!(failed.message(), reason);
}

/// An API that expects its key in a header of its own: the key is a credential all the same, and no part of the step.
#[tokio::test]
async fn a_token_is_sent_in_the_header_of_its_credential() {
    let api = Server::start(|seen, stream| {
        let key = seen.headers.get("x-api-key").cloned().unwrap_or_default();
        respond(stream, answer(200, "", &format!("{key} {}", seen.headers.contains_key("authorization"))))
    })
    .await;
    let (_folder, settings) =
        with_credential(|token| Credential::Token { token, header: Some("X-Api-Key".into()) });
    let output = run(&runner(&settings), &HttpStep::get(api.url("/")).credential("shop")).await.unwrap();
    assert_eq!(api.seen()[0].headers["x-api-key"], SECRET);
    assert_eq!(output["body"], "[credential] false", "an echoed key is redacted");
}

#[tokio::test]
async fn a_secret_is_exchanged_for_a_token() {
    let (tokens, api) = (token_endpoint("").await, protected_api("token-1").await);
    let url = tokens.url("/refresh");
    let (_folder, settings) = with_credential(|secret| Credential::Refresh { url, secret });
    run(&runner(&settings), &HttpStep::post(api.url("/")).credential("shop")).await.unwrap();
    let seen = tokens.seen().remove(0);
    assert_eq!(seen.line, "POST /refresh HTTP/1.1");
    assert_eq!(seen.headers["authorization"], format!("Bearer {SECRET}"));
}

#[tokio::test]
async fn a_rejected_token_is_read_from_its_file_again() {
    let api = protected_api("rotated").await;
    let (folder, settings) = with_credential(|token| Credential::Token { token, header: None });
    let runner = runner(&settings);
    let payload = HttpStep::post(api.url("/")).credential("shop").payload().unwrap();
    let refused = runner.run(&context(1), &payload).await.unwrap_err();
    std::fs::write(folder.path().join("secret"), "rotated").unwrap();
    runner.refresh(&payload, generation(&refused)).await.unwrap();
    runner.run(&context(2), &payload).await.unwrap();
}

#[tokio::test]
async fn an_echoed_secret_is_not_stored() {
    let api = Server::start(|seen, stream| {
        let status = if seen.line.contains("bad") { 500 } else { 200 };
        respond(stream, answer(status, "X-Echo: 1\r\n", &format!("{:?}", seen.headers)))
    })
    .await;
    let (_folder, settings) = with_credential(|token| Credential::Token { token, header: None });
    let runner = runner(&settings);
    let output = run(&runner, &HttpStep::get(api.url("/good")).credential("shop")).await.unwrap();
    assert!(!output.to_string().contains(SECRET), "{output}");
    assert!(output.to_string().contains("Bearer [credential]"), "{output}");
    let fault = fault(&runner, &HttpStep::get(api.url("/bad")).credential("shop")).await;
    assert!(!format!("{fault:?} {fault}").contains(SECRET), "{fault:?}");
    assert!(api.seen()[0].headers["authorization"].contains(SECRET), "the request carries the credential");
}

#[tokio::test]
async fn a_credential_is_not_sent_to_a_redirected_host() {
    let target = Server::saying(answer(200, "", "")).await;
    let to = format!("Location: {}\r\n", target.url("/"));
    let server = Server::saying(answer(307, &to, "")).await;
    let (_folder, settings) = with_credential(|token| Credential::Token { token, header: None });
    run(&runner(&settings), &HttpStep::get(server.url("/")).credential("shop")).await.unwrap();
    assert_eq!(target.seen()[0].headers.get("authorization"), None);
}

/// A caller that may submit steps must not be able to have a credential sent to its own server.
#[tokio::test]
async fn a_credential_for_another_host_is_not_sent() {
    let (tokens, api) = (token_endpoint("").await, Server::saying(answer(200, "", "in")).await);
    let (_folder, mut settings) = with_credential(client_credentials(tokens.url("/token")));
    let step = HttpStep::post(api.url("/")).credential("shop");
    let meant = api.address.to_string();
    for hosts in
        [vec![], vec!["api.example.com".to_owned()], vec![format!("127.0.0.1:{}", tokens.address.port())]]
    {
        settings.credential_hosts.insert("shop".into(), hosts);
        let refused = fault(&runner(&settings), &step).await;
        assert_eq!(class(&refused), Class::Permanent);
        let expected = format!("credential `shop` is not permitted for {meant}: list the host under `hosts`");
        assert!(refused.message().starts_with(&expected), "{refused}");
    }
    settings.credential_hosts.clear();
    assert_eq!(
        class(&fault(&runner(&settings), &step).await),
        Class::Permanent,
        "without `hosts`, the credential is permitted for no host"
    );
    assert_eq!((api.calls(), tokens.calls()), (0, 0), "no token was requested");

    settings.credential_hosts.insert("shop".into(), vec![meant]);
    run(&runner(&settings), &step).await.unwrap();
    let rule = crate::NotifyRule {
        url: api.url("/hook"),
        credential: Some("shop".into()),
        ..crate::NotifyRule::default()
    };
    settings.credential_hosts.clear();
    run(&runner(&settings.with_notify_hosts(&[rule])), &step).await.unwrap();
}

#[tokio::test]
async fn a_missing_credential_is_reported_and_nothing_is_sent() {
    let api = Server::saying(answer(200, "", "")).await;
    let mut settings = settings();
    let missing = |secret| Credential::Token { token: secret, header: None };
    settings.credentials.insert("env".into(), missing(Secret::Env("HOLDOFF_TEST_NOT_SET".into())));
    settings.credentials.insert("file".into(), missing(Secret::File("/nowhere/at/all".into())));
    for name in ["env", "file"] {
        settings.credential_hosts.insert(name.into(), vec!["127.0.0.1".into()]);
    }
    let runner = runner(&settings);
    let fault = async |name: &str| fault(&runner, &HttpStep::get(api.url("/")).credential(name)).await;
    let unknown = fault("missing").await;
    assert_eq!(class(&unknown), Class::Permanent);
    assert!(unknown.message().starts_with("credential `missing` is not defined: add"), "{unknown}");
    for (name, reason) in [("env", "HOLDOFF_TEST_NOT_SET"), ("file", "cannot be read: entity not found")] {
        let fault = fault(name).await;
        assert_eq!(class(&fault), Class::Transient);
        assert!(fault.message().contains(reason), "{fault}");
    }
    assert_eq!(api.calls(), 0);
}

#[tokio::test]
async fn a_secret_follows_no_redirect_of_the_token_endpoint() {
    let elsewhere = token_endpoint("").await;
    let tokens = Server::saying(answer(307, &format!("Location: {}\r\n", elsewhere.url("/")), "")).await;
    let (_folder, settings) = with_credential(client_credentials(tokens.url("/")));
    let fault = fault(&runner(&settings), &HttpStep::get("http://127.0.0.1:9/").credential("shop")).await;
    assert_eq!(class(&fault), Class::Transient);
    assert_eq!(elsewhere.calls(), 0);
}

#[test]
fn an_invalid_token_endpoint_is_rejected_at_construction() {
    for url in ["nonsense", "ftp://h/", "http://u:hush@h/"] {
        let (_folder, settings) = with_credential(client_credentials(url.to_owned()));
        let wrong = HttpRunner::new(&settings, ClassMap::new()).unwrap_err().to_string();
        assert!(wrong.contains("`shop`") && !wrong.contains("hush"), "{wrong}");
    }
}
