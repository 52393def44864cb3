//! The stored Leases and the rules for changing them.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::status::ApiError;

type Result<T> = std::result::Result<T, ApiError>;

const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The namespace and the name of a Lease.
pub(super) type LeaseKey<'a> = (&'a str, &'a str);

/// One change, with the object after the change or, for a deletion, the last state of the object.
#[derive(Clone, Debug)]
pub(super) struct LeaseEvent {
    pub(super) revision: u64,
    pub(super) kind: &'static str,
    pub(super) lease: Lease,
}

/// All Leases and their history.
#[derive(Debug)]
pub(super) struct Cluster {
    revision: u64,
    leases: BTreeMap<(String, String), Lease>,
    history: Vec<LeaseEvent>,
    forgotten: u64,
}

impl Default for Cluster {
    /// Creates an empty cluster. The revision starts at 1, because version 0 in a request means "any".
    fn default() -> Self {
        Self { revision: 1, leases: BTreeMap::new(), history: Vec::new(), forgotten: 0 }
    }
}

impl Cluster {
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn forget_history(&mut self) {
        // A later revision than any that a client can have seen.
        self.revision += 1;
        self.forgotten = self.revision;
    }

    pub(super) fn get(&self, (namespace, name): LeaseKey<'_>) -> Result<Lease> {
        self.find((namespace, name)).cloned().ok_or_else(|| ApiError::not_found(name))
    }

    pub(super) fn create(&mut self, namespace: &str, mut lease: Lease) -> Result<Lease> {
        let name = lease.metadata.name.clone().unwrap_or_default();
        if lease.metadata.resource_version.take().is_some_and(|version| !version.is_empty()) {
            return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
        }
        validate(&name, &lease)?;
        if self.find((namespace, &name)).is_some() {
            return Err(ApiError::already_exists(&name));
        }
        lease.metadata.namespace = Some(namespace.to_owned());
        lease.metadata.uid = Some(format!("00000000-0000-4000-8000-{:012x}", self.revision + 1));
        lease.metadata.creation_timestamp = Some(Time(Timestamp::now()));
        Ok(self.store("ADDED", (namespace, &name), lease))
    }

    /// Updates a Lease; returns whether the update created it, and its new state. An update may create a
    /// Lease, unless it names the UID of a specific object.
    pub(super) fn update(&mut self, (namespace, name): LeaseKey<'_>, lease: Lease) -> Result<(bool, Lease)> {
        if lease.metadata.name.as_deref() != Some(name) {
            return Err(ApiError::bad_request("the name of the object does not match the name on the URL"));
        }
        let uid = lease.metadata.uid.clone().filter(|uid| !uid.is_empty());
        let Some(current) = self.find((namespace, name)) else {
            if uid.is_some() {
                return Err(ApiError::conflict(name, "Precondition failed: UID in precondition"));
            }
            let mut lease = lease;
            lease.metadata.resource_version = None;
            return Ok((true, self.create(namespace, lease)?));
        };
        if uid.is_some() && uid != current.metadata.uid {
            return Err(ApiError::conflict(name, "Precondition failed: UID in precondition"));
        }
        if lease
            .metadata
            .resource_version
            .as_deref()
            .is_none_or(|version| version.is_empty() || version == "0")
        {
            let why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
            return Err(ApiError::invalid(name, why));
        }
        if lease.metadata.resource_version != current.metadata.resource_version {
            return Err(ApiError::modified(name));
        }
        Ok((false, self.change((namespace, name), lease)?))
    }

    /// Merges a patch; checks the version only if the patch contains one.
    pub(super) fn patch(&mut self, (namespace, name): LeaseKey<'_>, patch: &Value) -> Result<Lease> {
        let current = self.get((namespace, name))?;
        let mut merged = serde_json::to_value(&current).unwrap_or_default();
        merge(&mut merged, patch);
        let merged: Lease =
            serde_json::from_value(merged).map_err(|error| ApiError::bad_request(error.to_string()))?;
        if merged.metadata.resource_version != current.metadata.resource_version {
            return Err(ApiError::modified(name));
        }
        self.change((namespace, name), merged)
    }

    /// Like a patch, but creates a missing Lease. Field ownership is not tracked.
    pub(super) fn apply(&mut self, (namespace, name): LeaseKey<'_>, wanted: &Value) -> Result<(bool, Lease)> {
        if self.find((namespace, name)).is_some() {
            return Ok((false, self.patch((namespace, name), wanted)?));
        }
        let lease: Lease = serde_json::from_value(wanted.clone())
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        if lease.metadata.resource_version.is_some() || lease.metadata.uid.is_some() {
            return Err(ApiError::modified(name));
        }
        Ok((true, self.create(namespace, lease)?))
    }

    /// Deletes a Lease, if it matches the preconditions.
    pub(super) fn delete(
        &mut self,
        (namespace, name): LeaseKey<'_>,
        uid: Option<&str>,
        version: Option<&str>,
    ) -> Result<Lease> {
        let lease = self.get((namespace, name))?;
        let is_other = |meant: Option<&str>, found: Option<&String>| {
            meant.is_some_and(|meant| found.is_none_or(|found| found != meant))
        };
        if is_other(uid, lease.metadata.uid.as_ref()) {
            return Err(ApiError::conflict(name, "Precondition failed: UID in precondition"));
        }
        if is_other(version, lease.metadata.resource_version.as_ref()) {
            return Err(ApiError::conflict(name, "Precondition failed: ResourceVersion in precondition"));
        }
        self.leases.remove(&(namespace.to_owned(), name.to_owned()));
        Ok(self.record("DELETED", lease))
    }

    /// Returns the Leases of a namespace at a revision, by name.
    pub(super) fn at(&self, revision: u64, namespace: &str) -> Result<BTreeMap<String, Lease>> {
        self.check_known(revision)?;
        let mut leases = BTreeMap::new();
        for change in self.of(namespace).take_while(|change| change.revision <= revision) {
            let name = change.lease.metadata.name.clone().unwrap_or_default();
            match change.kind {
                "DELETED" => leases.remove(&name),
                _ => leases.insert(name, change.lease.clone()),
            };
        }
        Ok(leases)
    }

    /// Returns the changes in a namespace after a revision.
    pub(super) fn since(&self, revision: u64, namespace: &str) -> Result<Vec<LeaseEvent>> {
        self.check_known(revision)?;
        Ok(self.of(namespace).filter(|change| change.revision > revision).cloned().collect())
    }

    fn check_known(&self, revision: u64) -> Result<()> {
        if revision < self.forgotten {
            return Err(ApiError::expired(revision, self.forgotten));
        }
        Ok(())
    }

    fn of(&self, namespace: &str) -> impl Iterator<Item = &LeaseEvent> {
        self.history
            .iter()
            .filter(move |change| change.lease.metadata.namespace.as_deref() == Some(namespace))
    }

    fn find(&self, (namespace, name): LeaseKey<'_>) -> Option<&Lease> {
        self.leases.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// Changes an existing Lease. Fields that the server sets are preserved, and a change without effect
    /// creates no new version.
    fn change(&mut self, (namespace, name): LeaseKey<'_>, mut lease: Lease) -> Result<Lease> {
        validate(name, &lease)?;
        let current = self.get((namespace, name))?;
        lease.metadata.namespace.clone_from(&current.metadata.namespace);
        lease.metadata.uid.clone_from(&current.metadata.uid);
        lease.metadata.creation_timestamp.clone_from(&current.metadata.creation_timestamp);
        if lease == current {
            return Ok(current);
        }
        Ok(self.store("MODIFIED", (namespace, name), lease))
    }

    fn store(&mut self, kind: &'static str, (namespace, name): LeaseKey<'_>, lease: Lease) -> Lease {
        let lease = self.record(kind, lease);
        self.leases.insert((namespace.to_owned(), name.to_owned()), lease.clone());
        lease
    }

    fn record(&mut self, kind: &'static str, mut lease: Lease) -> Lease {
        self.revision += 1;
        lease.metadata.resource_version = Some(self.revision.to_string());
        self.history.push(LeaseEvent { revision: self.revision, kind, lease: lease.clone() });
        lease
    }
}

/// Merges a patch by RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Validates a Lease.
fn validate(name: &str, lease: &Lease) -> Result<()> {
    let invalid = |why: &str| Err(ApiError::invalid(name, why));
    if !is_subdomain(name) {
        return invalid("metadata.name: Invalid value: a lowercase RFC 1123 subdomain must consist of …");
    }
    for (key, value) in lease.metadata.labels.iter().flatten() {
        if !is_qualified(key) || !(value.is_empty() || is_label(value)) {
            return invalid(&format!("metadata.labels: Invalid value: {key}={value}"));
        }
    }
    let annotations = lease.metadata.annotations.iter().flatten();
    if !annotations.clone().all(|(key, _)| is_qualified(&key.to_lowercase())) {
        return invalid("metadata.annotations: Invalid value: a qualified name must consist of …");
    }
    if annotations.map(|(key, value)| key.len() + value.len()).sum::<usize>() > MAX_ANNOTATIONS {
        return invalid("metadata.annotations: Too long: may not be more than 262144 bytes");
    }
    let Some(spec) = &lease.spec else { return Ok(()) };
    if spec.lease_duration_seconds.is_some_and(|seconds| seconds <= 0) {
        return invalid("spec.leaseDurationSeconds: Invalid value: must be greater than 0");
    }
    if spec.lease_transitions.is_some_and(|transitions| transitions < 0) {
        return invalid("spec.leaseTransitions: Invalid value: must be greater than or equal to 0");
    }
    Ok(())
}

fn is_subdomain(name: &str) -> bool {
    let is_part = |part: &str| {
        let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = part.as_bytes();
        bytes.first().is_some_and(inner)
            && bytes.last().is_some_and(inner)
            && bytes.iter().all(|byte| inner(byte) || *byte == b'-')
    };
    name.len() <= MAX_NAME && name.split('.').all(is_part)
}

/// Returns whether a key is valid: a name, optionally after a domain and a slash.
fn is_qualified(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_label(name),
        None => is_label(key),
    }
}

fn is_label(value: &str) -> bool {
    let outer = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = value.as_bytes();
    bytes.len() <= MAX_LABEL
        && bytes.first().is_some_and(outer)
        && bytes.last().is_some_and(outer)
        && bytes.iter().all(|byte| outer(byte) || b"-_.".contains(byte))
}
