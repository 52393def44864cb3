//! `/v1/workers`: workers in other processes that claim steps, run them, and report their outcomes.

mod claim;
mod report;

use std::time::Duration;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::forms::Wait;
use crate::app::App;
use crate::problem::{Kind, Problem};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(claim::claim))
        .routes(routes!(report::heartbeat))
        .routes(routes!(report::complete))
        .routes(routes!(report::fail))
        .routes(routes!(report::snooze))
}

/// The permitted range of a lease.
const LEASE: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);

/// Returns the requested lease of a step, or the lease of the settings.
fn lease(app: &App, wanted: Option<&Wait>) -> Result<Duration, Problem> {
    let lease = wanted.map_or(app.work.settings().lease, |Wait(lease)| *lease);
    if LEASE.contains(&lease) { Ok(lease) } else { Err(invalid("lease: expected 1s to 24h")) }
}

fn invalid(why: impl Into<String>) -> Problem {
    Problem::new(Kind::InvalidBody, why)
}
