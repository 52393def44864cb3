//! The registration of a worker under its name. The worker reports from time to time that it is running. The store
//! removes a name that has not been reported for an hour and that no step or attempt mentions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdoff_policy::Policy;

use crate::clock;
use crate::store::{Result, Store, WorkerId};
use crate::with_retry::with_retry;

/// The approximate interval between reports.
pub(crate) const REPORT_EVERY: Duration = Duration::from_secs(10 * 60);

#[derive(Debug)]
pub(crate) struct WorkerRegistration {
    pub(crate) id: WorkerId,
    name: String,
    /// The time of the last report, in seconds of this process's clock.
    reported_at: AtomicU64,
}

impl WorkerRegistration {
    /// Registers the name.
    pub(crate) async fn new(store: &dyn Store, policy: &Policy, name: &str) -> Result<Self> {
        let id = with_retry(policy, |_| store.register_worker(name)).await?;
        Ok(Self { id, name: name.to_owned(), reported_at: AtomicU64::new(clock::now().as_secs()) })
    }

    /// Reports that the worker is running, if a report is due. A single report may fail without consequences.
    pub(crate) async fn report_alive(&self, store: &dyn Store) {
        let (now, reported_at) = (clock::now().as_secs(), self.reported_at.load(Ordering::Relaxed));
        if now.saturating_sub(reported_at) < REPORT_EVERY.as_secs() {
            return;
        }
        // Of concurrent callers, one sends the report.
        if self.reported_at.compare_exchange(reported_at, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            && let Err(error) = store.touch_worker(self.id, &self.name).await
        {
            tracing::debug!(%error, "failed to report that the worker is running; the next renewal reports it again");
        }
    }
}

#[cfg(feature = "sqlite")]
#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use sqlx::{Connection, SqliteConnection};

    use super::WorkerRegistration;
    use crate::{clock, engine};

    async fn names(url: &str) -> Vec<(i32, String)> {
        let mut file = SqliteConnection::connect(url).await.unwrap();
        sqlx::query_as("select id, name from holdoff_workers order by id").fetch_all(&mut file).await.unwrap()
    }

    #[tokio::test]
    async fn a_pruned_worker_is_registered_again() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("work.db").display());
        let store = engine::open(&url).await.unwrap();
        store.migrate().await.unwrap();
        let registration =
            WorkerRegistration::new(&*store, &crate::with_retry::for_callers(), "here").await.unwrap();
        store.register_worker("later").await.unwrap();
        let mut file = SqliteConnection::connect(&url).await.unwrap();
        sqlx::query("delete from holdoff_workers where name = 'here'").execute(&mut file).await.unwrap();

        registration.report_alive(&*store).await;
        assert_eq!(names(&url).await.len(), 1, "the worker has reported just now and does not report again");
        // The clock is paused no longer than needed: while it is paused, a call that waits for the store would time
        // out.
        tokio::time::pause();
        tokio::time::advance(super::REPORT_EVERY).await;
        tokio::time::resume();
        registration.report_alive(&*store).await;
        assert_eq!(names(&url).await, [(registration.id, "here".to_owned()), (2, "later".to_owned())]);
        assert_eq!(registration.reported_at.load(Ordering::Relaxed), clock::now().as_secs());
    }
}
