//! The API requests, and the meaning of their errors.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::fmt::rfc2822::DateTimeParser;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client};
use parking_lot::Mutex;

use super::lease_object::LeaseObject;
use crate::{Error, clock};

/// The time limit of a request. The outcome of a timed-out request is read back by its nonce.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 5 });
/// How long a reading of the API server's clock is continued by the own clock.
const CLOCK_READING: Duration = Duration::from_secs(60);
/// The number of Leases in one page of a list.
const PAGE: u32 = 500;

/// The reason why a request failed.
#[derive(Debug)]
pub(super) enum RequestError {
    /// Another client wrote first: the version that the request was made from is no longer the newest.
    Conflict,
    /// The requested history is no longer available.
    Gone,
    /// Any other error.
    Other(Error),
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Conflict => Error::store(true, "other clients changed the Lease at every attempt"),
            RequestError::Gone => Error::store(true, "the API server no longer has the requested history"),
            RequestError::Other(error) => error,
        }
    }
}

/// A missing permission.
#[derive(Debug, thiserror::Error)]
#[error(
    "the service account may not {verb} leases of coordination.k8s.io in the namespace {namespace}: \
     grant it the role of deploy/kubernetes/lock-rbac.yaml ({message})"
)]
struct Forbidden {
    verb: &'static str,
    namespace: String,
    message: String,
}

/// The result of a request.
pub(super) type RequestResult<T> = Result<T, RequestError>;

/// The Leases of one namespace of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Leases {
    pub(super) api: Api<Lease>,
    namespace: String,
    /// The last reading of the API server's clock, and when its response arrived.
    clock: Arc<Mutex<Option<ClockReading>>>,
}

#[derive(Clone, Copy, Debug)]
struct ClockReading {
    time: Duration,
    arrived: Duration,
}

impl Leases {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        let (api, namespace) = (Api::namespaced(client, namespace), namespace.to_owned());
        Self { api, namespace, clock: Arc::default() }
    }

    /// Returns the time since 1970 on the API server's wall clock. It may be a second late, because the server reports
    /// whole seconds, but not early.
    pub(super) async fn server_time(&self) -> RequestResult<Duration> {
        let now = clock::now();
        if let Some(read) = *self.clock.lock()
            && now.saturating_sub(read.arrived) < CLOCK_READING
        {
            return Ok(read.time + now.saturating_sub(read.arrived));
        }
        // The server dates every response, whatever its status.
        let request = kube::core::Request::new("/version").list(&ListParams::default());
        let request = request.map_err(|error| RequestError::Other(Error::store(false, error)))?;
        let client = self.api.clone().into_client();
        let response = self.call("get", client.send(request.map(kube::client::Body::from))).await?;
        let date = response.headers().get("date").and_then(|date| date.to_str().ok());
        let time = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
        let time = time.and_then(|time| u64::try_from(time.as_second()).ok()).map(Duration::from_secs);
        let time = time.ok_or_else(|| {
            let message = "the responses of the API server have no Date header, from which fencing tokens start: remove \
                           the proxy that drops the header";
            RequestError::Other(Error::store(false, message))
        })?;
        *self.clock.lock() = Some(ClockReading { time, arrived: clock::now() });
        Ok(time)
    }

    pub(super) async fn get(&self, name: &str) -> RequestResult<Option<LeaseObject>> {
        Ok(self.call("get", self.api.get_opt(name)).await?.map(LeaseObject))
    }

    pub(super) async fn create(&self, object: &LeaseObject) -> RequestResult<LeaseObject> {
        Ok(LeaseObject(self.call("create", self.api.create(&PostParams::default(), &object.0)).await?))
    }

    /// Writes a Lease that was made from the version it names, if that version is still the newest.
    pub(super) async fn put(&self, object: &LeaseObject) -> RequestResult<LeaseObject> {
        let name = object.0.metadata.name.as_deref().unwrap_or_default();
        // Without these, the write would recreate a deleted Lease, or overwrite any version.
        let (uid, version) = object.version();
        if uid.is_empty() || version.is_empty() {
            return Err(RequestError::Conflict);
        }
        let params = PostParams::default();
        Ok(LeaseObject(self.call("update", self.api.replace(name, &params, &object.0)).await?))
    }

    /// Deletes exactly this version. Returns whether it still existed.
    pub(super) async fn delete(&self, object: &LeaseObject) -> RequestResult<bool> {
        let name = object.0.metadata.name.as_deref().unwrap_or_default();
        let (uid, version) = object.version();
        let preconditions = Some(Preconditions { uid: Some(uid), resource_version: Some(version) });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match self.call("delete", self.api.delete(name, &params)).await {
            Ok(_) => Ok(true),
            Err(RequestError::Conflict) => Ok(false),
            Err(RequestError::Other(Error::Store { source, .. })) if is_missing(source.as_ref()) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns all Leases with these labels, as of one point in time.
    pub(super) async fn list(&self, selector: &str) -> RequestResult<Vec<LeaseObject>> {
        let mut objects = Vec::new();
        let mut params = ListParams::default().labels(selector).limit(PAGE);
        loop {
            let page = self.call("list", self.api.list(&params)).await?;
            objects.extend(page.items.into_iter().map(LeaseObject));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(objects),
            }
        }
    }

    /// Returns the current version, from which a watch can start.
    pub(super) async fn newest(&self) -> RequestResult<String> {
        let page = self.call("list", self.api.list(&ListParams::default().limit(1))).await?;
        Ok(page.metadata.resource_version.unwrap_or_default())
    }

    /// Waits for a response, up to the time limit.
    pub(super) async fn call<T>(
        &self,
        verb: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> RequestResult<T> {
        match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
            Ok(response) => response.map_err(|error| self.request_error(verb, error)),
            Err(_) => Err(RequestError::Other(Error::store(
                true,
                format!("no response to {verb} within {REQUEST_TIMEOUT:?}"),
            ))),
        }
    }

    pub(super) fn request_error(&self, verb: &'static str, error: kube::Error) -> RequestError {
        let transient = match &error {
            kube::Error::Api(status) => match status.code {
                409 => return RequestError::Conflict,
                410 => return RequestError::Gone,
                403 => {
                    let (namespace, message) = (self.namespace.clone(), status.message.clone());
                    return RequestError::Other(Error::store(false, Forbidden { verb, namespace, message }));
                }
                code => code == 408 || code == 429 || code >= 500,
            },
            kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => true,
            _ => false,
        };
        RequestError::Other(Error::store(transient, error))
    }
}

fn is_missing(error: &(dyn std::error::Error + 'static)) -> bool {
    error
        .downcast_ref::<kube::Error>()
        .is_some_and(|error| matches!(error, kube::Error::Api(status) if status.code == 404))
}
