//! Knowing that steps have become due, without asking all the time.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// How long to wait before listening again, when the connection was lost. Polling goes on meanwhile.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

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
            AbortOnDropHandle::new(tokio::spawn(listen(self.pool.clone(), Arc::clone(&self.woken))))
        });
        self.woken.subscribe()
    }
}

async fn listen(pool: PgPool, woken: Arc<watch::Sender<()>>) {
    loop {
        if let Err(error) = listen_once(&pool, &woken).await {
            tracing::debug!(%error, "not listening for new steps; polling goes on");
        }
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}

async fn listen_once(pool: &PgPool, woken: &watch::Sender<()>) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen("holdoff").await?;
    loop {
        // Nothing means that the connection was lost and made again: something may have been missed.
        listener.try_recv().await?;
        woken.send_replace(());
    }
}
