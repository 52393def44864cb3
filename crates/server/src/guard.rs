//! Middleware for every request and response: limits, request id, headers and metrics, and the grace period before a
//! shutdown.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{self, CONNECTION, HeaderName};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument;
use uuid::Uuid;

use crate::access::{Auth, Hosts, RequestId};
use crate::app::App;
use crate::listen::ProbesOnly;
use crate::problem::{Kind, Problem, jittered_retry_after};
use crate::{api, clock, dashboard, metrics};

/// The timeout of a request, its body included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The header that carries the id of a request in the log.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const MAX_REQUEST_ID_BYTES: usize = 128;

/// The routes that a connection serves even if all others are busy.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];

/// Makes a browser use TLS for this host for a year.
const HSTS: &str = "max-age=31536000";

/// Permits nothing: a browser shows a response that is not a page as it is.
const CONTENT_POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) async fn guard(State(auth): State<Arc<Auth>>, mut request: Request, next: Next) -> Response {
    let since = clock::now();
    let id = request_id(request.headers());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let method = method_label(request.method());
    let span = tracing::info_span!(
        "request",
        id = %id.to_str().unwrap_or_default(),
        method,
        route,
        trace = tracing::field::Empty
    );
    if let Some(trace) = trace(request.headers()) {
        span.record("trace", trace);
    }

    request.extensions_mut().insert(RequestId(id.to_str().unwrap_or_default().to_owned()));

    let is_encrypted = auth.is_encrypted(request.headers());
    let respond = async {
        if request.extensions().get::<ProbesOnly>().is_some() && !PROBES.contains(&route) {
            let problem = Problem::new(Kind::Overloaded, "all connections of this daemon are busy");
            let headers = [(CONNECTION, HeaderValue::from_static("close"))];
            return (headers, problem.retry_after(jittered_retry_after())).into_response();
        }
        let wrong = wrong_host(&request, &auth.hosts);
        if let Some(problem) = wrong.or_else(|| wrong_origin(&request, route, &auth.hosts)) {
            return problem.into_response();
        }
        let late = |_| {
            let detail = format!(
                "no response within {} s; it is unknown whether anything was stored",
                REQUEST_TIMEOUT.as_secs()
            );
            Problem::new(Kind::TimedOut, detail).into_response()
        };
        tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await.unwrap_or_else(late)
    };
    let mut response = respond.instrument(span).await;

    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_encrypted {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(HSTS));
    }
    // A page may have set its own values of these headers.
    for (name, usual) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(usual));
    }
    metrics::record_response(route, method, response.status().as_u16(), clock::now().saturating_sub(since));
    response
}

/// Returns the caller's trace if it has the length of one.
fn trace(headers: &HeaderMap) -> Option<&str> {
    const LENGTH: usize = 55;
    headers.get("traceparent")?.to_str().ok().filter(|trace| trace.len() == LENGTH)
}

/// Returns the caller's request id if it is fit for a log; otherwise a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let is_plain = |id: &&HeaderValue| {
        (1..=MAX_REQUEST_ID_BYTES).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    let fresh = || HeaderValue::try_from(Uuid::now_v7().to_string());
    match headers.get(REQUEST_ID).filter(is_plain) {
        Some(id) => id.clone(),
        None => fresh().unwrap_or(HeaderValue::from_static("none")),
    }
}

/// Refuses a `Host` that is not accepted. A web page may point a name of its own at loopback (DNS rebinding), but it
/// cannot make the browser send loopback's name as the `Host`. If the `Host` matters, it must be there, once.
fn wrong_host(request: &Request, hosts: &Hosts) -> Option<Problem> {
    let is_ours = |host: &str| match hosts {
        Hosts::Loopback => is_loopback(host),
        Hosts::Named(names) => names.is_empty() || names.iter().any(|name| name == host) || is_loopback(host),
    };
    let mut sent = request.headers().get_all(header::HOST).iter();
    let (first, second) = (sent.next(), sent.next());
    // An absolute URI in the request line names a host too.
    let named = [
        first.map(|host| host.to_str().unwrap_or_default()),
        request.uri().authority().map(Authority::as_str),
    ];
    let is_missing = first.is_none() && !is_ours("");
    if second.is_none() && !is_missing && named.into_iter().flatten().all(|host| is_ours(&name(host))) {
        return None;
    }
    let detail = match hosts {
        Hosts::Loopback => "the request must have one Host: localhost or a loopback address",
        Hosts::Named(_) => "the request must have one Host: one of server.hosts",
    };
    Some(Problem::new(Kind::WrongHost, detail))
}

/// If no token is needed, a page of another origin can make a browser send requests. Refuses them by the origin that the
/// browser reports: every `Origin` beyond loopback, and for a change every origin but the daemon's own.
fn wrong_origin(request: &Request, route: &str, hosts: &Hosts) -> Option<Problem> {
    if !matches!(hosts, Hosts::Loopback) {
        return None;
    }
    let headers = request.headers();
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
    let is_ours = |origin: &str| origin.split_once("://").is_some_and(|(_, host)| is_loopback(&name(host)));
    if origin.is_some_and(|origin| !is_ours(origin)) {
        return Some(Problem::new(
            Kind::WrongHost,
            "the request's Origin must be localhost or a loopback address, because this daemon needs no API token",
        ));
    }
    let is_change = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let is_from_browser = origin.is_some() || headers.contains_key("sec-fetch-site");
    // The layer of the pages checks their forms, and shows the refusal as a page.
    (is_change && is_from_browser && !api::is_page(route) && !dashboard::is_same_origin(headers)).then(|| {
        let detail =
            "a page of another origin may not change anything, because this daemon needs no API token";
        Problem::new(Kind::Forbidden, detail)
    })
}

/// Returns a host without its port, in lower case.
fn name(host: &str) -> String {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.to_ascii_lowercase()
}

fn is_loopback(name: &str) -> bool {
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Returns the method as a metric label. Unknown methods share one label, so that clients cannot create labels.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// Middleware for the grace period: it serves requests and asks clients to close the connection. A load balancer routes
/// the next connection to another daemon.
pub(crate) async fn close_on_shutdown(State(app): State<App>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if app.shutting_down.is_cancelled() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn only_loopback_hosts_are_accepted() {
        for host in ["localhost", "LocalHost:7070", "127.0.0.1:1", "127.1.2.3", "[::1]:7070", "a.localhost:9"]
        {
            assert!(is_loopback(&name(host)), "{host}");
        }
        for host in
            ["", "evil.example", "127.0.0.1.evil.example", "10.0.0.1:7070", "[::2]", "localhost.evil.example"]
        {
            assert!(!is_loopback(&name(host)), "{host}");
        }
    }

    #[test]
    fn configured_hosts_are_accepted_with_tokens() {
        let is_accepted = |host: &str, names: &[&str]| {
            let request =
                axum::http::Request::builder().header(header::HOST, host).body(Body::empty()).unwrap();
            let hosts = Hosts::Named(names.iter().map(ToString::to_string).collect());
            wrong_host(&request, &hosts).is_none()
        };
        assert!(is_accepted("Holdoff.example.com:7070", &["holdoff.example.com"]));
        assert!(is_accepted("localhost:7070", &["holdoff.example.com"]));
        assert!(!is_accepted("evil.example", &["holdoff.example.com"]));
        assert!(is_accepted("anything.example", &[]));
    }

    #[test]
    fn a_request_id_with_control_characters_is_replaced() {
        let id = |text: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_bytes(text).unwrap());
            request_id(&headers)
        };
        assert_eq!(id(b"mine-17"), "mine-17");
        assert_ne!(id(b"a b"), "a b");
        assert_ne!(id(&[b'x'; 129]).len(), 129);
    }
}
