//! HTTP requests and responses.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, header};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::asked::{Asked, Selector, understand};
use super::cluster::Cluster;
use super::faults::{Fault, Faults, Verb};
use super::status::{self, Refusal};
use super::watching;

type Body = BoxBody<Bytes, io::Error>;

/// The state that all connections share.
#[derive(Debug, Default)]
pub(super) struct Server {
    cluster: Mutex<Cluster>,
    pub(super) faults: Faults,
    /// The number of open watches.
    pub(super) watches: watch::Sender<usize>,
    pub(super) pulse: watch::Sender<Pulse>,
    stalled: Mutex<Vec<Asked>>,
}

/// The counters that watches wait on.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Pulse {
    pub(super) revision: u64,
    pub(super) cuts: u64,
    pub(super) ends: u64,
    pub(super) bookmarks: u64,
}

impl Server {
    pub(super) fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn let_through(self: &Arc<Self>) {
        let stalled = std::mem::take(&mut *self.stalled.lock().unwrap_or_else(PoisonError::into_inner));
        for asked in stalled {
            let _ = self.carry_out(&asked);
            tokio::task::yield_now().await;
        }
    }

    /// Handles a request. An error closes the connection.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let asked = match understand(request).await? {
            Ok(asked) => asked,
            Err(refusal) => return Ok(refuse(&refusal, None)),
        };
        match self.faults.meet(asked.verb) {
            None => {}
            Some(Fault::DropRequest) => return Err(closed()),
            Some(Fault::LoseAnswer) => {
                let _ = self.carry_out(&asked);
                return Err(closed());
            }
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Stall) => {
                self.stalled.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
                return std::future::pending().await;
            }
            Some(Fault::Refuse { code, retry_after }) => {
                return Ok(refuse(&Refusal::with_code(code), retry_after));
            }
        }
        if asked.verb == Verb::Watch {
            return Ok(answer_with(200, watching::watch(self, asked).boxed()));
        }
        Ok(match self.carry_out(&asked) {
            Ok((code, value)) => respond(code, &value),
            Err(refusal) => refuse(&refusal, None),
        })
    }

    fn carry_out(&self, asked: &Asked) -> Result<(u16, Value), Refusal> {
        let done = do_it(&mut self.cluster(), asked);
        let revision = self.cluster().revision();
        self.pulse.send_modify(|pulse| pulse.revision = revision);
        done
    }
}

fn do_it(cluster: &mut Cluster, asked: &Asked) -> Result<(u16, Value), Refusal> {
    let place = (asked.namespace.as_str(), asked.name.as_str());
    let made = |is_new| if is_new { 201 } else { 200 };
    let (code, lease) = match asked.verb {
        Verb::List | Verb::Watch => return Ok((200, list(cluster, asked)?)),
        Verb::Get => (200, cluster.get(place)?),
        Verb::Create => (201, cluster.create(&asked.namespace, asked.lease()?)?),
        Verb::Update => {
            let (is_new, lease) = cluster.update(place, asked.lease()?)?;
            (made(is_new), lease)
        }
        Verb::Patch if asked.is_apply => {
            let (is_new, lease) = cluster.apply(place, &asked.json()?)?;
            (made(is_new), lease)
        }
        Verb::Patch => (200, cluster.patch(place, &asked.json()?)?),
        Verb::Delete => {
            let options = if asked.body.is_empty() { Value::Null } else { asked.json()? };
            let wanted = |field: &str| options.get("preconditions")?.get(field)?.as_str();
            let lease = cluster.delete(place, wanted("uid"), wanted("resourceVersion"))?;
            let uid = lease.metadata.uid.unwrap_or_default();
            return Ok((200, status::deleted(&asked.name, &uid)));
        }
    };
    Ok((code, json!(lease)))
}

fn list(cluster: &Cluster, asked: &Asked) -> Result<Value, Refusal> {
    let limit = asked.get("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0);
    let limit = limit.unwrap_or(usize::MAX);
    let (revision, after) = match asked.get("continue").filter(|token| !token.is_empty()) {
        None => (cluster.revision(), ""),
        Some(token) => {
            let bad = || Refusal::bad_request("continue key is not valid");
            let (revision, after) = token.split_once(':').ok_or_else(bad)?;
            (revision.parse().map_err(|_| bad())?, after)
        }
    };
    let selector = Selector::of(asked);
    let mut items: Vec<(String, Lease)> = cluster
        .at(revision, &asked.namespace)?
        .into_iter()
        .filter(|(name, lease)| name.as_str() > after && selector.takes(lease))
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

fn refuse(refusal: &Refusal, retry_after: Option<u32>) -> Response<Body> {
    let mut response = respond(refusal.code, &refusal.status());
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
