//! The progress messages on stderr.

use std::time::Duration;

use tokio::time::Instant;

use crate::output::style::FAINT;

/// The time after which the messages end, because the schedule repeats.
const QUIET_AFTER: Duration = Duration::from_secs(60);

/// Prints events with their time. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Voice {
    since: Instant,
}

impl Voice {
    pub(super) const fn new(since: Instant) -> Self {
        Self { since }
    }

    pub(super) fn say(&self, what: &str) {
        let at = self.since.elapsed();
        if at < QUIET_AFTER {
            anstream::eprintln!("{FAINT}{:>3}s{FAINT:#}  {what}", at.as_secs());
        }
    }
}
