//! HTTP requests and responses.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, header};
use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::cluster::Cluster;
use super::faults::{Fault, Faults, Verb};
use super::request::{LeaseRequest, Selector, parse};
use super::status::{self, ApiError};

type Body = BoxBody<Bytes, io::Error>;

/// The state that all connections share.
#[derive(Debug, Default)]
pub(super) struct Server {
    cluster: Mutex<Cluster>,
    pub(super) faults: Faults,
    /// The number of open watches.
    pub(super) watches: watch::Sender<usize>,
    pub(super) signals: watch::Sender<WatchSignals>,
    stalled: Mutex<Vec<LeaseRequest>>,
}

/// The counters that watches wait on.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct WatchSignals {
    pub(super) revision: u64,
    pub(super) cuts: u64,
    pub(super) ends: u64,
    pub(super) bookmarks: u64,
}

impl Server {
    pub(super) fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock()
    }

    pub(super) async fn release_stalled(self: &Arc<Self>) {
        let stalled = std::mem::take(&mut *self.stalled.lock());
        for request in stalled {
            let _ = self.execute_and_notify(&request);
            tokio::task::yield_now().await;
        }
    }

    /// Handles a request. An error closes the connection.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let request = match parse(request).await? {
            Ok(request) => request,
            Err(error) => return Ok(refuse(&error, None)),
        };
        match self.faults.next_for(request.verb) {
            None => {}
            Some(Fault::DropRequest) => return Err(closed()),
            Some(Fault::DropResponse) => {
                let _ = self.execute_and_notify(&request);
                return Err(closed());
            }
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Stall) => {
                self.stalled.lock().push(request);
                return std::future::pending().await;
            }
            Some(Fault::Refuse { code, retry_after }) => {
                return Ok(refuse(&ApiError::with_code(code), retry_after));
            }
        }
        if request.verb == Verb::Watch {
            return Ok(answer_with(200, super::watch::watch(self, request).boxed()));
        }
        Ok(match self.execute_and_notify(&request) {
            Ok((code, value)) => respond(code, &value),
            Err(error) => refuse(&error, None),
        })
    }

    fn execute_and_notify(&self, request: &LeaseRequest) -> Result<(u16, Value), ApiError> {
        let done = execute(&mut self.cluster(), request);
        let revision = self.cluster().revision();
        self.signals.send_modify(|signals| signals.revision = revision);
        done
    }
}

fn execute(cluster: &mut Cluster, request: &LeaseRequest) -> Result<(u16, Value), ApiError> {
    let place = (request.namespace.as_str(), request.name.as_str());
    let made = |is_new| if is_new { 201 } else { 200 };
    let (code, lease) = match request.verb {
        Verb::List | Verb::Watch => return Ok((200, list(cluster, request)?)),
        Verb::Get => (200, cluster.get(place)?),
        Verb::Create => (201, cluster.create(&request.namespace, request.lease()?)?),
        Verb::Update => {
            let (is_new, lease) = cluster.update(place, request.lease()?)?;
            (made(is_new), lease)
        }
        Verb::Patch if request.is_apply => {
            let (is_new, lease) = cluster.apply(place, &request.json()?)?;
            (made(is_new), lease)
        }
        Verb::Patch => (200, cluster.patch(place, &request.json()?)?),
        Verb::Delete => {
            let options = if request.body.is_empty() { Value::Null } else { request.json()? };
            let wanted = |field: &str| options.get("preconditions")?.get(field)?.as_str();
            let lease = cluster.delete(place, wanted("uid"), wanted("resourceVersion"))?;
            let uid = lease.metadata.uid.unwrap_or_default();
            return Ok((200, status::deleted(&request.name, &uid)));
        }
    };
    Ok((code, json!(lease)))
}

fn list(cluster: &Cluster, request: &LeaseRequest) -> Result<Value, ApiError> {
    let limit = request.get("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0);
    let limit = limit.unwrap_or(usize::MAX);
    let (revision, after) = match request.get("continue").filter(|token| !token.is_empty()) {
        None => (cluster.revision(), ""),
        Some(token) => {
            let bad = || ApiError::bad_request("continue key is not valid");
            let (revision, after) = token.split_once(':').ok_or_else(bad)?;
            (revision.parse().map_err(|_| bad())?, after)
        }
    };
    let selector = Selector::of(request);
    let mut items: Vec<(String, Lease)> = cluster
        .at(revision, &request.namespace)?
        .into_iter()
        .filter(|(name, lease)| name.as_str() > after && selector.matches(lease))
        .collect();
    let is_cut = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| is_cut).map(|(last, _)| format!("{revision}:{last}"));
    let items: Vec<Lease> = items.into_iter().map(|(_, lease)| lease).collect();
    Ok(json!({
        "kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1",
        "metadata": { "resourceVersion": revision.to_string(), "continue": next.unwrap_or_default() },
        "items": items,
    }))
}

fn respond(code: u16, value: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(value.to_string()));
    answer_with(code, body.map_err(|never: Infallible| match never {}).boxed())
}

fn refuse(error: &ApiError, retry_after: Option<u32>) -> Response<Body> {
    let mut response = respond(error.code, &error.status());
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn answer_with(code: u16, body: Body) -> Response<Body> {
    let response = Response::builder().status(code).header(header::CONTENT_TYPE, "application/json");
    response.body(body).expect("a valid answer")
}

pub(super) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "closed on demand")
}
