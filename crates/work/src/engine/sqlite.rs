//! Steps in a SQLite file, shared by any number of processes on one machine.
//!
//! Writers begin with `begin immediate`: a transaction that first reads and then writes would fail because the database
//! is locked, however long it waits. Arrays are passed as JSON.

mod claim;
mod finish;
mod history;
mod look;
mod migrate;
mod names;
mod operate;
#[cfg(test)]
mod plans;
mod pulse;
mod read;
mod rescue;
mod rows;
mod select;
mod signal;
mod submit;
mod tasks;
mod versions;
mod wake;
mod workers;

pub(super) use holdoff_sql::sqlite::Write;
pub(crate) use holdoff_sql::sqlite::now_in;

pub(crate) use finish::{succeed, unblock};
pub(crate) use submit::submit;

use std::time::Duration;

use async_trait::async_trait;
use holdoff_sql::sqlite::File;
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

#[derive(Debug)]
pub(crate) struct Sqlite {
    file: File,
    wake: wake::Wake,
}

impl Sqlite {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let file = File::open(url).await?;
        let wake = wake::Wake::new((!file.is_in_memory()).then(|| file.readers().clone()));
        Ok(Self { file, wake })
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn migrate(&self) -> Result<()> {
        Ok(self.file.migrate(&migrate::COMPONENT).await?)
    }

    async fn publish(&self, policies: &[PolicyRow]) -> Result<Vec<PolicyNumber>> {
        names::publish(self.file.write().await?, policies).await
    }

    async fn policy(&self, number: PolicyNumber) -> Result<Option<String>> {
        let query = "select compiled from holdoff_policies where id = ?1";
        Ok(sqlx::query_scalar(query).bind(number).fetch_optional(self.file.readers()).await?)
    }

    async fn activate(&self, version: &NewVersion<'_>, when: Activate) -> Result<bool> {
        let replaced = versions::activate(self.file.write().await?, version, when).await?;
        self.wake.send();
        Ok(replaced)
    }

    async fn active(&self) -> Result<Option<Vec<u8>>> {
        versions::active(self.file.readers()).await
    }

    async fn version_file(&self, hash: &[u8]) -> Result<Option<String>> {
        versions::file(self.file.readers(), hash).await
    }

    async fn versions(&self, limit: i64) -> Result<Vec<VersionRecord>> {
        versions::list(self.file.readers(), limit).await
    }

    async fn lanes(&self, lanes: &[Lane], limits: LaneLimits) -> Result<Vec<LaneId>> {
        names::lanes(self.file.write().await?, lanes, limits).await
    }

    async fn all_lanes(&self) -> Result<Vec<(LaneId, Lane)>> {
        names::all_lanes(self.file.readers()).await
    }

    async fn register(&self, name: &str) -> Result<WorkerId> {
        workers::register(self.file.write().await?, name).await
    }

    async fn seen(&self, worker: WorkerId, name: &str) -> Result<()> {
        workers::seen(self.file.write().await?, worker, name).await
    }

    async fn forget_workers(&self) -> Result<u64> {
        if !workers::is_any_old(self.file.readers(), self.file.now()).await? {
            return Ok(0);
        }
        workers::forget(self.file.write().await?).await
    }

    async fn submit(&self, tasks: &[NewTask], again: bool) -> Result<Vec<Submitted>> {
        let mut write = self.file.write().await?;
        let submitted = submit::submit(&mut write.tx, write.now, tasks, again).await?;
        write.tx.commit().await?;
        self.wake.send();
        Ok(submitted)
    }

    async fn signal(&self, key: &SignalKey<'_>, task: &NewTask) -> Result<Signalled> {
        let signalled = signal::signal(self.file.write().await?, key, task).await?;
        self.wake.send();
        Ok(signalled)
    }

    async fn signal_again(&self, key: &SignalKey<'_>) -> Result<Option<Signalled>> {
        if self.signal_task(key).await?.is_none() {
            return Ok(None);
        }
        signal::signal_again(self.file.write().await?, key).await
    }

    async fn signal_task(&self, key: &SignalKey<'_>) -> Result<Option<TaskId>> {
        signal::task(self.file.readers(), self.file.now(), key).await
    }

    async fn claim(
        &self,
        wants: &Wants,
        worker: WorkerId,
        limit: i64,
        lease: Duration,
    ) -> Result<Vec<Claimed>> {
        // Reading does not block. The call waits for the write lock only if a step is due.
        if !claim::is_due(self.file.readers(), wants, self.file.now()).await? {
            return Ok(Vec::new());
        }
        claim::claim(self.file.write().await?, wants, worker, limit, lease).await
    }

    async fn inputs(&self, steps: &[StepId]) -> Result<Vec<(StepId, String, Payload)>> {
        claim::inputs(self.file.readers(), steps).await
    }

    async fn renew(&self, held: &[(StepId, i64)], lease: Duration) -> Result<Vec<bool>> {
        claim::renew(self.file.write().await?, held, lease).await
    }

    async fn finish(&self, reports: &[Report], tell: Tell<'_>) -> Result<Vec<Receipt>> {
        let (receipts, woke) = finish::finish(self.file.write().await?, reports, tell).await?;
        if woke {
            self.wake.send();
        }
        Ok(receipts)
    }

    async fn rescue(&self, rule: RescueRule, tell: Tell<'_>) -> Result<Rescued> {
        if !rescue::is_any_lost(self.file.readers(), self.file.now()).await? {
            return Ok(Rescued::default());
        }
        rescue::rescue(self.file.write().await?, rule, tell).await
    }

    async fn prune(&self, rule: PruneRule) -> Result<u64> {
        history::prune(self.file.write().await?, rule).await
    }

    async fn compact(&self) -> Result<()> {
        history::compact(self.file.writer()).await
    }

    async fn task(&self, id: TaskId, with_payloads: bool) -> Result<Option<TaskRecord>> {
        read::task(self.file.readers(), self.file.now(), id, with_payloads).await
    }

    async fn look(&self, filter: &Filter, page: &Page) -> Result<StepPage> {
        look::look(self.file.readers(), self.file.now(), filter, page).await
    }

    async fn count(&self, filter: &Filter, most: u64) -> Result<Count> {
        look::count(self.file.readers(), self.file.now(), filter, most).await
    }

    async fn tasks(&self, filter: &Filter, before: Option<TaskId>, limit: u32) -> Result<TasksSeen> {
        tasks::tasks(self.file.readers(), self.file.now(), filter, before, limit).await
    }

    async fn signals(&self, namespace: Option<&str>, limit: u32) -> Result<Vec<SignalRecord>> {
        signal::signals(self.file.readers(), namespace, limit).await
    }

    async fn held(&self, step: StepId, lease: i64) -> Result<Option<(Claimed, Duration)>> {
        claim::held(self.file.readers(), self.file.now(), step, lease).await
    }

    async fn affected(&self, filter: &Filter, action: &Action) -> Result<u64> {
        operate::affected(self.file.readers(), self.file.now(), filter, action).await
    }

    async fn act(&self, filter: &Filter, action: &Action) -> Result<u64> {
        let count = operate::act(self.file.write().await?, filter, action).await?;
        self.wake.send();
        Ok(count)
    }

    async fn pause(&self, namespace: &str, what: Pausable, name: &str, paused: bool) -> Result<()> {
        names::pause(self.file.write().await?, namespace, what, name, paused).await?;
        self.wake.send();
        Ok(())
    }

    async fn stats(&self, stale_after: Duration) -> Result<Vec<QueueStats>> {
        read::stats(self.file.readers(), self.file.now(), stale_after).await
    }

    /// A reader delays the checkpoint of the log only while it reads.
    async fn oldest_snapshot(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    async fn beat(&self, rows: &[PulseRow], node: Option<&NodeRow>) -> Result<()> {
        pulse::beat(self.file.write_relaxed().await?, rows, node).await
    }

    async fn leave(&self, node: uuid::Uuid) -> Result<()> {
        pulse::leave(self.file.write_relaxed().await?, node).await
    }

    async fn forget(&self) -> Result<()> {
        pulse::forget(self.file.write_relaxed().await?).await
    }

    async fn pulse(&self, asked: &Asked<'_>) -> Result<Kept> {
        pulse::pulse(self.file.readers(), self.file.now(), asked).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        pulse::nodes(self.file.readers(), self.file.now()).await
    }

    fn policies_told(&self) -> watch::Receiver<()> {
        self.wake.policies()
    }

    fn wakes(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }
}
