//! The target: a loopback server with one port per service, which fails as its configuration says.

mod answer;
mod ledger;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(super) use answer::{Outage, Temper};
pub(super) use ledger::{Ledger, Totals};

use super::service::{Addresses, Service};
use answer::{Asked, Reply};
use ledger::Arrival;

/// A response that takes longer than this exceeds the caller's timeout.
const LATE: Duration = Duration::from_secs(1);

/// The secret that buys an access token. It is valid only for the demo's target.
pub(super) const SECRET: &str = "let me build reports";

/// The response to a request without a key. The reachability check recognises the target by it.
const KEYLESS: &str = "name what you want by an Idempotency-Key";

/// Variables that may route requests through a proxy.
const PROXIES: [&str; 4] = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
const PROBE_PATIENCE: Duration = Duration::from_secs(5);

/// The target. It serves until this value is dropped.
pub(super) struct Target {
    pub(super) addresses: Addresses,
    ledger: Arc<Mutex<Ledger>>,
    _servers: JoinSet<()>,
}

#[derive(Clone)]
struct Desk {
    service: Service,
    temper: Arc<Temper>,
    ledger: Arc<Mutex<Ledger>>,
    since: Instant,
}

impl Target {
    /// Starts the target. The clock of its failures begins at `since`.
    pub(super) async fn start(temper: Temper, since: Instant) -> std::io::Result<Self> {
        let (temper, ledger) = (Arc::new(temper), Arc::<Mutex<Ledger>>::default());
        let (mut servers, mut addresses) = (JoinSet::new(), Vec::new());
        for service in Service::ALL {
            let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
            let port = listener.local_addr()?.port();
            addresses.push((service, format!("{}:{port}", host(service).await)));
            let desk = Desk { service, temper: Arc::clone(&temper), ledger: Arc::clone(&ledger), since };
            let router = Router::new().route("/token", post(give_token)).fallback(serve).with_state(desk);
            servers.spawn(async move {
                // It ends with the demo; until then there is nothing that could make it fail.
                let _ = axum::serve(listener, router).await;
            });
        }
        Ok(Self { addresses: Addresses::new(addresses), ledger, _servers: servers })
    }

    /// Checks that a client that honours the proxy variables reaches the target. The error says what to set.
    pub(super) async fn check_reach(&self) -> Result<(), String> {
        let Some(proxy) = PROXIES.into_iter().find(|name| std::env::var_os(name).is_some()) else {
            return Ok(());
        };
        let url = self.addresses.url(Service::Legacy, "");
        let answer = reqwest::Client::new().post(url).timeout(PROBE_PATIENCE).send().await;
        let text = match answer {
            Ok(answer) => answer.text().await.unwrap_or_default(),
            Err(_) => String::new(),
        };
        if text == KEYLESS {
            return Ok(());
        }
        Err(format!(
            "{proxy} has requests to this machine go through a proxy, which does not lead back here; \
             set NO_PROXY=localhost,127.0.0.1 as well"
        ))
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }
}

/// Returns a host name for the service, such as `mail.localhost`, if it resolves to loopback; otherwise the loopback
/// address.
async fn host(service: Service) -> String {
    let name = format!("{}.localhost", service.name());
    let found = tokio::net::lookup_host((name.as_str(), 0)).await;
    let is_here = found.is_ok_and(|mut found| found.any(|address| address.ip() == Ipv4Addr::LOCALHOST));
    if is_here { name } else { Ipv4Addr::LOCALHOST.to_string() }
}

/// Ignores poisoning: a panic in another task cannot leave a partial count.
fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn give_token(State(desk): State<Desk>, headers: HeaderMap) -> Response {
    if desk.service != Service::Reports || bearer(&headers) != Some(SECRET) {
        return StatusCode::FORBIDDEN.into_response();
    }
    // The response omits the expiry, so that the client learns of it from a refused request.
    let token = json!({ "access_token": answer::token(desk.since.elapsed()) });
    ([(CONTENT_TYPE, "application/json")], token.to_string()).into_response()
}

async fn serve(State(desk): State<Desk>, headers: HeaderMap, body: Bytes) -> Response {
    let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()) else {
        return (StatusCode::BAD_REQUEST, KEYLESS).into_response();
    };
    let Arrival::Undone { time } = lock(&desk.ledger).arrive(key) else {
        return respond(StatusCode::OK, &json!({ "done": true, "again": true }));
    };
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (at, token) = (desk.since.elapsed(), bearer(&headers));
    let reply = desk.temper.reply(&Asked { service: desk.service, time, at, body: &body, token });
    if reply.takes >= LATE {
        lock(&desk.ledger).keep_waiting();
    }
    // If the caller has given up, the handler is dropped here and the request has no effect.
    tokio::time::sleep(reply.takes).await;
    let Reply { status, retry_after, ref body, .. } = reply;
    if reply.is_done() {
        lock(&desk.ledger).perform(key);
    } else {
        lock(&desk.ledger).refuse();
    }
    let response = respond(StatusCode::from_u16(status).unwrap_or_default(), body);
    match retry_after {
        Some(wait) => ([(RETRY_AFTER, wait.to_string())], response).into_response(),
        None => response,
    }
}

fn respond(status: StatusCode, body: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}
