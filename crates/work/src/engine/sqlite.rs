//! Steps in a SQLite file, shared by any number of processes on one machine.
//!
//! Writers begin with `begin immediate`: a transaction that reads first and writes later would find the database
//! locked, however long it waits. Arrays travel as JSON.

mod claim;
mod clock;
mod finish;
mod history;
mod migrate;
mod names;
mod operate;
#[cfg(test)]
mod plans;
mod read;
mod rescue;
mod rows;
mod select;
mod signal;
mod submit;
mod wake;

pub(crate) use finish::{succeed, unblock};
pub(crate) use submit::submit;

use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Sqlite as Db, SqlitePool, Transaction};
use tokio::sync::watch;

use crate::filter::{Action, Filter, Page};
use crate::record::{QueueStats, StepRecord, TaskRecord};
use crate::store::{
    Claimed, LaneId, NewTask, Pausable, PolicyNumber, PolicyRow, PruneRule, Receipt, Report, RescueRule,
    Rescued, Result, SignalKey, Store, Submitted, Tell, Wants, WorkerId,
};
use crate::{Error, Lane, Payload, Signalled, StepId, TaskId, clock as clocks};

/// How long a writer waits for another process.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);

/// How long a writer sleeps before it looks again whether the file is free, at least; and at most twice that.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Connections that only read.
const READERS: u32 = 4;

#[derive(Debug)]
pub(crate) struct Sqlite {
    /// One connection: SQLite has one writer at a time, and waiting for it is cheaper in here.
    writer: SqlitePool,
    readers: SqlitePool,
    /// A connection that nobody uses. A call that is given up half-way closes its connection, and a database in memory
    /// is gone with the last one.
    _anchor: Option<SqlitePool>,
    clock: clock::Clock,
    wake: wake::Wake,
}

/// A transaction that writes, and the time it all happens at.
pub(super) struct Write {
    pub(super) tx: Transaction<'static, Db>,
    pub(super) now: i64,
}

impl Sqlite {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let options = SqliteConnectOptions::from_str(url)
            .map_err(|error| Error::Address { url: url.to_owned(), why: error.to_string() })?
            .create_if_missing(true)
            .auto_vacuum(SqliteAutoVacuum::Incremental)
            .journal_mode(SqliteJournalMode::Wal)
            // What was acknowledged survives a power cut, not only a crash.
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_PATIENCE)
            .foreign_keys(false)
            .pragma("temp_store", "memory")
            .pragma("journal_size_limit", "67108864");
        let one = SqlitePoolOptions::new()
            .max_connections(1)
            .min_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .after_connect(|connection, _| Box::pin(look_once(connection)));
        let writer = one.clone().connect_with(options.clone()).await?;
        let is_in_memory = url.contains(":memory:") || url.contains("mode=memory");
        let anchor = if is_in_memory { Some(one.connect_with(options.clone()).await?) } else { None };
        let readers = if is_in_memory {
            writer.clone()
        } else {
            SqlitePoolOptions::new().max_connections(READERS).connect_with(options).await?
        };
        let wake = wake::Wake::new((!is_in_memory).then(|| readers.clone()));
        Ok(Self { writer, readers, _anchor: anchor, clock: clock::Clock::new(), wake })
    }

    /// Begins to write. The time is the largest anybody has seen, and is seen from now on.
    async fn write(&self) -> Result<Write> {
        let mut tx = begin(&self.writer).await?;
        let now = now(&mut tx, &self.clock).await?;
        Ok(Write { tx, now })
    }
}

/// The time inside somebody else's transaction.
pub(crate) async fn now_in(tx: &mut sqlx::SqliteConnection) -> Result<i64> {
    now(tx, &clock::Clock::new()).await
}

/// SQLite itself would sleep for up to 100 ms at a time: of many processes that write all the time, some would wait
/// for seconds while the file is free.
async fn look_once(connection: &mut sqlx::SqliteConnection) -> std::result::Result<(), sqlx::Error> {
    sqlx::query("pragma busy_timeout = 0").execute(connection).await?;
    Ok(())
}

/// Begins to write as soon as nobody else does.
async fn begin(writer: &SqlitePool) -> Result<Transaction<'static, Db>> {
    let until = clocks::now() + BUSY_PATIENCE;
    loop {
        match writer.begin_with("begin immediate").await.map_err(Error::store) {
            Err(error) if error.is_transient() && clocks::now() < until => {
                tokio::time::sleep(
                    LOOK_AGAIN + LOOK_AGAIN.mul_f64(f64::from(clocks::roll()) / f64::from(u32::MAX)),
                )
                .await;
            }
            begun => return begun,
        }
    }
}

async fn now(tx: &mut sqlx::SqliteConnection, clock: &clock::Clock) -> Result<i64> {
    let high: i64 = sqlx::query_scalar("update holdoff_clock set high = max(high, ?1) returning high")
        .bind(clock.now())
        .fetch_one(tx)
        .await?;
    clock.observe(high);
    // What was written, not what the clock says by now: the next writer knows only of the former.
    Ok(high)
}

#[async_trait]
impl Store for Sqlite {
    async fn migrate(&self) -> Result<()> {
        migrate::migrate(&self.writer).await
    }

    async fn publish(&self, policies: &[PolicyRow]) -> Result<Vec<PolicyNumber>> {
        names::publish(self.write().await?, policies).await
    }

    async fn policy(&self, number: PolicyNumber) -> Result<Option<String>> {
        let query = "select compiled from holdoff_policies where id = ?1";
        Ok(sqlx::query_scalar(query).bind(number).fetch_optional(&self.readers).await?)
    }

    async fn activate(&self, hash: &[u8], file: &str) -> Result<bool> {
        names::activate(self.write().await?, hash, file).await
    }

    async fn lanes(&self, lanes: &[Lane]) -> Result<Vec<LaneId>> {
        names::lanes(self.write().await?, lanes).await
    }

    async fn all_lanes(&self) -> Result<Vec<(LaneId, Lane)>> {
        names::all_lanes(&self.readers).await
    }

    async fn register(&self, name: &str) -> Result<WorkerId> {
        names::register(self.write().await?, name).await
    }

    async fn submit(&self, tasks: &[NewTask], again: bool) -> Result<Vec<Submitted>> {
        let mut write = self.write().await?;
        let submitted = submit::submit(&mut write.tx, write.now, tasks, again).await?;
        write.tx.commit().await?;
        self.wake.send();
        Ok(submitted)
    }

    async fn signal(&self, key: &SignalKey<'_>, task: &NewTask) -> Result<Signalled> {
        let signalled = signal::signal(self.write().await?, key, task).await?;
        self.wake.send();
        Ok(signalled)
    }

    async fn signal_again(&self, key: &SignalKey<'_>) -> Result<Option<Signalled>> {
        signal::signal_again(self.write().await?, key).await
    }

    async fn claim(
        &self,
        wants: &Wants,
        worker: WorkerId,
        limit: i64,
        lease: Duration,
    ) -> Result<Vec<Claimed>> {
        // Looking is free; only who finds something waits for the writer.
        if !claim::is_due(&self.readers, wants, self.clock.now()).await? {
            return Ok(Vec::new());
        }
        claim::claim(self.write().await?, wants, worker, limit, lease).await
    }

    async fn inputs(&self, steps: &[StepId]) -> Result<Vec<(StepId, String, Payload)>> {
        claim::inputs(&self.readers, steps).await
    }

    async fn renew(&self, held: &[(StepId, i64)], lease: Duration) -> Result<Vec<bool>> {
        claim::renew(self.write().await?, held, lease).await
    }

    async fn finish(&self, reports: &[Report], tell: Tell<'_>) -> Result<Vec<Receipt>> {
        let (receipts, woke) = finish::finish(self.write().await?, reports, tell).await?;
        if woke {
            self.wake.send();
        }
        Ok(receipts)
    }

    async fn rescue(&self, rule: RescueRule, tell: Tell<'_>) -> Result<Rescued> {
        if !rescue::is_any_lost(&self.readers, self.clock.now()).await? {
            return Ok(Rescued::default());
        }
        rescue::rescue(self.write().await?, rule, tell).await
    }

    async fn prune(&self, rule: PruneRule) -> Result<u64> {
        history::prune(self.write().await?, rule).await
    }

    async fn compact(&self) -> Result<()> {
        history::compact(&self.writer).await
    }

    async fn task(&self, id: TaskId) -> Result<Option<TaskRecord>> {
        read::task(&self.readers, self.clock.now(), id).await
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<StepRecord>> {
        read::list(&self.readers, self.clock.now(), filter, page).await
    }

    async fn act(&self, filter: &Filter, action: &Action) -> Result<u64> {
        let count = operate::act(self.write().await?, filter, action).await?;
        self.wake.send();
        Ok(count)
    }

    async fn pause(&self, namespace: &str, what: Pausable, name: &str, paused: bool) -> Result<()> {
        names::pause(self.write().await?, namespace, what, name, paused).await?;
        self.wake.send();
        Ok(())
    }

    async fn stats(&self, stale_after: Duration) -> Result<Vec<QueueStats>> {
        read::stats(&self.readers, self.clock.now(), stale_after).await
    }

    /// A reader keeps the log from being folded back, but only as long as it reads.
    async fn oldest_snapshot(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn wakes(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }
}
