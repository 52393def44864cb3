//! The state that all handlers share.

use std::sync::Arc;

use holdoff_council::acceptor::Lookout;
use holdoff_work::{Broken, Work};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use crate::acceptor::Acceptor;
use crate::events::Events;
use crate::gateway::Gateway;
use crate::keep::Keep;
use crate::lab::Lab;
use crate::ledgers::Ledgers;
use crate::locking::Locking;
use crate::pull::Pull;

/// The minimum of the maximum body size, in bytes.
const LEAST_BODY: usize = 1 << 20;
/// The number of largest payloads that fit into a body.
const PAYLOADS_IN_BODY: usize = 4;

/// The state that all handlers share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) work: Work,
    pub(crate) locking: Locking,
    pub(crate) keep: Keep,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) pull: Arc<Pull>,
    pub(crate) events: Arc<Events>,
    pub(crate) lab: Arc<Lab>,
    /// Cancelled when the daemon stops. Handlers that wait for long also wait for this.
    pub(crate) stopping: CancellationToken,
    pub(crate) metrics: Option<PrometheusHandle>,
    pub(crate) place: Arc<str>,
    /// The destinations whose circuit breaker is not closed on this node.
    pub(crate) broken: Broken,
    /// The path prefix of a proxy that also serves other applications: empty, or `/` and a name.
    pub(crate) base: Arc<str>,
    /// Whether connections use TLS.
    pub(crate) is_private: bool,
    /// The acceptor of councils in this daemon, if there is one.
    pub(crate) acceptor: Option<Arc<Acceptor>>,
    /// The ledgers in this daemon, if it has a node of any.
    pub(crate) ledgers: Option<Arc<Ledgers>>,
    /// Cancelled when the daemon begins to shut down.
    pub(crate) retiring: CancellationToken,
}

impl App {
    pub(crate) fn new(
        work: Work,
        locking: Locking,
        keep: Keep,
        metrics: Option<PrometheusHandle>,
        place: String,
        broken: Broken,
        stopping: CancellationToken,
    ) -> Self {
        Self {
            gateway: Arc::new(Gateway::new(work.clone(), locking.clone())),
            pull: Arc::new(Pull::new(work.clone())),
            events: Arc::default(),
            lab: Arc::default(),
            work,
            locking,
            keep,
            metrics,
            place: place.into(),
            broken,
            base: "".into(),
            is_private: false,
            acceptor: None,
            ledgers: None,
            stopping,
            retiring: CancellationToken::new(),
        }
    }

    /// Sets the path prefix, and whether connections use TLS.
    pub(crate) fn reached(self, prefix: &str, is_private: bool) -> Self {
        Self { base: prefix.into(), is_private, ..self }
    }

    /// Adds the acceptor and the ledgers of this daemon, if there are any.
    pub(crate) fn beside(self, acceptor: Option<Lookout>, ledgers: Option<Arc<Ledgers>>) -> Self {
        let acceptor = acceptor.map(Acceptor::new).map(Arc::new);
        Self { acceptor, ledgers, ..self }
    }

    /// Returns the maximum size of a body in bytes.
    pub(crate) fn max_body(&self) -> usize {
        self.work.settings().max_payload.saturating_mul(PAYLOADS_IN_BODY).max(LEAST_BODY)
    }
}
