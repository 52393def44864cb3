//! What every handler knows.

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

/// The least that a body may have.
const LEAST_BODY: usize = 1 << 20;
/// How many of the largest payloads a body has room for.
const PAYLOADS_IN_BODY: usize = 4;

/// What every handler knows. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) work: Work,
    pub(crate) locking: Locking,
    pub(crate) keep: Keep,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) pull: Arc<Pull>,
    pub(crate) events: Arc<Events>,
    pub(crate) lab: Arc<Lab>,
    /// Whoever waits for long waits for this too.
    pub(crate) stopping: CancellationToken,
    pub(crate) metrics: Option<PrometheusHandle>,
    pub(crate) place: Arc<str>,
    /// The destinations that this node leaves alone.
    pub(crate) broken: Broken,
    /// What stands before every path, where a proxy serves others beside us; nothing, or `/` and a name.
    pub(crate) base: Arc<str>,
    /// Whether connections are encrypted.
    pub(crate) is_private: bool,
    /// The acceptor of councils in this daemon, if there is one.
    pub(crate) acceptor: Option<Arc<Acceptor>>,
    /// The ledgers in this daemon, if it has a node of any.
    pub(crate) ledgers: Option<Arc<Ledgers>>,
    /// Cancelled when the daemon is on its way out.
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

    /// Reached under this path, over TLS or not.
    pub(crate) fn reached(self, prefix: &str, is_private: bool) -> Self {
        Self { base: prefix.into(), is_private, ..self }
    }

    /// With this acceptor and these ledgers beside it, as far as there are any.
    pub(crate) fn beside(self, acceptor: Option<Lookout>, ledgers: Option<Arc<Ledgers>>) -> Self {
        let acceptor = acceptor.map(Acceptor::new).map(Arc::new);
        Self { acceptor, ledgers, ..self }
    }

    /// The most bytes a body may have.
    pub(crate) fn max_body(&self) -> usize {
        self.work.settings().max_payload.saturating_mul(PAYLOADS_IN_BODY).max(LEAST_BODY)
    }
}
