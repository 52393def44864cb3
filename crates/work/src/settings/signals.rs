//! `[signals]`

use std::time::Duration;

use holdoff_policy::MAX_DELAY;
use holdoff_policy::file::{DeTable, Reader, Section};

use super::Signals;

pub(super) const KEYS: &[&str] = &["suppress_failed", "wait", "max_waiters"];

/// The maximum of `wait`. The sender of a signal waits for the response: at most this long, plus the time of the
/// store.
const LONGEST_WAIT: Duration = Duration::from_secs(8);

pub(super) fn read(reader: &mut Reader<'_>, table: &DeTable<'_>, signals: &mut Signals) {
    let section = Section::new(reader, "[signals]", table, KEYS);
    section.duration(reader, "suppress_failed", Duration::ZERO..=MAX_DELAY, &mut signals.suppress_failed);
    section.duration(reader, "wait", Duration::ZERO..=LONGEST_WAIT, &mut signals.wait);
    section.count(reader, "max_waiters", 1..=100_000, &mut signals.max_waiters);
}
