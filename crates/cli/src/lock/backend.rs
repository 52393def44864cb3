//! The backend of the locks: a store that this command opens, or a daemon whose ledger contains them.

use std::time::Duration;

use holdoff_lock::{LockFilter, Locks, Token};
use holdoff_server::{AuditEvent, LockView, StoreUrl};
use serde::Deserialize;
use serde_json::{Value, json};

use super::list::ListArgs;
use crate::api_client::{ApiClient, ApiError, DaemonAddress, read};
use crate::error::CommandError;
use crate::store;

/// The maximum number of locks in a page of the daemon.
const MAX_PAGE: usize = 1000;

/// The backend of the locks.
pub(super) enum LockBackend {
    Store {
        locks: Locks,
        store: StoreUrl,
    },
    /// The daemon at this address.
    Daemon(DaemonAddress),
}

/// A lock as displayed.
#[derive(Deserialize)]
pub(super) struct LockStatus {
    pub(super) namespace: String,
    pub(super) key: String,
    pub(super) token: Token,
    pub(super) holder: Option<HolderStatus>,
    pub(super) waiting: u32,
}

/// The holder of a lock. Times are in seconds.
#[derive(Deserialize)]
pub(super) struct HolderStatus {
    pub(super) name: String,
    pub(super) token: Token,
    held_for: f64,
    expires_in: f64,
}

#[derive(Deserialize)]
struct LockPage {
    items: Vec<Value>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct ForceReleased {
    holder: Option<HolderStatus>,
}

#[derive(Deserialize)]
struct RaisedFloor {
    floor: Token,
}

impl LockBackend {
    /// Lists the locks of this namespace, or of all namespaces, as JSON.
    pub(super) async fn list(&self, args: &ListArgs, namespace: &str) -> Result<Vec<Value>, CommandError> {
        let namespace = (!args.all).then_some(namespace);
        match self {
            Self::Store { locks, .. } => {
                let mut filter = LockFilter::default().limit(args.limit);
                if let Some(namespace) = namespace {
                    filter = filter.namespace(namespace);
                }
                if args.held {
                    filter = filter.held();
                }
                if let Some(prefix) = &args.prefix {
                    filter = filter.prefix(prefix);
                }
                Ok(locks.list(&filter).await?.iter().map(|lock| json!(LockView::new(lock))).collect())
            }
            Self::Daemon(address) => fetch_pages(&client(address, namespace)?, args).await,
        }
    }

    /// Returns one lock as JSON, or `None` if it was never held or is forgotten.
    pub(super) async fn show(&self, namespace: &str, key: &str) -> Result<Option<Value>, CommandError> {
        match self {
            Self::Store { locks, .. } => {
                Ok(locks.inspect(key).await?.map(|record| json!(LockView::new(&record))))
            }
            Self::Daemon(address) => {
                let query = [("key", key.to_owned())];
                match client(address, Some(namespace))?.get(&["show"], &query).await {
                    Ok(shown) => Ok(Some(shown)),
                    Err(ApiError::Rejected(problem)) if problem.kind() == "no-such-lock" => Ok(None),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Releases a lock by force and returns its holder. The action is recorded in the audit log.
    pub(super) async fn force_release(
        &self,
        namespace: &str,
        key: &str,
    ) -> Result<Option<HolderStatus>, CommandError> {
        match self {
            Self::Store { locks, store } => {
                let holder = locks.force_release(key).await?;
                let event = AuditEvent::new("lock.force-release", key).in_namespace(namespace);
                store::record(store, event.with_count(u64::from(holder.is_some()))).await;
                Ok(holder.map(|holder| HolderStatus {
                    name: holder.owner.name,
                    token: holder.token,
                    held_for: holder.held_for.as_secs_f64(),
                    expires_in: holder.ends_in.as_secs_f64(),
                }))
            }
            Self::Daemon(address) => {
                let daemon = client(address, Some(namespace))?;
                let released = daemon.post("force-release", json!({ "key": key }), Duration::ZERO).await?;
                Ok(read::<ForceReleased>(released)?.holder)
            }
        }
    }

    /// Raises the floor of the fencing tokens and returns it. The action is recorded in the audit log.
    pub(super) async fn raise_floor(&self, floor: Token) -> Result<Token, CommandError> {
        match self {
            Self::Store { locks, store } => {
                let floor = locks.raise_floor(floor).await?;
                store::record(store, AuditEvent::new("lock.raise-floor", floor.to_string())).await;
                Ok(floor)
            }
            Self::Daemon(address) => {
                let body = json!({ "floor": floor });
                let raised = client(address, None)?.post("raise-floor", body, Duration::ZERO).await?;
                Ok(read::<RaisedFloor>(raised)?.floor)
            }
        }
    }
}

impl HolderStatus {
    pub(super) fn held_for(&self) -> Duration {
        Duration::try_from_secs_f64(self.held_for).unwrap_or_default()
    }

    pub(super) fn expires_in(&self) -> Duration {
        Duration::try_from_secs_f64(self.expires_in).unwrap_or_default()
    }
}

fn client(address: &DaemonAddress, namespace: Option<&str>) -> Result<ApiClient, CommandError> {
    ApiClient::new(address, "/v1/locks", namespace)
}

async fn fetch_pages(daemon: &ApiClient, args: &ListArgs) -> Result<Vec<Value>, CommandError> {
    let wanted = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let mut query = vec![("limit", (wanted - found.len()).min(MAX_PAGE).to_string())];
        query.extend(args.held.then(|| ("held", "true".to_owned())));
        query.extend(args.prefix.iter().map(|prefix| ("prefix", prefix.clone())));
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let page: LockPage = read(daemon.get(&[], &query).await?)?;
        found.extend(page.items);
        cursor = page.next;
        if cursor.is_none() || found.len() >= wanted {
            return Ok(found);
        }
    }
}
