//! What is said while it runs, to stderr.

use std::time::Duration;

use tokio::time::Instant;

use crate::output::style::FAINT;

/// After this nothing is said any more: it would only come again.
const QUIET_AFTER: Duration = Duration::from_secs(60);

/// Says what happens, with when it happened. Cheap to copy.
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
