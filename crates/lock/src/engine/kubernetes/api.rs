//! The API requests, and the meaning of their errors.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client};

use super::lease_object::LeaseObject;
use crate::Error;

/// The time limit of a request. The outcome of a timed-out request is read back by its nonce.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 5 });
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
}

impl Leases {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), namespace: namespace.to_owned() }
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
