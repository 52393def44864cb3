//! Receives notifications sent with NOTIFY.

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio_util::task::AbortOnDropHandle;

/// The delay before listening again after a lost connection.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// Listens on one connection until the handle is dropped. Calls back with the payload of each notification,
/// and with `None` whenever listening starts, for the first time or again, because notifications may have
/// been missed.
pub fn listen(
    pool: PgPool,
    channel: &'static str,
    told: impl Fn(Option<&str>) + Send + Sync + 'static,
) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            if let Err(error) = listen_once(&pool, channel, &told).await {
                tracing::debug!(%error, channel, "not listening; polling goes on");
            }
            tokio::time::sleep(LISTEN_AGAIN).await;
        }
    }))
}

async fn listen_once(
    pool: &PgPool,
    channel: &str,
    told: &(impl Fn(Option<&str>) + Sync),
) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(channel).await?;
    told(None);
    loop {
        // `None` means that the connection was lost and re-established.
        let heard = listener.try_recv().await?;
        told(heard.as_ref().map(sqlx::postgres::PgNotification::payload));
    }
}
