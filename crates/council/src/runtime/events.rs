//! The events that subscribers of a device receive.

use std::sync::Arc;

use holdoff_paxos::Slot;
use tokio::sync::broadcast;

use crate::Applied;

/// An event of a council.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CouncilEvent {
    /// The device has applied a slot.
    Applied(Arc<Applied>),
    /// The device has installed a snapshot up to this slot, because the acceptors have deleted the slots before.
    Installed(Slot),
    /// The subscriber was too slow and missed this many events. It must read the state.
    Lagged(u64),
}

/// A stream of events, in the order of the slots.
#[derive(Debug)]
pub struct EventSubscription(pub(super) broadcast::Receiver<CouncilEvent>);

impl EventSubscription {
    /// Returns the next event, or `None` when the device has stopped. Cancel-safe.
    pub async fn next(&mut self) -> Option<CouncilEvent> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(many)) => Some(CouncilEvent::Lagged(many)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
