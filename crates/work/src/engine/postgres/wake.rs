//! Wakes workers when steps become due, without continuous polling.

use std::sync::{Arc, OnceLock};

use sqlx::PgPool;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::versions::TOLD;

/// Listens for NOTIFY on one connection, which is opened by the first subscriber.
#[derive(Debug)]
pub(super) struct Wake {
    pool: PgPool,
    woken: Arc<watch::Sender<()>>,
    /// Signalled when another version of the policies may be active.
    policies: Arc<watch::Sender<()>>,
    listener: OnceLock<AbortOnDropHandle<()>>,
}

impl Wake {
    pub(super) fn new(pool: PgPool) -> Self {
        let channel = || Arc::new(watch::Sender::new(()));
        Self { pool, woken: channel(), policies: channel(), listener: OnceLock::new() }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.listen();
        self.woken.subscribe()
    }

    pub(super) fn policies(&self) -> watch::Receiver<()> {
        self.listen();
        self.policies.subscribe()
    }

    fn listen(&self) {
        self.listener.get_or_init(|| {
            let (woken, policies) = (Arc::clone(&self.woken), Arc::clone(&self.policies));
            holdoff_sql::postgres::listen(self.pool.clone(), "holdoff", move |said| {
                // If notifications may have been missed, both kinds are assumed.
                if said.is_none_or(|said| said == TOLD) {
                    policies.send_replace(());
                }
                if said != Some(TOLD) {
                    woken.send_replace(());
                }
            })
        });
    }
}
