//! Hearing that something has changed.

use tokio::sync::watch;

use super::Work;

/// Hears when steps may have become due. It may miss some: look again now and then.
#[derive(Debug)]
pub struct Wakes(watch::Receiver<()>);

impl Work {
    /// Hears when steps may have become due, by whichever node of the store.
    pub fn wakes(&self) -> Wakes {
        Wakes(self.shared.store.wakes())
    }
}

impl Wakes {
    /// Waits for the next time.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
