//! `/v1/workers`: workers that pull steps, run them elsewhere, and report.

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

/// How long a lease may be.
const LEASE: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);

/// How long a step is to be somebody's: as the settings say, unless it is said.
fn lease(app: &App, wanted: Option<&Wait>) -> Result<Duration, Problem> {
    let lease = wanted.map_or(app.work.settings().lease, |Wait(lease)| *lease);
    if LEASE.contains(&lease) { Ok(lease) } else { Err(invalid("lease: expected 1s to 24h")) }
}

fn invalid(why: impl Into<String>) -> Problem {
    Problem::new(Kind::InvalidBody, why)
}
