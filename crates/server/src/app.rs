//! What every handler knows.

use std::sync::Arc;

use holdoff_lock::Locks;
use holdoff_work::Work;
use metrics_exporter_prometheus::PrometheusHandle;

use crate::gateway::Gateway;
use crate::keep::Keep;

/// The least that a body may have.
const LEAST_BODY: usize = 1 << 20;
/// How many of the largest payloads a body has room for.
const PAYLOADS_IN_BODY: usize = 4;

/// What every handler knows. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) work: Work,
    pub(crate) locks: Locks,
    pub(crate) keep: Keep,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) metrics: Option<PrometheusHandle>,
    pub(crate) place: Arc<str>,
}

impl App {
    pub(crate) fn new(
        work: Work,
        locks: Locks,
        keep: Keep,
        metrics: Option<PrometheusHandle>,
        place: String,
    ) -> Self {
        let gateway = Arc::new(Gateway::new(work.clone(), locks.clone()));
        Self { work, locks, keep, gateway, metrics, place: place.into() }
    }

    /// The most bytes a body may have.
    pub(crate) fn max_body(&self) -> usize {
        self.work.settings().max_payload.saturating_mul(PAYLOADS_IN_BODY).max(LEAST_BODY)
    }
}
