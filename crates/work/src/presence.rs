//! The registration of a worker under its name. The worker reports from time to time that it is running. The store
//! removes a name that has not been reported for an hour and that no step or attempt mentions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdoff_policy::Policy;

use crate::clock;
use crate::patience::patiently;
use crate::store::{Result, Store, WorkerId};

/// The approximate interval between reports.
pub(crate) const SAY_EVERY: Duration = Duration::from_secs(10 * 60);

#[derive(Debug)]
pub(crate) struct Presence {
    pub(crate) id: WorkerId,
    name: String,
    /// The time of the last report, in seconds of this process's clock.
    said: AtomicU64,
}

impl Presence {
    /// Registers the name.
    pub(crate) async fn new(store: &dyn Store, patience: &Policy, name: &str) -> Result<Self> {
        let id = patiently(patience, |_| store.register(name)).await?;
        Ok(Self { id, name: name.to_owned(), said: AtomicU64::new(clock::now().as_secs()) })
    }

    /// Reports that the worker is running, if a report is due. A single report may fail without consequences.
    pub(crate) async fn say(&self, store: &dyn Store) {
        let (now, said) = (clock::now().as_secs(), self.said.load(Ordering::Relaxed));
        if now.saturating_sub(said) < SAY_EVERY.as_secs() {
            return;
        }
        // Of concurrent callers, one sends the report.
        if self.said.compare_exchange(said, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            && let Err(error) = store.seen(self.id, &self.name).await
        {
            tracing::debug!(%error, "the store was not told that a worker is there; it is tried again");
        }
    }
}

#[cfg(feature = "sqlite")]
#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use sqlx::{Connection, SqliteConnection};

    use super::Presence;
    use crate::{clock, engine};

    async fn names(url: &str) -> Vec<(i32, String)> {
        let mut file = SqliteConnection::connect(url).await.unwrap();
        sqlx::query_as("select id, name from holdoff_workers order by id").fetch_all(&mut file).await.unwrap()
    }

    #[tokio::test]
    async fn a_worker_that_was_forgotten_is_known_again() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("work.db").display());
        let store = engine::open(&url).await.unwrap();
        store.migrate().await.unwrap();
        let presence = Presence::new(&*store, &crate::patience::for_callers(), "here").await.unwrap();
        store.register("later").await.unwrap();
        let mut file = SqliteConnection::connect(&url).await.unwrap();
        sqlx::query("delete from holdoff_workers where name = 'here'").execute(&mut file).await.unwrap();

        presence.say(&*store).await;
        assert_eq!(names(&url).await.len(), 1, "it has said so only just now");
        // The clock is paused no longer than needed: while it is paused, a call that waits for the store would time
        // out.
        tokio::time::pause();
        tokio::time::advance(super::SAY_EVERY).await;
        tokio::time::resume();
        presence.say(&*store).await;
        assert_eq!(names(&url).await, [(presence.id, "here".to_owned()), (2, "later".to_owned())]);
        assert_eq!(presence.said.load(Ordering::Relaxed), clock::now().as_secs());
    }
}
