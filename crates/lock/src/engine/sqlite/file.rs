//! The file, and the clock that its leases are measured with.
//!
//! All users of a file are on one machine, so all can read the time since its boot: a clock that cannot be set, that
//! keeps running while the machine is suspended, and that is the same in all processes. The wall clock is not suitable:
//! if it is set an hour forward, all leases expire at once, and no holder notices.
//!
//! A reboot resets the clock. All holders of that time are gone, so all leases have expired.

use holdoff_sql::Component;
use holdoff_sql::sqlite::{self, Write};
use sqlx::SqlitePool;

use crate::clock;
use crate::store::Result;

/// An open file of locks.
#[derive(Debug)]
pub(super) struct File(sqlite::File);

impl File {
    /// Opens the file at this URL, migrates its tables, and expires the leases of an earlier boot.
    pub(super) async fn open(url: &str, component: &Component) -> Result<Self> {
        let file = sqlite::File::open(url).await?;
        file.migrate(component).await?;
        let mut write = file.write().await?;
        let query = "update holdoff_lock_facts set boot = ?1 where boot <> ?1";
        let is_new =
            sqlx::query(query).bind(clock::boot()).execute(&mut *write.tx).await?.rows_affected() > 0;
        if is_new {
            let over = "update holdoff_locks set since = 0, until = 0, next_until = 0;
                delete from holdoff_lock_waiters";
            sqlx::raw_sql(over).execute(&mut *write.tx).await?;
        }
        write.tx.commit().await?;
        Ok(Self(file))
    }

    /// Begins a write transaction that survives a power cut.
    pub(super) async fn write(&self) -> Result<Write> {
        let write = self.0.write().await?;
        Ok(Write { now: self.now(), ..write })
    }

    /// Begins a write transaction that a power cut may undo, but a crash of this program does not.
    pub(super) async fn write_relaxed(&self) -> Result<Write> {
        let write = self.0.write_relaxed().await?;
        Ok(Write { now: self.now(), ..write })
    }

    pub(super) fn readers(&self) -> &SqlitePool {
        self.0.readers()
    }

    /// Returns the time in microseconds since the machine was booted.
    #[allow(clippy::unused_self, reason = "it is the clock of files")]
    pub(super) fn now(&self) -> i64 {
        i64::try_from(clock::since_boot().as_micros()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::sqlite::Sqlite;
    use crate::store::{Answer, Bid, LeaseStore as _};
    use crate::{Key, Nonce, Owner, Token};

    #[tokio::test]
    async fn when_the_machine_was_started_again_all_leases_are_over_and_tokens_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("a.db").display());
        let bid = || Bid {
            key: Key::new("default", "a").unwrap(),
            owner: Owner { nonce: Nonce::fresh(), name: "somebody".to_owned() },
            lease: std::time::Duration::from_secs(3600),
            waits: None,
        };
        let before = Sqlite::open(&url).await.unwrap();
        assert!(matches!(before.try_acquire(&bid()).await.unwrap(), Answer::Granted(_)));
        let again = Sqlite::open(&url).await.unwrap();
        assert!(matches!(again.try_acquire(&bid()).await.unwrap(), Answer::Held(_)), "it is the same start");
        let mut write = again.file.write().await.unwrap();
        let query = "update holdoff_lock_facts set boot = 'another'";
        sqlx::query(query).execute(&mut *write.tx).await.unwrap();
        write.tx.commit().await.unwrap();
        let after = Sqlite::open(&url).await.unwrap();
        let Answer::Granted(token) = after.try_acquire(&bid()).await.unwrap() else { panic!("it is over") };
        assert_eq!(token, Token::new(2));
    }
}
