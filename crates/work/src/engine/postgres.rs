//! Steps in Postgres.
//!
//! Hot paths are single statements over batches. A claim locks inside the table's own subquery. A completion is fenced
//! on `(task, step, lease)` alone, because a further condition can make its plan quadratic.

mod claim;
mod finish;
mod history;
mod look;
mod migrate;
mod names;
mod operate;
mod pulse;
mod read;
mod rescue;
mod select;
mod signal;
mod submit;
mod tasks;
mod versions;
mod wake;
mod workers;

pub(crate) use finish::{succeed, unblock};
pub(crate) use submit::submit;

use std::time::Duration;

use async_trait::async_trait;
use holdoff_sql::postgres::Connections;
use sqlx::PgPool;
use tokio::sync::watch;

use crate::filter::{Action, Filter, Page};
use crate::look::{Count, StepPage, TasksSeen};
use crate::node::{NodeRecord, NodeRow};
use crate::pulse::{Asked, Kept, PulseRow};
use crate::record::{QueueStats, TaskRecord};
use crate::store::{
    Activate, Claimed, LaneId, LaneLimits, NewTask, NewVersion, Pausable, PolicyNumber, PolicyRow, PruneRule,
    Receipt, Report, RescueRule, Rescued, Result, SignalKey, Store, Submitted, Tell, Wants, WorkerId,
};
use crate::version::VersionRecord;
use crate::{Lane, Payload, SignalRecord, Signalled, StepId, TaskId};

/// The settings of every connection. The tables go from empty to millions of rows and back within minutes, so
/// statistics are always wrong. The settings make the planner find rows through their index, whatever the statistics
/// say.
const SESSION: &str = "set time zone 'UTC';
    set lock_timeout = '5s';
    set statement_timeout = '60s';
    set idle_in_transaction_session_timeout = '60s';
    set enable_seqscan = off;
    set enable_hashjoin = off;
    set enable_mergejoin = off;
    set jit = off";

/// Two connections are kept open: one for claims and one for reports.
const CONNECTIONS: Connections = Connections { session: SESSION, min: 2, max: 10 };

#[derive(Debug)]
pub(crate) struct Postgres {
    pool: PgPool,
    wake: wake::Wake,
}

impl Postgres {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let pool = CONNECTIONS.open(url).await?;
        let wake = wake::Wake::new(pool.clone());
        Ok(Self { pool, wake })
    }
}

#[async_trait]
impl Store for Postgres {
    async fn migrate(&self) -> Result<()> {
        Ok(holdoff_sql::postgres::migrate(&mut *self.pool.acquire().await?, &migrate::COMPONENT).await?)
    }

    async fn publish(&self, policies: &[PolicyRow]) -> Result<Vec<PolicyNumber>> {
        names::publish(&self.pool, policies).await
    }

    async fn policy(&self, number: PolicyNumber) -> Result<Option<String>> {
        names::policy(&self.pool, number).await
    }

    async fn activate(&self, version: &NewVersion<'_>, when: Activate) -> Result<bool> {
        versions::activate(&self.pool, version, when).await
    }

    async fn active(&self) -> Result<Option<Vec<u8>>> {
        versions::active(&self.pool).await
    }

    async fn version_file(&self, hash: &[u8]) -> Result<Option<String>> {
        versions::file(&self.pool, hash).await
    }

    async fn versions(&self, limit: i64) -> Result<Vec<VersionRecord>> {
        versions::list(&self.pool, limit).await
    }

    async fn lanes(&self, lanes: &[Lane], limits: LaneLimits) -> Result<Vec<LaneId>> {
        names::lanes(&self.pool, lanes, limits).await
    }

    async fn all_lanes(&self) -> Result<Vec<(LaneId, Lane)>> {
        names::all_lanes(&self.pool).await
    }

    async fn register(&self, name: &str) -> Result<WorkerId> {
        workers::register(&self.pool, name).await
    }

    async fn seen(&self, worker: WorkerId, name: &str) -> Result<()> {
        workers::seen(&self.pool, worker, name).await
    }

    async fn forget_workers(&self) -> Result<u64> {
        workers::forget(&self.pool).await
    }

    async fn submit(&self, tasks: &[NewTask], again: bool) -> Result<Vec<Submitted>> {
        let mut tx = self.pool.begin().await?;
        let submitted = submit::submit(&mut tx, tasks, again).await?;
        tx.commit().await?;
        Ok(submitted)
    }

    async fn signal(&self, key: &SignalKey<'_>, task: &NewTask) -> Result<Signalled> {
        signal::signal(&self.pool, key, task).await
    }

    async fn signal_again(&self, key: &SignalKey<'_>) -> Result<Option<Signalled>> {
        signal::signal_again(&self.pool, key).await
    }

    async fn signal_task(&self, key: &SignalKey<'_>) -> Result<Option<TaskId>> {
        signal::task(&self.pool, key).await
    }

    async fn claim(
        &self,
        wants: &Wants,
        worker: WorkerId,
        limit: i64,
        lease: Duration,
    ) -> Result<Vec<Claimed>> {
        claim::claim(&self.pool, wants, worker, limit, lease).await
    }

    async fn inputs(&self, steps: &[StepId]) -> Result<Vec<(StepId, String, Payload)>> {
        claim::inputs(&self.pool, steps).await
    }

    async fn renew(&self, held: &[(StepId, i64)], lease: Duration) -> Result<Vec<bool>> {
        claim::renew(&self.pool, held, lease).await
    }

    async fn finish(&self, reports: &[Report], tell: Tell<'_>) -> Result<Vec<Receipt>> {
        finish::finish(&self.pool, reports, tell).await
    }

    async fn rescue(&self, rule: RescueRule, tell: Tell<'_>) -> Result<Rescued> {
        rescue::rescue(&self.pool, rule, tell).await
    }

    async fn prune(&self, rule: PruneRule) -> Result<u64> {
        history::prune(&self.pool, rule).await
    }

    /// Does nothing: autovacuum reclaims the space.
    async fn compact(&self) -> Result<()> {
        Ok(())
    }

    async fn task(&self, id: TaskId, with_payloads: bool) -> Result<Option<TaskRecord>> {
        read::task(&self.pool, id, with_payloads).await
    }

    async fn look(&self, filter: &Filter, page: &Page) -> Result<StepPage> {
        look::look(&self.pool, filter, page).await
    }

    async fn count(&self, filter: &Filter, most: u64) -> Result<Count> {
        look::count(&self.pool, filter, most).await
    }

    async fn tasks(&self, filter: &Filter, before: Option<TaskId>, limit: u32) -> Result<TasksSeen> {
        tasks::tasks(&self.pool, filter, before, limit).await
    }

    async fn signals(&self, namespace: Option<&str>, limit: u32) -> Result<Vec<SignalRecord>> {
        signal::signals(&self.pool, namespace, limit).await
    }

    async fn held(&self, step: StepId, lease: i64) -> Result<Option<(Claimed, Duration)>> {
        claim::held(&self.pool, step, lease).await
    }

    async fn affected(&self, filter: &Filter, action: &Action) -> Result<u64> {
        operate::affected(&self.pool, filter, action).await
    }

    async fn act(&self, filter: &Filter, action: &Action) -> Result<u64> {
        operate::act(&self.pool, filter, action).await
    }

    async fn pause(&self, namespace: &str, what: Pausable, name: &str, paused: bool) -> Result<()> {
        names::pause(&self.pool, namespace, what, name, paused).await
    }

    async fn stats(&self, stale_after: Duration) -> Result<Vec<QueueStats>> {
        read::stats(&self.pool, stale_after).await
    }

    async fn oldest_snapshot(&self) -> Result<Duration> {
        history::oldest_snapshot(&self.pool).await
    }

    async fn beat(&self, rows: &[PulseRow], node: Option<&NodeRow>) -> Result<()> {
        pulse::beat(&self.pool, rows, node).await
    }

    async fn leave(&self, node: uuid::Uuid) -> Result<()> {
        pulse::leave(&self.pool, node).await
    }

    async fn forget(&self) -> Result<()> {
        pulse::forget(&self.pool).await
    }

    async fn pulse(&self, asked: &Asked<'_>) -> Result<Kept> {
        pulse::pulse(&self.pool, asked).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        pulse::nodes(&self.pool).await
    }

    fn policies_told(&self) -> watch::Receiver<()> {
        self.wake.policies()
    }

    fn wakes(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }
}
