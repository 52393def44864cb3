//! The ledgers of this daemon, as far as people see them.

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

/// How long a node may take to say how it is doing.
const PATIENCE: Duration = Duration::from_secs(2);

/// The ledgers of this daemon. Whoever keeps this does not keep them running.
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

    /// Who this node is and where, as one word to paste.
    pub(crate) fn contact(&self) -> &Contact {
        &self.contact
    }

    /// The names of all ledgers, and whether this node has joined them.
    pub(crate) fn names(&self) -> Vec<(String, bool)> {
        (self.names)()
    }

    /// All that this node has joined.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        self.names().iter().filter_map(|(name, _)| (self.by_name)(name)).collect()
    }

    /// The ledger of this namespace; nothing, if this node has yet to join it.
    pub(crate) fn find(&self, namespace: &str) -> Result<Option<Node>, Problem> {
        if let Some(node) = (self.by_name)(namespace) {
            return Ok(Some(node));
        }
        let is_joining = self.names().iter().any(|(name, _)| name == namespace);
        if is_joining { Ok(None) } else { Err(no_ledger(namespace)) }
    }

    /// The ledger of this namespace, which this node has joined.
    pub(crate) fn node(&self, namespace: &str) -> Result<Node, Problem> {
        let not_yet = || {
            let contact = &self.contact;
            let detail = format!("no member has let this node in yet: have one admit {contact}");
            Problem::new(Kind::NotJoined, detail).retry_after(spread())
        };
        self.find(namespace)?.ok_or_else(not_yet)
    }

    /// Whether a node has stopped by itself, and why: the first one that has.
    pub(crate) async fn stopped(&self) -> Option<(String, Error)> {
        for node in self.nodes() {
            if let Some(why) = why_stopped(&node).await {
                return Some((node.namespace().to_owned(), why));
            }
        }
        None
    }

    /// Sets what is counted of each ledger, for whoever is about to look.
    pub(crate) async fn set_metrics(&self) {
        for node in self.nodes() {
            match status(&node).await {
                Ok(status) => metrics::set(&status),
                Err(_) if why_stopped(&node).await.is_some() => metrics::stopped(node.namespace()),
                Err(_) => {}
            }
        }
    }

    /// What came of going over a ledger's history, now or so long ago: its node does nothing else meanwhile. One is gone
    /// over at a time.
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

/// How a node is doing.
pub(crate) async fn status(node: &Node) -> Result<Status, Problem> {
    within(node.status()).await
}

/// Why a node has stopped, if it has.
pub(crate) async fn why_stopped(node: &Node) -> Option<Error> {
    tokio::time::timeout(Duration::ZERO, node.stopped()).await.ok()
}

/// What a node answers, if it does so soon.
pub(crate) async fn within<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Problem> {
    let busy = |_| {
        let detail = format!("the ledger's node has been busy for {} s; ask again", PATIENCE.as_secs());
        Problem::unavailable(detail)
    };
    Ok(tokio::time::timeout(PATIENCE, asked).await.map_err(busy)??)
}

/// How to have one.
pub(crate) fn no_ledger(namespace: &str) -> Problem {
    let detail = format!(
        "this daemon has no ledger {namespace:?}: `holdoff ledger init` makes one and `holdoff ledger join` joins one, \
         each before the daemon is started"
    );
    Problem::new(Kind::NoLedger, detail)
}
