//! Parses requests.

use std::io;

use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, header};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::Value;

use super::faults::Verb;
use super::status::ApiError;

const PREFIX: &str = "/apis/coordination.k8s.io/v1/namespaces/";

/// A parsed request.
#[derive(Clone, Debug)]
pub(super) struct LeaseRequest {
    pub(super) verb: Verb,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) query: Vec<(String, String)>,
    pub(super) is_apply: bool,
    pub(super) body: Bytes,
}

/// A label selector: names, each with an optional value that the label must or must not have.
pub(super) struct Selector(Vec<(String, Option<(bool, String)>)>);

/// Reads a request to its end and parses it.
pub(super) async fn parse(request: Request<Incoming>) -> io::Result<Result<LeaseRequest, ApiError>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let query = head.uri.query().unwrap_or_default();
    let query: Vec<(String, String)> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect();
    let mut parts = head.uri.path().strip_prefix(PREFIX).unwrap_or_default().split('/');
    let (namespace, resource) = (parts.next().unwrap_or_default(), parts.next());
    let name = parts.next().unwrap_or_default();
    let is_watch = query.iter().any(|(name, value)| name == "watch" && value == "true");
    let verb = match head.method {
        _ if resource != Some("leases") => None,
        Method::GET if name.is_empty() && is_watch => Some(Verb::Watch),
        Method::GET if name.is_empty() => Some(Verb::List),
        Method::POST if name.is_empty() => Some(Verb::Create),
        Method::GET => Some(Verb::Get),
        Method::PUT => Some(Verb::Update),
        Method::PATCH => Some(Verb::Patch),
        Method::DELETE => Some(Verb::Delete),
        _ => None,
    };
    let Some(verb) = verb else {
        let message = format!("the server could not find {} {}", head.method, head.uri);
        return Ok(Err(ApiError { code: 404, reason: "NotFound", message }));
    };
    let content = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_apply = content.is_some_and(|content| content.contains("apply-patch"));
    let (namespace, name) = (namespace.to_owned(), decoded(name));
    Ok(Ok(LeaseRequest { verb, namespace, name, query, is_apply, body }))
}

/// Decodes percent-encoding.
fn decoded(text: &str) -> String {
    let hex = |byte: Option<u8>| char::from(byte.unwrap_or(b'0')).to_digit(16).unwrap_or(0);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => u8::try_from(hex(rest.next()) * 16 + hex(rest.next())).unwrap_or(b'?'),
            byte => byte,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl LeaseRequest {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn json(&self) -> Result<Value, ApiError> {
        serde_json::from_slice(&self.body).map_err(|error| ApiError::bad_request(error.to_string()))
    }

    pub(super) fn lease(&self) -> Result<Lease, ApiError> {
        serde_json::from_slice(&self.body).map_err(|error| ApiError::bad_request(error.to_string()))
    }
}

impl Selector {
    pub(super) fn of(request: &LeaseRequest) -> Self {
        let terms = request.get("labelSelector").unwrap_or_default();
        let term = |term: &str| match term.split_once("!=") {
            Some((label, value)) => (label.to_owned(), Some((false, value.to_owned()))),
            None => match term.split_once('=') {
                Some((label, value)) => {
                    (label.to_owned(), Some((true, value.trim_start_matches('=').to_owned())))
                }
                None => (term.to_owned(), None),
            },
        };
        Self(terms.split(',').map(str::trim).filter(|part| !part.is_empty()).map(term).collect())
    }

    pub(super) fn matches(&self, lease: &Lease) -> bool {
        let label = |name: &String| lease.metadata.labels.as_ref().and_then(|labels| labels.get(name));
        self.0.iter().all(|(name, wanted)| match wanted {
            None => label(name).is_some(),
            Some((is_equal, value)) => (label(name) == Some(value)) == *is_equal,
        })
    }
}
