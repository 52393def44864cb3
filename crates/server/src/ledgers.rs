//! The ledgers of this daemon, for the API and the dashboard.

use std::collections::BTreeMap;
use std::time::Duration;

use holdoff_ledger::runtime::{Books, Contact, Error, Host, Status};
use holdoff_ledger::{Verified, metrics};
use tokio::sync::Mutex;

use crate::clock;
use crate::problem::{Kind, Problem, spread};

/// A node of one ledger.
pub(crate) type Node = holdoff_ledger::runtime::Node<Books>;

type ByName = dyn Fn(&str) -> Option<Node> + Send + Sync;
type Names = dyn Fn() -> Vec<(String, bool)> + Send + Sync;

/// The timeout of a node for its status.
const PATIENCE: Duration = Duration::from_secs(2);

/// The ledgers of this daemon. This handle does not keep them running.
pub(crate) struct Ledgers {
    by_name: Box<ByName>,
    names: Box<Names>,
    contact: Contact,
    verified: Mutex<BTreeMap<String, (Duration, Verified)>>,
}

impl Ledgers {
    pub(crate) fn new(host: &Host<Books>) -> Self {
        Self {
            by_name: Box::new(host.ledgers_by_name()),
            names: Box::new(host.names()),
            contact: host.contact(),
            verified: Mutex::default(),
        }
    }

    /// Returns the key and address of this node, as one word to copy and paste.
    pub(crate) fn contact(&self) -> &Contact {
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
            let detail = format!("no member has let this node in yet: have one admit {contact}");
            Problem::new(Kind::NotJoined, detail).retry_after(spread())
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

    /// Returns the result of verifying a ledger's history, at most `ago` old. The node does nothing else during a
    /// verification. Verifications run one at a time.
    pub(crate) async fn verified(&self, node: &Node, ago: Duration) -> Result<Verified, Problem> {
        let mut all = self.verified.lock().await;
        if let Some((at, verified)) = all.get(node.namespace())
            && clock::now().saturating_sub(*at) < ago
        {
            return Ok(verified.clone());
        }
        let verified = within(node.verify()).await?;
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
pub(crate) async fn status(node: &Node) -> Result<Status, Problem> {
    within(node.status()).await
}

/// Returns why a node has stopped, if it has.
pub(crate) async fn why_stopped(node: &Node) -> Option<Error> {
    tokio::time::timeout(Duration::ZERO, node.stopped()).await.ok()
}

/// Awaits a node's answer, with a timeout.
pub(crate) async fn within<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Problem> {
    let busy = |_| {
        let detail = format!("the ledger's node has been busy for {} s; ask again", PATIENCE.as_secs());
        Problem::unavailable(detail)
    };
    Ok(tokio::time::timeout(PATIENCE, asked).await.map_err(busy)??)
}

/// Returns the problem for a missing ledger, which says how to create one.
pub(crate) fn no_ledger(namespace: &str) -> Problem {
    let detail = format!(
        "this daemon has no ledger {namespace:?}: `holdoff ledger init` makes one and `holdoff ledger join` joins one, \
         each before the daemon is started"
    );
    Problem::new(Kind::NoLedger, detail)
}
