//! The target: a loopback server with one port per service, which fails as its failure model says. It records requests and
//! effects; each key takes effect once, however often it is requested.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::traffic::{Addresses, REVISION, Service};

/// A response that takes longer than this exceeds the caller's timeout.
const LATE: Duration = Duration::from_secs(1);

/// The secret that buys an access token. It is valid only for the demo's target.
pub(super) const SECRET: &str = "let me build reports";

/// The response to a request without a key. The reachability check recognises the target by it.
const KEYLESS: &str = "the header Idempotency-Key is missing";

/// Variables that may route requests through a proxy.
const PROXIES: [&str; 4] = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The target. It serves until this value is dropped.
pub(super) struct Target {
    pub(super) addresses: Addresses,
    request_log: Arc<Mutex<RequestLog>>,
    _servers: JoinSet<()>,
}

#[derive(Clone)]
struct ServiceState {
    service: Service,
    failures: Arc<FailureModel>,
    request_log: Arc<Mutex<RequestLog>>,
    since: Instant,
}

impl Target {
    /// Starts the target. The clock of its failures begins at `since`.
    pub(super) async fn start(failures: FailureModel, since: Instant) -> std::io::Result<Self> {
        let (failures, request_log) = (Arc::new(failures), Arc::<Mutex<RequestLog>>::default());
        let (mut servers, mut addresses) = (JoinSet::new(), Vec::new());
        for service in Service::ALL {
            let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
            let port = listener.local_addr()?.port();
            addresses.push((service, format!("{}:{port}", host(service).await)));
            let state = ServiceState {
                service,
                failures: Arc::clone(&failures),
                request_log: Arc::clone(&request_log),
                since,
            };
            let router = Router::new().route("/token", post(issue_token)).fallback(serve).with_state(state);
            servers.spawn(async move {
                // The server ends with the demo.
                let _ = axum::serve(listener, router).await;
            });
        }
        Ok(Self { addresses: Addresses::new(addresses), request_log, _servers: servers })
    }

    /// Checks that a client that honours the proxy variables reaches the target. The error says what to set.
    pub(super) async fn check_reach(&self) -> Result<(), String> {
        let Some(proxy) = PROXIES.into_iter().find(|name| std::env::var_os(name).is_some()) else {
            return Ok(());
        };
        let url = self.addresses.url(Service::Legacy, "");
        let answer = reqwest::Client::new().post(url).timeout(PROBE_TIMEOUT).send().await;
        let text = match answer {
            Ok(answer) => answer.text().await.unwrap_or_default(),
            Err(_) => String::new(),
        };
        if text == KEYLESS {
            return Ok(());
        }
        Err(format!(
            "{proxy} sends requests to this machine through a proxy that cannot reach it; set \
             NO_PROXY=localhost,127.0.0.1 as well"
        ))
    }

    pub(super) fn request_log(&self) -> MutexGuard<'_, RequestLog> {
        self.request_log.lock()
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

async fn issue_token(State(state): State<ServiceState>, headers: HeaderMap) -> Response {
    if state.service != Service::Reports || bearer(&headers) != Some(SECRET) {
        return StatusCode::FORBIDDEN.into_response();
    }
    // The response omits the expiry, so that the client learns of it from a refused request.
    let token = json!({ "access_token": access_token(state.since.elapsed()) });
    ([(CONTENT_TYPE, "application/json")], token.to_string()).into_response()
}

async fn serve(State(state): State<ServiceState>, headers: HeaderMap, body: Bytes) -> Response {
    let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()) else {
        return (StatusCode::BAD_REQUEST, KEYLESS).into_response();
    };
    let Arrival::Undone { time } = state.request_log.lock().arrive(key) else {
        return respond(StatusCode::OK, &json!({ "done": true, "again": true }));
    };
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (at, token) = (state.since.elapsed(), bearer(&headers));
    let reply = state.failures.reply(&TargetRequest { service: state.service, time, at, body: &body, token });
    if reply.takes >= LATE {
        state.request_log.lock().record_late();
    }
    // If the caller has given up, the handler is dropped here and the request has no effect.
    tokio::time::sleep(reply.takes).await;
    let TargetResponse { status, retry_after, ref body, .. } = reply;
    if reply.is_done() {
        state.request_log.lock().record_effect(key);
    } else {
        state.request_log.lock().record_refused();
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

/// The failures of the target.
#[derive(Clone, Debug)]
pub(super) struct FailureModel {
    pub(super) seed: u64,
    pub(super) outage: Outage,
}

/// The recurring outage of the mail service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    pub(super) every: Duration,
    /// Its start in each period.
    pub(super) from: Duration,
    pub(super) lasts: Duration,
}

impl Outage {
    pub(super) fn is_on(&self, at: Duration) -> bool {
        let into = at.as_micros() % self.every.as_micros().max(1);
        (self.from.as_micros()..(self.from + self.lasts).as_micros()).contains(&into)
    }
}

/// A received request.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetRequest<'a> {
    pub(super) service: Service,
    /// The number of times that this key was requested, from 1.
    pub(super) time: u32,
    /// The time since the start.
    pub(super) at: Duration,
    pub(super) body: &'a Value,
    pub(super) token: Option<&'a str>,
}

/// A response.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct TargetResponse {
    pub(super) status: u16,
    /// In seconds.
    pub(super) retry_after: Option<u64>,
    /// The time until the response.
    pub(super) takes: Duration,
    pub(super) body: Value,
}

/// The lifetime of an access token, and the duration of a slow response, which exceeds every caller's timeout.
const TOKEN_LASTS: Duration = Duration::from_secs(10);
const SLOW: Duration = Duration::from_secs(3);

/// The share of failed requests, in thousandths.
const RATE_LIMITED: u64 = 300;
const LATE_SHARE: u64 = 250;
const HICCUP: u64 = 60;

/// Returns the access token that is valid at this time.
fn access_token(at: Duration) -> String {
    format!("report-{}", at.as_secs() / TOKEN_LASTS.as_secs())
}

impl FailureModel {
    /// Decides on the response. A request takes effect if and only if the response is a success.
    pub(super) fn reply(&self, request: &TargetRequest<'_>) -> TargetResponse {
        let chance = self.chance(request);
        let done =
            TargetResponse::new(200, json!({ "done": true })).taking(Duration::from_millis(5 + chance % 40));
        match request.service {
            Service::Payments if chance < RATE_LIMITED => {
                let wait = 1 + chance % 2;
                TargetResponse { retry_after: Some(wait), ..refusal(429, "too many charges at once") }
            }
            Service::Mail if self.outage.is_on(request.at) => refusal(503, "the mail service is down"),
            Service::Crm if request.body.get("revision").and_then(Value::as_u64) != Some(REVISION) => {
                let said = format!("the record is at revision {REVISION}; send the current revision");
                refusal(409, &said)
            }
            // Only the first request for a key is slow.
            Service::Search if chance < LATE_SHARE && request.time == 1 => done.taking(SLOW),
            Service::Reports if request.token != Some(&access_token(request.at)) => {
                refusal(401, "the token has expired")
            }
            Service::Legacy => refusal(400, "the field `currency` is missing"),
            Service::Warehouse if chance < HICCUP => refusal(502, "no answer from the warehouse"),
            _ => done,
        }
    }

    /// Returns a number from 0 to 999 that depends only on the seed, the request and its repetition, not on other
    /// requests.
    fn chance(&self, request: &TargetRequest<'_>) -> u64 {
        let number = request.body.get("number").and_then(Value::as_u64).unwrap_or_default();
        let parts = [request.service as u64, number, u64::from(request.time)];
        let seed = parts.iter().fold(self.seed, |seed, part| {
            fastrand::Rng::with_seed(seed.rotate_left(21) ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15)).u64(..)
        });
        seed % 1000
    }
}

impl TargetResponse {
    fn new(status: u16, body: Value) -> Self {
        Self { status, retry_after: None, takes: Duration::ZERO, body }
    }

    fn taking(self, takes: Duration) -> Self {
        Self { takes, ..self }
    }

    pub(super) const fn is_done(&self) -> bool {
        self.status == 200
    }
}

fn refusal(status: u16, said: &str) -> TargetResponse {
    TargetResponse::new(status, json!({ "error": said }))
}

/// The maximum number of remembered keys. A run with a summary has fewer; a run without end evicts the oldest.
const MAX_KEYS: usize = 50_000;

/// The requests and effects of the target, by idempotency key.
#[derive(Debug, Default)]
pub(super) struct RequestLog {
    seen: HashMap<String, KeyRecord>,
    order: VecDeque<String>,
    totals: Totals,
}

#[derive(Clone, Copy, Debug, Default)]
struct KeyRecord {
    times: u32,
    done: u32,
}

/// The counters of the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Totals {
    /// All received requests.
    pub(super) requests: u64,
    /// Refused requests.
    pub(super) refused: u64,
    /// Requests whose response exceeded the caller's timeout.
    pub(super) late: u64,
    /// Requests for a key that had already taken effect, which had no second effect.
    pub(super) repeated: u64,
}

/// The state of a key when its request arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// The request has not taken effect yet. `time` counts its arrivals.
    Undone { time: u32 },
    /// The request has already taken effect.
    Done,
}

impl RequestLog {
    pub(super) fn arrive(&mut self, key: &str) -> Arrival {
        self.totals.requests += 1;
        if !self.seen.contains_key(key) {
            self.make_room();
            self.order.push_back(key.to_owned());
        }
        let seen = self.seen.entry(key.to_owned()).or_default();
        seen.times += 1;
        if seen.done > 0 {
            self.totals.repeated += 1;
            return Arrival::Done;
        }
        Arrival::Undone { time: seen.times }
    }

    pub(super) fn record_refused(&mut self) {
        self.totals.refused += 1;
    }

    pub(super) fn record_late(&mut self) {
        self.totals.late += 1;
    }

    /// Applies the effect, unless a concurrent request with the same key already has.
    pub(super) fn record_effect(&mut self, key: &str) {
        if let Some(seen) = self.seen.get_mut(key).filter(|seen| seen.done == 0) {
            seen.done += 1;
        }
    }

    pub(super) const fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the keys of all requests that took effect.
    pub(super) fn done(&self) -> HashSet<String> {
        self.seen.iter().filter(|(_, seen)| seen.done > 0).map(|(key, _)| key.clone()).collect()
    }

    fn make_room(&mut self) {
        while self.order.len() >= MAX_KEYS
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn temper(seed: u64) -> FailureModel {
        FailureModel { seed, outage: Outage { every: 60 * SECOND, from: 3 * SECOND, lasts: 20 * SECOND } }
    }

    fn ask(service: Service, number: u64, time: u32, at: Duration) -> TargetResponse {
        let body = json!({ "number": number });
        temper(1).reply(&TargetRequest { service, time, at, body: &body, token: None })
    }

    fn share(service: Service, time: u32, is_meant: impl Fn(&TargetResponse) -> bool) -> usize {
        (0..1000).filter(|number| is_meant(&ask(service, *number, time, Duration::ZERO))).count()
    }

    #[test]
    fn outages_recur() {
        let down: Vec<_> = (0..120).filter(|at| temper(1).outage.is_on(SECOND * *at)).collect();
        assert_eq!(down, (3..23).chain(63..83).collect::<Vec<_>>());
        assert_eq!(ask(Service::Mail, 1, 1, 4 * SECOND).status, 503);
        assert_eq!(ask(Service::Mail, 1, 2, 30 * SECOND).status, 200);
    }

    #[test]
    fn rate_limited_requests_succeed_within_twelve_attempts() {
        let rejected =
            share(Service::Payments, 1, |reply| reply.status == 429 && reply.retry_after.is_some());
        assert!((200..400).contains(&rejected), "{rejected}");
        for number in 0..1000 {
            let is_through = |time: &u32| ask(Service::Payments, number, *time, Duration::ZERO).is_done();
            assert!((1..=12).any(|time| is_through(&time)), "{number} never gets through");
        }
    }

    #[test]
    fn only_the_first_search_request_is_slow() {
        let slow = |reply: &TargetResponse| reply.takes >= SLOW;
        assert!((150..350).contains(&share(Service::Search, 1, slow)));
        assert_eq!(share(Service::Search, 2, slow), 0);
    }

    #[test]
    fn a_stale_revision_is_a_conflict() {
        let ask = |revision: u64| {
            let body = json!({ "number": 5, "revision": revision });
            let request =
                TargetRequest { service: Service::Crm, time: 1, at: SECOND, body: &body, token: None };
            temper(1).reply(&request).status
        };
        assert_eq!((ask(REVISION - 1), ask(REVISION)), (409, 200));
    }

    #[test]
    fn access_tokens_expire() {
        let ask = |token: &str, at: Duration| {
            let request = TargetRequest {
                service: Service::Reports,
                time: 1,
                at,
                body: &Value::Null,
                token: Some(token),
            };
            temper(1).reply(&request).status
        };
        let first = access_token(Duration::ZERO);
        assert_eq!(ask(&first, 9 * SECOND), 200);
        assert_eq!(ask(&first, 10 * SECOND), 401);
        assert_eq!(ask(&access_token(10 * SECOND), 10 * SECOND), 200);
    }

    #[test]
    fn the_legacy_system_always_rejects() {
        assert_eq!(share(Service::Legacy, 3, |reply| reply.status == 400), 1000);
    }

    #[test]
    fn failures_depend_on_the_seed() {
        let body = json!({ "number": 12 });
        let chances = |seed| {
            let request = |time| TargetRequest {
                service: Service::Payments,
                time,
                at: SECOND,
                body: &body,
                token: None,
            };
            (1..50).map(|time| temper(seed).chance(&request(time))).collect::<Vec<_>>()
        };
        assert_eq!(chances(1), chances(1));
        assert_ne!(chances(1), chances(2));
    }

    #[test]
    fn a_key_takes_effect_once() {
        let mut ledger = RequestLog::default();
        assert_eq!(ledger.arrive("a"), Arrival::Undone { time: 1 });
        ledger.record_refused();
        assert_eq!(ledger.arrive("a"), Arrival::Undone { time: 2 });
        ledger.record_effect("a");
        ledger.record_effect("a");
        assert_eq!(ledger.arrive("a"), Arrival::Done);
        assert_eq!(ledger.arrive("b"), Arrival::Undone { time: 1 });
        assert_eq!(ledger.done(), HashSet::from(["a".to_owned()]));
        assert_eq!(ledger.totals(), Totals { requests: 4, refused: 1, late: 0, repeated: 1 });
    }

    #[test]
    fn the_oldest_keys_are_evicted() {
        let mut ledger = RequestLog::default();
        for number in 0..MAX_KEYS + 10 {
            ledger.arrive(&number.to_string());
        }
        assert_eq!((ledger.seen.len(), ledger.order.len()), (MAX_KEYS, MAX_KEYS));
        assert_eq!(ledger.arrive("0"), Arrival::Undone { time: 1 }, "the oldest is forgotten");
    }
}
