//! The clocks of this engine: our own decides, the wall is for people.

use k8s_openapi::jiff::Timestamp;

pub(super) use crate::clock::now;

/// The host's wall clock.
pub(super) fn wall() -> Timestamp {
    Timestamp::now()
}
