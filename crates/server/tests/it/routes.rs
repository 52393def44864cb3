//! Compares every route of the router with `docs/security.md`, and every row of that table with a running daemon.

use std::collections::BTreeSet;
use std::time::Duration;

use holdoff_ledger::runtime::{Settings, create};
use holdoff_server::{NewToken, StoreUrl, TokenScope, TokenStore};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;

use crate::support::{Daemon, options};

/// A row of the table.
#[derive(Debug)]
struct Row {
    method: String,
    route: String,
    scope: Option<TokenScope>,
    namespaced: bool,
}

fn table() -> Vec<Row> {
    let page = std::fs::read_to_string("../../docs/security.md").unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `") && line.contains("| `/"));
    let row = |line: &str| {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect();
        let scope = (cells[3] != "none").then(|| cells[3].parse().unwrap());
        Row { method: cells[1].clone(), route: cells[2].clone(), scope, namespaced: cells[4] == "yes" }
    };
    rows.map(row).collect()
}

/// Returns the routes of the API's document, which is generated from the router.
fn served() -> Vec<Row> {
    let text = std::fs::read_to_string("../../docs/openapi.json").unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let mut rows = Vec::new();
    for (route, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let words = operation["security"][0]["token"].as_array().cloned().unwrap_or_default();
            let scope = words.first().map(|word| word.as_str().unwrap().parse().unwrap());
            let namespaced = words.iter().any(|word| word == "namespace");
            rows.push(Row { method: method.to_uppercase(), route: route.clone(), scope, namespaced });
        }
    }
    let page = |page: holdoff_server::PageRoute| Row {
        method: page.method.to_owned(),
        route: page.route.to_owned(),
        scope: page.scope,
        namespaced: page.namespaced,
    };
    rows.extend(holdoff_server::pages().into_iter().map(page));
    rows
}

/// Returns whether the route is a page's. Pages redirect to the login, and show the reason of a refusal.
fn is_page(row: &Row) -> bool {
    holdoff_server::pages().iter().any(|page| page.route == row.route)
}

#[test]
fn the_documented_routes_equal_the_served_routes() {
    let written = |row: &Row| {
        let scope = row.scope.map_or("none", TokenScope::name);
        let namespaced = row.scope.map_or("", |_| if row.namespaced { "yes" } else { "no" });
        format!("| `{}` | `{}` | {scope} | {namespaced} |", row.method, row.route).replace("|  |", "| |")
    };
    let [router, table] = [served(), table()].map(|rows| rows.iter().map(written).collect::<BTreeSet<_>>());
    assert!(router.len() > 30, "{router:?}");
    let missing: Vec<_> = router.difference(&table).cloned().collect();
    assert!(missing.is_empty(), "not in the table of docs/security.md:\n{}", missing.join("\n"));
    let stale: Vec<_> = table.difference(&router).cloned().collect();
    assert!(stale.is_empty(), "in the table of docs/security.md, and nowhere else:\n{}", stale.join("\n"));
}

#[tokio::test]
async fn every_route_enforces_its_documented_scope() {
    check_every_route(false).await;
}

/// The ledger with the daemons' locks is no namespace's, also if it has a namespace's name.
#[tokio::test]
async fn a_namespaced_token_has_no_access_to_the_ledger_of_the_locks() {
    check_every_route(true).await;
}

/// Returns a token of each scope for all namespaces, and one for the namespace `billing`.
async fn tokens_of_every_scope(token_store: &TokenStore) -> Vec<(TokenScope, Option<&'static str>, String)> {
    let mut tokens = Vec::new();
    for scope in TokenScope::ALL {
        for namespace in [None, Some("billing")] {
            let new = NewToken::new(format!("{scope}"), scope);
            let new = namespace.into_iter().fold(new, NewToken::namespace);
            tokens.push((scope, namespace, token_store.issue(&new).await.unwrap().token));
        }
    }
    tokens
}

/// Sends every row of the table to a daemon with the ledger `billing`, which may keep the daemon's locks.
async fn check_every_route(keeps_locks: bool) {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(StoreUrl::in_directory(folder.path()));
    options.server.require_tokens = true;
    let mut ledger = Settings::new(folder.path().join("ledger"));
    ledger.listen.set_port(0);
    create(&ledger.data, "billing").unwrap();
    options.ledger = Some(Box::new(ledger));
    if keeps_locks {
        options.locking = holdoff_lock::Settings::default().with_ledger("billing");
    }
    let mut daemon = Daemon::start_with(options).await;
    let no_redirects = reqwest::redirect::Policy::none();
    daemon.client = reqwest::Client::builder().redirect(no_redirects).build().unwrap();
    let token_store = daemon.server.token_store();
    let tokens = tokens_of_every_scope(token_store).await;
    let send_row = async |row: &Row, token: Option<&str>| {
        let unknown = "00000000-0000-0000-0000-000000000000";
        let path = row.route.replace("{id}", unknown).replace("{task}", unknown);
        let path = path.replace("{number}", "0").replace("{name}", "standard").replace("{key}", "none");
        let method: Method = row.method.parse().unwrap();
        let mut request = daemon.client.request(method, format!("{}{path}", daemon.url));
        if row.method != "GET" {
            request = request.json(&serde_json::json!({}));
        }
        if is_page(row) {
            request = request.header("sec-fetch-site", "same-origin");
        }
        let request = token.into_iter().fold(request, RequestBuilder::bearer_auth);
        request.send().await.unwrap()
    };
    let (_, _, all) = &tokens[4];
    let is_settled = async || {
        let status =
            daemon.client.get(format!("{}/v1/ledger?namespace=billing", daemon.url)).bearer_auth(all);
        let status: Value = status.send().await.unwrap().json().await.unwrap();
        status["role"] == "leader" && status["members"] != serde_json::json!([])
    };
    let since = tokio::time::Instant::now();
    while !is_settled().await {
        assert!(since.elapsed() < holdoff_testbed::CONDITION_TIMEOUT, "the ledger has no leader");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A method that the path does not support differs from a missing permission.
    let (_, _, least) = &tokens[1];
    for row in table() {
        let wrong = Row { method: "PATCH".to_owned(), ..row };
        let answer = send_row(&wrong, Some(least)).await;
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{wrong:?}");
        assert!(answer.headers().contains_key("allow"), "{wrong:?}");
        let expected = wrong.scope.map_or(StatusCode::METHOD_NOT_ALLOWED, |_| StatusCode::UNAUTHORIZED);
        assert_eq!(send_row(&wrong, None).await.status(), expected, "{wrong:?}");
    }
    let mut asked = 0;
    for row in table() {
        let bare = send_row(&row, None).await;
        match row.scope {
            // The login needs no token, and the named static file does not exist.
            None if is_page(&row) => {
                assert!(matches!(bare.status().as_u16(), 200 | 401 | 404), "{row:?}");
                continue;
            }
            Some(_) if is_page(&row) && row.method == "GET" => {
                assert_eq!(bare.status(), StatusCode::SEE_OTHER, "{row:?}");
                assert!(bare.headers()["location"].to_str().unwrap().starts_with("/login"), "{row:?}");
            }
            Some(_) if is_page(&row) => assert_eq!(bare.status(), StatusCode::UNAUTHORIZED, "{row:?}"),
            None => assert_eq!(bare.status(), StatusCode::OK, "{row:?}"),
            Some(scope) => {
                assert_eq!(bare.status(), StatusCode::UNAUTHORIZED, "{row:?}");
                let challenge = bare.headers()["www-authenticate"].to_str().unwrap().to_owned();
                assert_eq!(challenge, format!("Bearer realm=\"holdoff\", scope=\"{scope}\""));
                let problem = bare.text().await.unwrap();
                assert!(
                    problem.contains("/problems/unauthorized") && problem.contains(scope.name()),
                    "{problem}"
                );
            }
        }
        for (scope, namespace, token) in &tokens {
            let answer = send_row(&row, Some(token)).await;
            let suffices = row.scope.is_none_or(|needed| *scope >= needed)
                && (namespace.is_none() || row.namespaced || row.scope.is_none());
            let is_of_locks =
                keeps_locks && (row.route == "/v1/ledger" || row.route.starts_with("/v1/ledger/"));
            let is_allowed = suffices && (namespace.is_none() || !is_of_locks);
            let is_refused = matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            assert_eq!(is_refused, !is_allowed, "{row:?} {scope} {namespace:?}: {}", answer.status());
            assert!(!answer.status().is_server_error(), "{row:?}: {}", answer.status());
            if keeps_locks && namespace.is_some() && row.route.contains("/ledger") {
                let text = if is_allowed { answer.text().await.unwrap() } else { "[]".to_owned() };
                assert!(text.contains("[]") || text.contains("This daemon has no ledger"), "{row:?}: {text}");
            } else if is_refused {
                let challenge = answer.headers()["www-authenticate"].to_str().unwrap();
                assert!(challenge.contains("insufficient_scope"), "{challenge}");
            }
            asked += 1;
        }
    }
    assert!(asked >= 6 * 30, "{asked}");
}
