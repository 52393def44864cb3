//! Knowing that steps have become due, without asking all the time.

use std::sync::{Arc, OnceLock};

use sqlx::PgPool;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// Listens for NOTIFY on one connection, begun when somebody first waits.
#[derive(Debug)]
pub(super) struct Wake {
    pool: PgPool,
    woken: Arc<watch::Sender<()>>,
    listener: OnceLock<AbortOnDropHandle<()>>,
}

impl Wake {
    pub(super) fn new(pool: PgPool) -> Self {
        Self { pool, woken: Arc::new(watch::Sender::new(())), listener: OnceLock::new() }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.listener.get_or_init(|| {
            let woken = Arc::clone(&self.woken);
            // Whatever is said, and whenever something may have been missed: there may be steps.
            holdoff_sql::postgres::listen(self.pool.clone(), "holdoff", move |_| {
                woken.send_replace(());
            })
        });
        self.woken.subscribe()
    }
}
