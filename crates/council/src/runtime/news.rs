//! What is decided, as it is told to whoever subscribes.

use std::sync::Arc;

use holdoff_paxos::Slot;
use tokio::sync::broadcast;

use crate::Applied;

/// Something that was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum News {
    /// A slot was carried out.
    Applied(Arc<Applied>),
    /// The state was taken over as a whole, for the slots up to this one are gone.
    Installed(Slot),
    /// So many were missed, because the reader was too slow: look at the state.
    Lagged(u64),
}

/// What is decided from now on, in the order of the slots.
#[derive(Debug)]
pub struct Subscription(pub(super) broadcast::Receiver<News>);

impl Subscription {
    /// The next; none when the device has stopped.
    pub async fn next(&mut self) -> Option<News> {
        match self.0.recv().await {
            Ok(news) => Some(news),
            Err(broadcast::error::RecvError::Lagged(many)) => Some(News::Lagged(many)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
