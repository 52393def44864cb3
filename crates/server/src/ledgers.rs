//! The ledgers of this daemon, for the API and the dashboard.

use std::collections::BTreeMap;
use std::time::Duration;

use holdoff_ledger::runtime::{DefaultMachine, Error, Host, LedgerStatus, PeerAddress};
use holdoff_ledger::{Verification, metrics};
use tokio::sync::Mutex;

use crate::clock;
use crate::problem::{Kind, Problem, jittered_retry_after};

/// A node of one ledger.
pub(crate) type Node = holdoff_ledger::runtime::Node<DefaultMachine>;

type FindByName = dyn Fn(&str) -> Option<Node> + Send + Sync;
type ListNames = dyn Fn() -> Vec<(String, bool)> + Send + Sync;

/// The timeout of a node for its status.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);

/// The ledgers of this daemon. This handle does not keep them running.
pub(crate) struct Ledgers {
    by_name: Box<FindByName>,
    names: Box<ListNames>,
    contact: PeerAddress,
    verified: Mutex<BTreeMap<String, (Duration, Verification)>>,
}

impl Ledgers {
    pub(crate) fn new(host: &Host<DefaultMachine>) -> Self {
        Self {
            by_name: Box::new(host.ledgers_by_name()),
            names: Box::new(host.names()),
            contact: host.contact(),
            verified: Mutex::default(),
        }
    }

    /// Returns the key and address of this node, as one word to copy and paste.
    pub(crate) fn contact(&self) -> &PeerAddress {
        &self.contact
    }

    /// Returns the names of all ledgers, and whether this node has joined each.
    pub(crate) fn names(&self) -> Vec<(String, bool)> {
        (self.names)()
    }

    /// Returns the nodes of all joined ledgers.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        self.names().iter().filter_map(|(name, _)| (self.by_name)(name)).collect()
    }

    /// Returns the ledger of this namespace, or `None` if this node has yet to join it.
    pub(crate) fn find(&self, namespace: &str) -> Result<Option<Node>, Problem> {
        if let Some(node) = (self.by_name)(namespace) {
            return Ok(Some(node));
        }
        let is_joining = self.names().iter().any(|(name, _)| name == namespace);
        if is_joining { Ok(None) } else { Err(no_ledger(namespace)) }
    }

    /// Returns the ledger of this namespace. Fails if this node has not joined it.
    pub(crate) fn node(&self, namespace: &str) -> Result<Node, Problem> {
        let not_yet = || {
            let contact = &self.contact;
            let detail = format!(
                "no member has added this node yet; on a member, run `holdoff ledger members add {contact}`"
            );
            Problem::new(Kind::NotJoined, detail).retry_after(jittered_retry_after())
        };
        self.find(namespace)?.ok_or_else(not_yet)
    }

    /// Returns the first node that has stopped by itself, and the reason.
    pub(crate) async fn stopped(&self) -> Option<(String, Error)> {
        for node in self.nodes() {
            if let Some(why) = why_stopped(&node).await {
                return Some((node.namespace().to_owned(), why));
            }
        }
        None
    }

    /// Updates the metrics of each ledger before a scrape.
    pub(crate) async fn set_metrics(&self) {
        for node in self.nodes() {
            match status(&node).await {
                Ok(status) => metrics::set(&status),
                Err(_) if why_stopped(&node).await.is_some() => metrics::stopped(node.namespace()),
                Err(_) => {}
            }
        }
    }

    /// Returns the result of verifying a ledger's history, at most `max_age` old. The node does nothing else during a
    /// verification. Verifications run one at a time.
    pub(crate) async fn verified(&self, node: &Node, max_age: Duration) -> Result<Verification, Problem> {
        let mut all = self.verified.lock().await;
        if let Some((at, verified)) = all.get(node.namespace())
            && clock::now().saturating_sub(*at) < max_age
        {
            return Ok(verified.clone());
        }
        let verified = with_timeout(node.verify()).await?;
        all.insert(node.namespace().to_owned(), (clock::now(), verified.clone()));
        Ok(verified)
    }
}

impl std::fmt::Debug for Ledgers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ledgers({}, {:?})", self.contact, self.names())
    }
}

/// Returns the status of a node.
pub(crate) async fn status(node: &Node) -> Result<LedgerStatus, Problem> {
    with_timeout(node.status()).await
}

/// Returns why a node has stopped, if it has.
pub(crate) async fn why_stopped(node: &Node) -> Option<Error> {
    tokio::time::timeout(Duration::ZERO, node.stopped()).await.ok()
}

/// Awaits a node's answer, with a timeout.
pub(crate) async fn with_timeout<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Problem> {
    let busy = |_| {
        let detail = format!(
            "the ledger's node did not answer within {} s; retry the request",
            NODE_TIMEOUT.as_secs()
        );
        Problem::unavailable(detail)
    };
    Ok(tokio::time::timeout(NODE_TIMEOUT, asked).await.map_err(busy)??)
}

/// Returns the problem for a missing ledger, which says how to create one.
pub(crate) fn no_ledger(namespace: &str) -> Problem {
    let detail = format!(
        "this daemon has no ledger {namespace:?}: create one with `holdoff ledger init` or join one with `holdoff ledger \
         join`, before the daemon starts"
    );
    Problem::new(Kind::UnknownLedger, detail)
}
