//! The dashboard in a real Chromium, with the real daemon and a target that fails on purpose.

mod daemon;
mod every;
mod injection;
mod interaction;
mod login;
mod policy;
mod prefix;
mod replication;
mod visitor;
mod work;

use holdoff_testbed::CONDITION_TIMEOUT;
use std::time::{Duration, Instant};

/// Polls until the condition holds, or panics after the timeout.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + CONDITION_TIMEOUT;
    while !is_so().await {
        assert!(Instant::now() < end, "timed out after {CONDITION_TIMEOUT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}
