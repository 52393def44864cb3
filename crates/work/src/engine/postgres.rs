//! Steps in Postgres.
//!
//! Hot paths are single statements over batches. A claim locks inside the table's own subquery. A completion is fenced
//! on `(task, step, lease)` alone, because a further condition can make its plan quadratic.

mod admin;
mod filter;
mod finish;
mod policies;
mod prune;
mod queue;
mod stats;
mod submit;

pub(crate) use finish::{succeed, unblock};
pub(crate) use submit::submit;

use std::sync::{Arc, OnceLock};

use holdoff_sql::postgres::{Pool, PoolOptions, Session};
use holdoff_sql::{Component, Migration, SchemaChange};
use sqlx::types::Uuid;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::store::Result;
use crate::with_retry::{CALL_TIMEOUT, within};
use crate::{StepId, next_due};

/// The settings of every connection. The tables go from empty to millions of rows and back within minutes, so
/// statistics are always wrong. The settings make the planner find rows through their index, whatever the statistics
/// say.
const SETTINGS: &[&str] = &[
    "time zone 'UTC'",
    "lock_timeout = '5s'",
    "statement_timeout = '60s'",
    "idle_in_transaction_session_timeout = '60s'",
    "enable_seqscan = off",
    "enable_hashjoin = off",
    "enable_mergejoin = off",
    "jit = off",
];

/// Two connections are kept open: one for claims and one for reports.
const CONNECTIONS: PoolOptions = PoolOptions { settings: SETTINGS, min: 2, max: 10 };

/// The schema. Stores written before the first release, with schemas 1 to 7, cannot be read.
const COMPONENT: Component = Component {
    table: "holdoff.migrations",
    migrations: &[
        Migration {
            version: 8,
            breaks_before: 8,
            change: SchemaChange::Statements(include_str!("postgres/schema.sql")),
        },
        Migration { version: 9, breaks_before: 8, change: SchemaChange::Statements(next_due::POSTGRES) },
    ],
};

/// The channel of all notifications.
const CHANNEL: &str = "holdoff";

/// Notifies all nodes that steps may have become due.
const NOTIFY_DUE: &str = "select pg_notify('holdoff', '')";

/// The payload of the notification that another version of the policies has become active.
const POLICIES_CHANGED: &str = "policies";

/// A store in Postgres.
#[derive(Debug)]
pub(crate) struct Postgres {
    pool: Pool,
    wake: WakeChannel,
}

impl Postgres {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let pool = CONNECTIONS.open(url).await?;
        let wake = WakeChannel::new(pool.clone());
        Ok(Self { pool, wake })
    }
}

/// Wakes workers when steps become due. Listens for NOTIFY on one connection, which the first subscriber opens.
///
/// Through a pooler in transaction mode there are no notifications: this process wakes its own workers, and those of
/// other processes find the steps by polling.
#[derive(Debug)]
struct WakeChannel {
    pool: Pool,
    steps: Arc<watch::Sender<()>>,
    /// Signalled when another version of the policies may be active.
    policies: Arc<watch::Sender<()>>,
    listener: OnceLock<Option<AbortOnDropHandle<()>>>,
    /// Signalled when this process has committed steps that are due.
    committed: Arc<Notify>,
    announcer: OnceLock<AbortOnDropHandle<()>>,
}

impl WakeChannel {
    fn new(pool: Pool) -> Self {
        let channel = || Arc::new(watch::Sender::new(()));
        let (committed, announcer) = (Arc::default(), OnceLock::new());
        Self { pool, steps: channel(), policies: channel(), listener: OnceLock::new(), committed, announcer }
    }

    fn steps(&self) -> watch::Receiver<()> {
        self.listen();
        self.steps.subscribe()
    }

    fn policies(&self) -> watch::Receiver<()> {
        self.listen();
        self.policies.subscribe()
    }

    /// Notifies all nodes that steps may have become due. Call it after the commit; it does not wait.
    ///
    /// A notification inside a transaction would take a lock over the whole database at its commit. Calls that come
    /// during a notification share the next one.
    fn announce(&self) {
        if self.pool.is_pooled() {
            self.steps.send_replace(());
            return;
        }
        self.announcer.get_or_init(|| {
            let (pool, committed) = (self.pool.clone(), Arc::clone(&self.committed));
            AbortOnDropHandle::new(tokio::spawn(async move {
                loop {
                    committed.notified().await;
                    let notify = async { Ok(sqlx::query(NOTIFY_DUE).execute(&pool).await?) };
                    if let Err(error) = within(CALL_TIMEOUT, notify).await {
                        tracing::debug!(%error, "failed to notify the workers; they find the steps by polling");
                    }
                }
            }))
        });
        self.committed.notify_one();
    }

    fn listen(&self) {
        self.listener.get_or_init(|| {
            let (steps, policies) = (Arc::clone(&self.steps), Arc::clone(&self.policies));
            holdoff_sql::postgres::listen(&self.pool, CHANNEL, move |payload| {
                // If notifications may have been missed, both kinds are assumed.
                if payload.is_none_or(|payload| payload == POLICIES_CHANGED) {
                    policies.send_replace(());
                }
                if payload != Some(POLICIES_CHANGED) {
                    steps.send_replace(());
                }
            })
        });
    }
}

/// Notifies all nodes, when the transaction commits, that steps may have become due. For rare calls, and for the
/// transactions of callers who ask for it.
pub(crate) async fn notify_due(tx: &mut Session<'_>) -> Result<()> {
    sqlx::query(NOTIFY_DUE).execute(tx).await?;
    Ok(())
}

/// Restores the default planner settings for a transaction. Queries of operators are not on the hot path.
async fn default_planner(tx: &mut Session<'_>) -> Result<()> {
    let settings =
        "set local enable_seqscan = on; set local enable_hashjoin = on; set local enable_mergejoin = on";
    sqlx::raw_sql(settings).execute(tx).await?;
    Ok(())
}

/// Returns the keys of steps as two arrays.
fn key_arrays(steps: &[StepId]) -> (Vec<Uuid>, Vec<i32>) {
    steps.iter().map(|step| (step.task.as_uuid(), step.number)).unzip()
}
