//! The clocks of this engine: decisions use the process's clock, and the wall clock is for display.

use k8s_openapi::jiff::Timestamp;

pub(super) use crate::clock::now;

/// Returns the time of the host's wall clock.
pub(super) fn wall() -> Timestamp {
    Timestamp::now()
}
