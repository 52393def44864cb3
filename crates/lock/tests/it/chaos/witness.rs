//! A witness that reads a ledger's history as it is applied, and records every grant.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use holdoff_ledger::Slot;
use holdoff_ledger::machine::{Change, Either, Key, Value};
use holdoff_ledger::runtime::{Books, Node};

use crate::chaos::resource::Grant;

/// The prefix of the names of locks' rows.
const LOCKS: &str = "holdoff/lock/";

pub(crate) struct Witness {
    node: Node<Books>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    up_to: Slot,
    grants: Vec<Grant>,
}

impl Witness {
    /// Follows the history of this node from now on.
    pub(crate) fn of(node: Node<Books>) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (noting, mut pages) = (Arc::clone(&seen), node.subscribe(node.glance().borrow().head.index));
        tokio::spawn(async move {
            while let Ok(page) = pages.next().await {
                let page = page.expect("nothing is forgotten so soon");
                let mut seen = noting.lock().unwrap();
                if let Some(Either::Second(diff)) = page.diff() {
                    seen.grants.extend(diff.iter().filter_map(grant));
                }
                seen.up_to = page.index;
            }
        });
        Self { node, seen }
    }

    /// Waits until it has read the whole history, and returns all grants in their order.
    pub(crate) async fn grants(&self) -> Vec<Grant> {
        let head = self.node.glance().borrow().head.index;
        while self.seen.lock().unwrap().up_to < head {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        std::mem::take(&mut self.seen.lock().unwrap().grants)
    }
}

/// Returns the grant, if the change is one. Its time is after the grant, so a holder notified after that time was
/// notified too late.
#[allow(clippy::disallowed_methods, reason = "it is held against what the processes have written down")]
fn grant(change: &Change<Key, Value>) -> Option<Grant> {
    change.key.as_str().strip_prefix(LOCKS)?;
    let read = |value: &Option<Value>| match value {
        Some(Value::Text(text)) => serde_json::from_str::<serde_json::Value>(text.as_str()).ok(),
        _ => None,
    };
    let nonce = |row: &serde_json::Value| row["holder"]["owner"]["nonce"].as_str().map(str::to_owned);
    let after = read(&change.after)?;
    let holder = nonce(&after)?;
    if read(&change.before).as_ref().and_then(nonce) == Some(holder) {
        return None;
    }
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros();
    Some(Grant {
        key: after["key"].as_str().unwrap().to_owned(),
        token: after["holder"]["token"].as_i64().unwrap(),
        at: i64::try_from(at).unwrap(),
    })
}
