//! Every route of the router against `docs/security.md`, and every row of that against a running daemon.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod bed;

use std::collections::BTreeSet;
use std::path::Path;

use bed::{Daemon, options};
use holdoff_server::{NewToken, Place, Scope};
use reqwest::{Method, RequestBuilder, StatusCode};

/// A row of the table.
#[derive(Debug)]
struct Row {
    method: String,
    route: String,
    scope: Option<Scope>,
    narrowed: bool,
}

fn table() -> Vec<Row> {
    let page = std::fs::read_to_string("../../docs/security.md").unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `") && line.contains("| `/"));
    let row = |line: &str| {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect();
        let scope = (cells[3] != "none").then(|| cells[3].parse().unwrap());
        Row { method: cells[1].clone(), route: cells[2].clone(), scope, narrowed: cells[4] == "yes" }
    };
    rows.map(row).collect()
}

/// What the router serves, as its source says: axum does not tell.
fn served(folder: &Path, found: &mut BTreeSet<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            served(&path, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for route in text.split(".route(\"").skip(1) {
            let (path, rest) = route.split_once('"').unwrap();
            let rest = rest.split("\n        .").next().unwrap();
            for method in ["get", "post", "put", "patch", "delete"] {
                if rest.contains(&format!("{method}(")) {
                    found.insert((method.to_uppercase(), path.to_owned()));
                }
            }
        }
    }
}

#[test]
fn every_route_has_its_row_and_every_row_its_route() {
    let mut router = BTreeSet::new();
    served(Path::new("src"), &mut router);
    let table: BTreeSet<_> = table().into_iter().map(|row| (row.method, row.route)).collect();
    assert!(router.len() > 10, "{router:?}");
    let missing: Vec<_> = router.difference(&table).collect();
    assert!(missing.is_empty(), "not in the table of docs/security.md: {missing:?}");
    let stale: Vec<_> = table.difference(&router).collect();
    assert!(stale.is_empty(), "in the table of docs/security.md, and nowhere else: {stale:?}");
}

#[tokio::test]
async fn every_row_is_true() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(Place::directory(folder.path()));
    options.server.require_tokens = true;
    let daemon = Daemon::start_with(options).await;
    let keep = daemon.server.keep();
    let mut tokens = Vec::new();
    for scope in Scope::ALL {
        for namespace in [None, Some("billing")] {
            let new = NewToken::new(format!("{scope}"), scope);
            let new = namespace.into_iter().fold(new, NewToken::namespace);
            tokens.push((scope, namespace, keep.issue(&new).await.unwrap().token));
        }
    }
    let ask = async |row: &Row, token: Option<&str>| {
        let path = row.route.replace("{id}", "00000000-0000-0000-0000-000000000000");
        let method: Method = row.method.parse().unwrap();
        let mut request = daemon.client.request(method, format!("{}{path}", daemon.url));
        if row.method != "GET" {
            request = request.json(&serde_json::json!({}));
        }
        let request = token.into_iter().fold(request, RequestBuilder::bearer_auth);
        request.send().await.unwrap()
    };
    let mut asked = 0;
    for row in table() {
        let bare = ask(&row, None).await;
        match row.scope {
            None => assert_eq!(bare.status(), StatusCode::OK, "{row:?}"),
            Some(scope) => {
                assert_eq!(bare.status(), StatusCode::UNAUTHORIZED, "{row:?}");
                let challenge = bare.headers()["www-authenticate"].to_str().unwrap().to_owned();
                assert_eq!(challenge, format!("Bearer realm=\"holdoff\", scope=\"{scope}\""));
                let said = bare.text().await.unwrap();
                assert!(said.contains("/problems/unauthorized") && said.contains(scope.name()), "{said}");
            }
        }
        for (scope, namespace, token) in &tokens {
            let answer = ask(&row, Some(token)).await;
            let is_allowed = row.scope.is_none_or(|needed| *scope >= needed)
                && (namespace.is_none() || row.narrowed || row.scope.is_none());
            let is_refused = matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            assert_eq!(is_refused, !is_allowed, "{row:?} {scope} {namespace:?}: {}", answer.status());
            assert!(!answer.status().is_server_error(), "{row:?}: {}", answer.status());
            if is_refused {
                let challenge = answer.headers()["www-authenticate"].to_str().unwrap();
                assert!(challenge.contains("insufficient_scope"), "{challenge}");
            }
            asked += 1;
        }
    }
    assert!(asked >= 6 * 15, "{asked}");
}
