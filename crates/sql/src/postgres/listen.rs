//! Hearing what others say by NOTIFY.

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio_util::task::AbortOnDropHandle;

/// How long to wait before listening again, when the connection was lost.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// Listens on one connection until the handle is dropped. Calls back with what was said; with nothing when listening
/// begins, first or again: something may have been missed.
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
        // Nothing means that the connection was lost and made again.
        let heard = listener.try_recv().await?;
        told(heard.as_ref().map(sqlx::postgres::PgNotification::payload));
    }
}
