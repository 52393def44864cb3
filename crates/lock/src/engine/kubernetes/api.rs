//! The API requests, and the meaning of their errors.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client};

use super::entry::Entry;
use crate::Error;

/// The time limit of a request. The outcome of a timed-out request is read back by its nonce.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 5 });
/// The number of Leases in one page of a list.
const PAGE: u32 = 500;

/// The reason why a request failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Another client wrote first: the version that the request was made from is no longer the newest.
    Conflict,
    /// The requested history is no longer available.
    Gone,
    /// Any other error.
    Other(Error),
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Conflict => store(true, "others keep changing the lease"),
            Trouble::Gone => store(true, "the API server has forgotten what it was asked for"),
            Trouble::Other(error) => error,
        }
    }
}

/// A missing permission.
#[derive(Debug, thiserror::Error)]
#[error(
    "may not {verb} leases of coordination.k8s.io in the namespace {namespace}: \
     deploy/kubernetes/lock-rbac.yaml gives what is needed ({said})"
)]
struct Forbidden {
    verb: &'static str,
    namespace: String,
    said: String,
}

/// The result of a request.
pub(super) type Tried<T> = Result<T, Trouble>;

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

    pub(super) async fn get(&self, name: &str) -> Tried<Option<Entry>> {
        Ok(self.call("get", self.api.get_opt(name)).await?.map(Entry))
    }

    pub(super) async fn create(&self, entry: &Entry) -> Tried<Entry> {
        Ok(Entry(self.call("create", self.api.create(&PostParams::default(), &entry.0)).await?))
    }

    /// Writes a Lease that was made from the version it names, if that version is still the newest.
    pub(super) async fn put(&self, entry: &Entry) -> Tried<Entry> {
        let name = entry.0.metadata.name.as_deref().unwrap_or_default();
        // Without these, the write would recreate a deleted Lease, or overwrite any version.
        let (uid, version) = entry.version();
        if uid.is_empty() || version.is_empty() {
            return Err(Trouble::Conflict);
        }
        let params = PostParams::default();
        Ok(Entry(self.call("update", self.api.replace(name, &params, &entry.0)).await?))
    }

    /// Deletes exactly this version. Returns whether it still existed.
    pub(super) async fn delete(&self, entry: &Entry) -> Tried<bool> {
        let name = entry.0.metadata.name.as_deref().unwrap_or_default();
        let (uid, version) = entry.version();
        let preconditions = Some(Preconditions { uid: Some(uid), resource_version: Some(version) });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match self.call("delete", self.api.delete(name, &params)).await {
            Ok(_) => Ok(true),
            Err(Trouble::Conflict) => Ok(false),
            Err(Trouble::Other(Error::Store { source, .. })) if is_missing(source.as_ref()) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// Returns all Leases with these labels, as of one point in time.
    pub(super) async fn list(&self, selector: &str) -> Tried<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut params = ListParams::default().labels(selector).limit(PAGE);
        loop {
            let page = self.call("list", self.api.list(&params)).await?;
            entries.extend(page.items.into_iter().map(Entry));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(entries),
            }
        }
    }

    /// Returns the current version, from which a watch can start.
    pub(super) async fn newest(&self) -> Tried<String> {
        let page = self.call("list", self.api.list(&ListParams::default().limit(1))).await?;
        Ok(page.metadata.resource_version.unwrap_or_default())
    }

    /// Waits for a response, up to the time limit.
    pub(super) async fn call<T>(
        &self,
        verb: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Tried<T> {
        match tokio::time::timeout(PATIENCE, request).await {
            Ok(answer) => answer.map_err(|error| self.trouble(verb, error)),
            Err(_) => Err(Trouble::Other(store(true, format!("no answer to {verb} within {PATIENCE:?}")))),
        }
    }

    pub(super) fn trouble(&self, verb: &'static str, error: kube::Error) -> Trouble {
        let transient = match &error {
            kube::Error::Api(status) => match status.code {
                409 => return Trouble::Conflict,
                410 => return Trouble::Gone,
                403 => {
                    let (namespace, said) = (self.namespace.clone(), status.message.clone());
                    return Trouble::Other(store(false, Forbidden { verb, namespace, said }));
                }
                code => code == 408 || code == 429 || code >= 500,
            },
            kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => true,
            _ => false,
        };
        Trouble::Other(store(transient, error))
    }
}

fn is_missing(error: &(dyn std::error::Error + 'static)) -> bool {
    error
        .downcast_ref::<kube::Error>()
        .is_some_and(|error| matches!(error, kube::Error::Api(status) if status.code == 404))
}

pub(super) fn store(transient: bool, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Store { transient, source: source.into() }
}
