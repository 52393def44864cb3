//! The backend of the locks: a store that this command opens, or a daemon whose ledger contains them.

use std::time::Duration;

use holdoff_lock::{Filter, Locks};
use holdoff_server::{Deed, Place, show_lock};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::args::LockListArgs;
use crate::audit;
use crate::daemon::{Daemon, Refusal, read};
use crate::failure::Failure;

/// The maximum number of locks in a page of the daemon.
const PAGE: usize = 1000;

/// The backend of the locks.
pub(super) enum Keeper {
    Store {
        locks: Locks,
        place: Place,
    },
    /// The daemon at this address.
    Daemon(String),
}

/// A lock as displayed.
#[derive(Deserialize)]
pub(super) struct Seen {
    pub(super) namespace: String,
    pub(super) key: String,
    pub(super) token: u64,
    pub(super) holder: Option<SeenHolder>,
    pub(super) waiting: u32,
}

/// The holder of a lock. Times are in seconds.
#[derive(Deserialize)]
pub(super) struct SeenHolder {
    pub(super) name: String,
    pub(super) token: u64,
    held_for: f64,
    expires_in: f64,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Value>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Seized {
    holder: Option<SeenHolder>,
}

#[derive(Deserialize)]
struct Raised {
    era: u64,
}

impl Keeper {
    /// Lists the locks of this namespace, or of all namespaces, as JSON.
    pub(super) async fn list(&self, args: &LockListArgs, namespace: &str) -> Result<Vec<Value>, Failure> {
        let namespace = (!args.all).then_some(namespace);
        match self {
            Self::Store { locks, .. } => {
                let mut filter = Filter::default().limit(args.limit);
                if let Some(namespace) = namespace {
                    filter = filter.namespace(namespace);
                }
                if args.held {
                    filter = filter.held();
                }
                if let Some(prefix) = &args.prefix {
                    filter = filter.prefix(prefix);
                }
                Ok(locks.list(&filter).await?.iter().map(|lock| json!(show_lock(lock))).collect())
            }
            Self::Daemon(address) => pages(&locks_of(address, namespace)?, args).await,
        }
    }

    /// Returns one lock as JSON, or `None` if it was never held or is forgotten.
    pub(super) async fn show(&self, namespace: &str, key: &str) -> Result<Option<Value>, Failure> {
        match self {
            Self::Store { locks, .. } => {
                Ok(locks.inspect(key).await?.map(|record| json!(show_lock(&record))))
            }
            Self::Daemon(address) => {
                let asked = [("key", key.to_owned())];
                match locks_of(address, Some(namespace))?.get(&["show"], &asked).await {
                    Ok(shown) => Ok(Some(shown)),
                    Err(Refusal::Said(problem)) if problem.kind() == "no-such-lock" => Ok(None),
                    Err(refusal) => Err(refusal.into()),
                }
            }
        }
    }

    /// Releases a lock by force and returns its holder. The action is recorded in the audit log.
    pub(super) async fn take_away(&self, namespace: &str, key: &str) -> Result<Option<SeenHolder>, Failure> {
        match self {
            Self::Store { locks, place } => {
                let holder = locks.force_release(key).await?;
                let deed = Deed::new("lock.force-release", key).within(namespace);
                audit::note(place, deed.times(u64::from(holder.is_some()))).await;
                Ok(holder.map(|holder| SeenHolder {
                    name: holder.owner.name,
                    token: holder.token.get(),
                    held_for: holder.held_for.as_secs_f64(),
                    expires_in: holder.ends_in.as_secs_f64(),
                }))
            }
            Self::Daemon(address) => {
                let daemon = locks_of(address, Some(namespace))?;
                let seized = daemon.post("force-release", json!({ "key": key }), Duration::ZERO).await?;
                Ok(read::<Seized>(seized)?.holder)
            }
        }
    }

    /// Begins the next fencing epoch and returns it. The action is recorded in the audit log.
    pub(super) async fn raise_era(&self) -> Result<u64, Failure> {
        match self {
            Self::Store { locks, place } => {
                let era = locks.raise_era().await?;
                audit::note(place, Deed::new("lock.raise-era", era.to_string())).await;
                Ok(era)
            }
            Self::Daemon(address) => {
                let raised = locks_of(address, None)?.post("raise-era", json!({}), Duration::ZERO).await?;
                Ok(read::<Raised>(raised)?.era)
            }
        }
    }
}

impl SeenHolder {
    pub(super) fn held_for(&self) -> Duration {
        Duration::try_from_secs_f64(self.held_for).unwrap_or_default()
    }

    pub(super) fn ends_in(&self) -> Duration {
        Duration::try_from_secs_f64(self.expires_in).unwrap_or_default()
    }
}

fn locks_of(address: &str, namespace: Option<&str>) -> Result<Daemon, Failure> {
    Daemon::at(address, "/v1/locks", namespace)
}

async fn pages(daemon: &Daemon, args: &LockListArgs) -> Result<Vec<Value>, Failure> {
    let wanted = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let mut query = vec![("limit", (wanted - found.len()).min(PAGE).to_string())];
        query.extend(args.held.then(|| ("held", "true".to_owned())));
        query.extend(args.prefix.iter().map(|prefix| ("prefix", prefix.clone())));
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let page: Page = read(daemon.get(&[], &query).await?)?;
        found.extend(page.items);
        cursor = page.next;
        if cursor.is_none() || found.len() >= wanted {
            return Ok(found);
        }
    }
}
