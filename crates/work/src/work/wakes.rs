//! Notifications of due steps.

use tokio::sync::watch;

use super::Work;

/// Receives a notification when steps may have become due. Notifications may be missed, so the receiver also polls.
#[derive(Debug)]
pub struct Wakes(watch::Receiver<()>);

impl Work {
    /// Subscribes to notifications that steps may have become due, on whichever node of the store.
    pub fn wakes(&self) -> Wakes {
        Wakes(self.shared.store.wakes())
    }
}

impl Wakes {
    /// Waits for the next notification.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
