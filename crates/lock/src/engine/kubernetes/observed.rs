//! Leases of other processes, as this process has observed them, and the time since which each has not been renewed.
//!
//! A lease has expired when it was unrenewed for its own duration between two observations, on this process's clock. No
//! wall clock, neither the observer's nor the holder's, takes part in it. A process that has just started to observe a
//! lock waits a whole lease for a dead holder. A process that learns of a renewal late only waits longer.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::lease_object::{LeaseObject, RenewalVersion};
use crate::engine::optimistic::ObservationTable;

#[derive(Debug, Default)]
pub(super) struct ObservedLeases(ObservationTable<LeaseObservation>);

#[derive(Debug)]
struct LeaseObservation {
    renewal_version: RenewalVersion,
    /// The time at which this renewal version was first observed.
    since: Duration,
    /// The time at which this holder was first observed.
    held_since: Duration,
}

/// The observed age of a held lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Age {
    /// The lease was not renewed for at least this long.
    pub(super) unrenewed_for: Duration,
    /// This holder has held the lock for at least this long.
    pub(super) held_for: Duration,
}

impl ObservedLeases {
    /// Records an observation with its start and end, both on this process's clock.
    pub(super) fn observe(
        &mut self,
        digest: [u8; 32],
        renewal_version: RenewalVersion,
        begun: Duration,
        ended: Duration,
    ) -> Age {
        let observation = self.0.get_or_insert(&digest, ended, || LeaseObservation {
            renewal_version: renewal_version.clone(),
            since: ended,
            held_since: ended,
        });
        if observation.renewal_version != renewal_version {
            observation.since = ended;
        }
        if observation.renewal_version.nonce != renewal_version.nonce {
            observation.held_since = ended;
        }
        observation.renewal_version = renewal_version;
        // From the end of the first request to the start of this one: the responses were made between them.
        Age {
            unrenewed_for: begun.saturating_sub(observation.since),
            held_for: begun.saturating_sub(observation.held_since),
        }
    }

    /// Removes a lock that is no longer held.
    pub(super) fn remove(&mut self, digest: &[u8; 32]) {
        self.0.remove(digest);
    }
}

/// The maximum number of entries. Beyond it, each renewal reads first.
const MAX_WRITTEN: usize = 10_000;

/// The last written versions of locks that this process holds. With them, a renewal or release takes one request.
#[derive(Debug, Default)]
pub(super) struct LastWritten(Mutex<HashMap<[u8; 32], LeaseObject>>);

impl LastWritten {
    /// Stores a written version if the lock is held.
    pub(super) fn insert(&self, object: LeaseObject) {
        let (Some(digest), Some(_)) = (object.digest(), object.owner()) else { return };
        let mut map = self.0.lock();
        // Entries of lost locks may never be used again.
        if map.len() >= MAX_WRITTEN && !map.contains_key(&digest) {
            map.clear();
        }
        map.insert(digest, object);
    }

    pub(super) fn take(&self, digest: &[u8; 32]) -> Option<LeaseObject> {
        self.0.lock().remove(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::kubernetes::lease_object::LeaseObject;
    use crate::{LockKey, Nonce, Owner, Token};
    use k8s_openapi::jiff::Timestamp;

    const SECOND: Duration = Duration::from_secs(1);

    fn held() -> LeaseObject {
        let key = LockKey::new("default", "a").unwrap();
        let mut object = LeaseObject::unheld(&key);
        let owner = Owner { nonce: Nonce::random(), name: String::new() };
        object.grant(&key, &owner, Token::new(1), SECOND, Timestamp::UNIX_EPOCH);
        object
    }

    #[test]
    fn only_the_time_between_two_observations_counts() {
        let (mut observed, mut object) = (ObservedLeases::default(), held());
        let mut observe = |object: &LeaseObject, begun: u32, ended: u32| {
            observed.observe([0; 32], object.renewal_version().unwrap(), SECOND * begun, SECOND * ended)
        };
        assert_eq!(observe(&object, 1, 5).unrenewed_for, Duration::ZERO);
        assert_eq!(observe(&object, 7, 20).unrenewed_for, SECOND * 2, "the response times do not count");
        object.renew(SECOND, Timestamp::UNIX_EPOCH);
        let age = observe(&object, 30, 31);
        assert_eq!((age.unrenewed_for, age.held_for), (Duration::ZERO, SECOND * 25));
        assert_eq!(
            observe(&held(), 40, 41).held_for,
            Duration::ZERO,
            "another holder starts a new observation"
        );
    }
}
