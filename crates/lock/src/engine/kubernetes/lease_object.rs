//! The content of a Lease, and its changes. This module makes no request.

use std::collections::BTreeMap;
use std::time::Duration;

use holdoff_policy::as_micros_u64;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::key::{digest_from_hex, to_hex};
use crate::{LockKey, Nonce, Owner, Token};

pub(super) const PREFIX: &str = "holdoff-";
/// The label that all Leases of locks have, and no other Lease has.
pub(super) const SELECTOR: &str = "holdoff/kind=lock";

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const KIND: &str = "holdoff/kind";
/// As a label: a digest of the namespace, because labels are short. As an annotation: the namespace itself.
const NAMESPACE: &str = "holdoff/namespace";
const KEY: &str = "holdoff/key";
const NONCE: &str = "holdoff/nonce";
const TOKEN: &str = "holdoff/token";
const FLOOR: &str = "holdoff/floor";
const LEASE: &str = "holdoff/lease-us";
const RENEWALS: &str = "holdoff/renewals";
const TOUCHES: &str = "holdoff/touches";

/// The assumed length of a lease if another client has removed its length.
const DEFAULT_LEASE: Duration = Duration::from_secs(3600);

/// A lock, as it is stored in a Lease.
#[derive(Clone, Debug)]
pub(super) struct LeaseObject(pub(super) Lease);

/// The fields that change with each renewal and at no other time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RenewalVersion {
    uid: String,
    pub(super) nonce: Nonce,
    token: Option<Token>,
    renewals: u64,
}

impl LeaseObject {
    /// Returns a lock that was never held. It has no token, so the first grant reads the record for its starting point.
    pub(super) fn unheld(key: &LockKey) -> Self {
        let mut object = Self(Lease { spec: Some(LeaseSpec::default()), ..Lease::default() });
        object.0.metadata.name = Some(name(key.digest()));
        object.describe(key);
        object
    }

    /// Returns the uid of the object, and its version.
    pub(super) fn version(&self) -> (String, String) {
        let metadata = &self.0.metadata;
        (metadata.uid.clone().unwrap_or_default(), metadata.resource_version.clone().unwrap_or_default())
    }

    /// Returns the version as a number.
    pub(super) fn revision(&self) -> u64 {
        self.version().1.parse().unwrap_or_default()
    }

    pub(super) fn digest(&self) -> Option<[u8; 32]> {
        digest(self.0.metadata.name.as_deref()?)
    }

    pub(super) fn owner(&self) -> Option<Owner> {
        let nonce = Nonce::new(Uuid::parse_str(self.annotation(NONCE)?).ok()?);
        let name = self.0.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        Some(Owner { nonce, name })
    }

    pub(super) fn is_held_by(&self, nonce: Nonce) -> bool {
        self.owner().is_some_and(|owner| owner.nonce == nonce)
    }

    /// Returns the last granted token.
    pub(super) fn token(&self) -> Option<Token> {
        self.annotation(TOKEN)?.parse().ok()
    }

    /// Returns the recorded floor.
    pub(super) fn floor(&self) -> Option<Token> {
        self.annotation(FLOOR)?.parse().ok()
    }

    /// Returns the floor of a Lease that records no token: ten seconds after its creation on the API server's clock. In
    /// that time, the clocks of several API servers may differ without harm. The version orders the Leases that are
    /// created in the same second.
    pub(super) fn first_floor(&self) -> Token {
        let created = self.0.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
        let created = created.and_then(|second| u64::try_from(second).ok()).unwrap_or_default();
        Token::new((created + 10) * 1_000_000 + self.revision() % 1_000_000)
    }

    /// Returns the token that the next token must be above; `None` if this Lease does not record it.
    pub(super) fn highest(&self) -> Option<Token> {
        self.token().max(self.floor())
    }

    /// Returns how long the lease lasts after a renewal.
    pub(super) fn lease(&self) -> Duration {
        let exact = self.annotation(LEASE).and_then(|us| us.parse().ok()).map(Duration::from_micros);
        let seconds = self.0.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let whole = seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
        exact.or(whole).unwrap_or(DEFAULT_LEASE)
    }

    pub(super) fn renewal_version(&self) -> Option<RenewalVersion> {
        let (uid, _) = self.version();
        Some(RenewalVersion {
            uid,
            nonce: self.owner()?.nonce,
            token: self.token(),
            renewals: self.count(RENEWALS),
        })
    }

    pub(super) fn namespace(&self) -> &str {
        self.annotation(NAMESPACE).unwrap_or_default()
    }

    pub(super) fn key(&self) -> &str {
        self.annotation(KEY).unwrap_or_default()
    }

    /// Returns the time of the grant on the holder's wall clock, for display.
    pub(super) fn acquired_at(&self) -> Option<Timestamp> {
        self.0.spec.as_ref()?.acquire_time.as_ref().map(|time| time.0)
    }

    /// Returns the time of the last write on the holder's wall clock. No decision that could harm a holder depends on
    /// it.
    pub(super) fn changed_at(&self) -> Option<Timestamp> {
        let renewed = self.0.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
        renewed.or_else(|| self.0.metadata.creation_timestamp.as_ref().map(|time| time.0))
    }

    /// Grants the lock.
    pub(super) fn grant(
        &mut self,
        key: &LockKey,
        owner: &Owner,
        token: Token,
        lease: Duration,
        now: Timestamp,
    ) {
        self.describe(key);
        self.set(NONCE, owner.nonce.to_string());
        self.set(TOKEN, token.to_string());
        let spec = self.spec();
        spec.holder_identity = Some(owner.name.clone());
        spec.acquire_time = Some(MicroTime(now));
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        self.write_lease(lease, now);
    }

    /// Extends the lease to at least this length from now. It is never shortened: the holder may rely on the earlier
    /// length.
    pub(super) fn renew(&mut self, lease: Duration, now: Timestamp) {
        self.write_lease(self.lease().max(lease), now);
    }

    fn write_lease(&mut self, lease: Duration, now: Timestamp) {
        let us = as_micros_u64(lease);
        self.set(LEASE, us.to_string());
        self.set(RENEWALS, self.count(RENEWALS).saturating_add(1).to_string());
        let spec = self.spec();
        spec.lease_duration_seconds = Some(i32::try_from(us.div_ceil(1_000_000)).unwrap_or(i32::MAX).max(1));
        spec.renew_time = Some(MicroTime(now));
    }

    /// Releases the lock; the token stays.
    pub(super) fn release(&mut self, now: Timestamp) {
        self.annotations_mut().remove(NONCE);
        let spec = self.spec();
        spec.holder_identity = None;
        spec.renew_time = Some(MicroTime(now));
    }

    pub(super) fn raise_token(&mut self, token: Token) {
        self.set(TOKEN, token.to_string());
    }

    pub(super) fn raise_floor(&mut self, floor: Token) {
        self.set(FLOOR, floor.to_string());
    }

    /// Makes the next write a new version, so that a write made from the current version cannot take effect any more.
    pub(super) fn touch(&mut self) {
        self.set(TOUCHES, self.count(TOUCHES).saturating_add(1).to_string());
    }

    /// Writes the identity of the lock, for display and for selectors. Each grant repeats it, because other clients may
    /// have changed it.
    fn describe(&mut self, key: &LockKey) {
        self.set(NAMESPACE, key.namespace().to_owned());
        self.set(KEY, key.readable().to_owned());
        let labels = self.0.metadata.labels.get_or_insert_default();
        labels.insert(MANAGED_BY.to_owned(), "holdoff".to_owned());
        labels.insert(KIND.to_owned(), "lock".to_owned());
        labels.insert(NAMESPACE.to_owned(), namespace_label(key.namespace()));
    }

    fn count(&self, name: &str) -> u64 {
        self.annotation(name).and_then(|count| count.parse().ok()).unwrap_or_default()
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.0.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    fn set(&mut self, name: &str, value: String) {
        self.annotations_mut().insert(name.to_owned(), value);
    }

    fn annotations_mut(&mut self) -> &mut BTreeMap<String, String> {
        self.0.metadata.annotations.get_or_insert_default()
    }

    fn spec(&mut self) -> &mut LeaseSpec {
        self.0.spec.get_or_insert_default()
    }
}

/// Returns the selector of the locks of a namespace.
pub(super) fn selector(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{SELECTOR},{NAMESPACE}={}", namespace_label(namespace)),
        None => SELECTOR.to_owned(),
    }
}

pub(super) fn name(digest: &[u8; 32]) -> String {
    format!("{PREFIX}{}", to_hex(digest))
}

/// Returns the digest in a name that this engine has made.
pub(super) fn digest(name: &str) -> Option<[u8; 32]> {
    digest_from_hex(name.strip_prefix(PREFIX)?)
}

fn namespace_label(namespace: &str) -> String {
    // Half of the digest: the whole digest is one character longer than a label may be.
    to_hex(&Sha256::digest(namespace)).chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_lease_object_encodes_the_digest() {
        let key = LockKey::new("default", [0, 255, b'/']).unwrap();
        assert_eq!(digest(&name(key.digest())), Some(*key.digest()));
        assert!(name(key.digest()).len() <= 253);
        assert_eq!(digest("holdoff-record"), None);
        assert_eq!(digest(&format!("holdoff-{}", "ü".repeat(32))), None);
    }

    #[test]
    fn a_lease_below_a_second_is_stored_exactly_and_rounded_up_for_display() {
        let key = LockKey::new("default", "a").unwrap();
        let mut object = LeaseObject::unheld(&key);
        let owner = Owner { nonce: Nonce::random(), name: "me".to_owned() };
        object.grant(&key, &owner, Token::new(7), Duration::from_millis(1), Timestamp::UNIX_EPOCH);
        assert_eq!(object.lease(), Duration::from_millis(1));
        assert_eq!(object.0.spec.as_ref().unwrap().lease_duration_seconds, Some(1));
        let renewal_version = object.renewal_version();
        object.touch();
        assert_eq!(object.renewal_version(), renewal_version, "a touch is not a renewal");
        object.renew(Duration::ZERO, Timestamp::UNIX_EPOCH);
        assert_eq!(object.lease(), Duration::from_millis(1), "a renewal does not shorten the lease");
        object.renew(Duration::MAX, Timestamp::UNIX_EPOCH);
        assert_ne!(object.renewal_version(), renewal_version);
        assert_eq!(object.0.spec.as_ref().unwrap().lease_duration_seconds, Some(i32::MAX));
        object.release(Timestamp::UNIX_EPOCH);
        assert_eq!((object.owner(), object.token()), (None, Some(Token::new(7))));
    }
}
