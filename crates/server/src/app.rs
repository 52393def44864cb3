//! The state that all handlers share.

use std::sync::Arc;

use holdoff_council::acceptor::AcceptorInspector;
use holdoff_work::{OpenBreakers, Work};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use crate::acceptor::LocalAcceptor;
use crate::access::Caller;
use crate::api::PullWorkers;
use crate::events::Events;
use crate::gateway::Gateway;
use crate::lab::Lab;
use crate::ledgers::Ledgers;
use crate::locking::Locking;
use crate::token_store::TokenStore;

/// The minimum of the maximum body size, in bytes.
const MIN_BODY_LIMIT: usize = 1 << 20;
/// The number of largest payloads that fit into a body.
const PAYLOADS_IN_BODY: usize = 4;

/// The state that all handlers share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) work: Work,
    pub(crate) locking: Locking,
    pub(crate) token_store: TokenStore,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) pull_workers: Arc<PullWorkers>,
    pub(crate) events: Arc<Events>,
    pub(crate) lab: Arc<Lab>,
    /// Cancelled when the daemon stops. Handlers that wait for long also wait for this.
    pub(crate) stopping: CancellationToken,
    pub(crate) metrics: Option<PrometheusHandle>,
    pub(crate) store: Arc<str>,
    /// The destinations whose circuit breaker is not closed on this node.
    pub(crate) open_breakers: OpenBreakers,
    /// The path prefix of a proxy that also serves other applications: empty, or `/` and a name.
    pub(crate) base: Arc<str>,
    /// Whether connections use TLS.
    pub(crate) has_tls: bool,
    /// The acceptor of councils in this daemon, if there is one.
    pub(crate) acceptor: Option<Arc<LocalAcceptor>>,
    /// The ledgers in this daemon, if it has a node of any.
    pub(crate) ledgers: Option<Arc<Ledgers>>,
    /// Cancelled when the daemon begins to shut down.
    pub(crate) shutting_down: CancellationToken,
}

impl App {
    pub(crate) fn new(
        work: Work,
        locking: Locking,
        token_store: TokenStore,
        metrics: Option<PrometheusHandle>,
        store: String,
        open_breakers: OpenBreakers,
        stopping: CancellationToken,
    ) -> Self {
        Self {
            gateway: Arc::new(Gateway::new(work.clone(), locking.clone())),
            pull_workers: Arc::new(PullWorkers::new(work.clone())),
            events: Arc::default(),
            lab: Arc::default(),
            work,
            locking,
            token_store,
            metrics,
            store: store.into(),
            open_breakers,
            base: "".into(),
            has_tls: false,
            acceptor: None,
            ledgers: None,
            stopping,
            shutting_down: CancellationToken::new(),
        }
    }

    /// Sets the path prefix, and whether connections use TLS.
    pub(crate) fn with_address(self, prefix: &str, has_tls: bool) -> Self {
        Self { base: prefix.into(), has_tls, ..self }
    }

    /// Adds the acceptor and the ledgers of this daemon, if there are any.
    pub(crate) fn with_nodes(
        self,
        acceptor: Option<AcceptorInspector>,
        ledgers: Option<Arc<Ledgers>>,
    ) -> Self {
        let acceptor = acceptor.map(LocalAcceptor::new).map(Arc::new);
        Self { acceptor, ledgers, ..self }
    }

    /// Returns whether a caller may see the ledger of this name: one for all namespaces may see all; one of a namespace, the
    /// ledger of that name, unless the daemons keep their locks in it.
    pub(crate) fn may_see_ledger(&self, caller: &Caller, name: &str) -> bool {
        let keeps_locks = || self.locking.ledger() == Some(name);
        caller.own_namespace().is_none_or(|own| own == name && !keeps_locks())
    }

    /// Returns the maximum size of a body in bytes.
    pub(crate) fn max_body(&self) -> usize {
        self.work.settings().max_payload.saturating_mul(PAYLOADS_IN_BODY).max(MIN_BODY_LIMIT)
    }
}
