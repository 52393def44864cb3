//! Writes this node's counts and its own status to the store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Shared, Work};
use crate::node::NodeRow;
use crate::pulse::Busy;
use crate::store::{LaneId, Report, Result};
use crate::{Lane, clock, this_process};

/// The interval between writes of the counts.
const EVERY: Duration = Duration::from_secs(2);

/// The interval at which a node without new counts reports its status.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// The interval at which old counts and nodes are deleted.
const FORGOTTEN_EVERY: Duration = Duration::from_secs(30);

impl Work {
    /// Counts runs that have ended.
    pub(crate) fn note_finished<'a>(&self, ended: impl Iterator<Item = (&'a Arc<Lane>, &'a Report)>) {
        let mut tally = self.shared.heart.tally();
        ended.for_each(|(lane, report)| tally.finished(lane, report));
        drop(tally);
        self.keep_beating();
    }

    /// Counts steps that were rescued from workers that vanished, and whether they failed finally.
    pub(crate) fn note_rescued(&self, lanes: &[(LaneId, bool)]) {
        let mut tally = self.shared.heart.tally();
        for (lane, is_given_up) in lanes {
            if let Some(known) = self.shared.names.seen_lane(*lane) {
                tally.rescued(&known.lane, *is_given_up);
            }
        }
        drop(tally);
        self.keep_beating();
    }

    /// Makes this node appear in the list of nodes.
    pub(crate) fn show(&self) {
        self.shared.heart.show();
        self.keep_beating();
    }

    /// Registers a worker of this node, and makes the node appear in the list.
    pub(crate) fn employ(&self, worker: Weak<dyn Busy>) {
        self.shared.heart.employ(worker);
        self.show();
    }

    /// Starts the background writer, unless it is running.
    pub(crate) fn keep_beating(&self) {
        if !self.shared.heart.begin() {
            return;
        }
        let beating = Beating(Arc::downgrade(&self.shared));
        // Outside of a runtime nothing can be written; the next count tries again to start the writer.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(beat(beating));
        }
    }

    /// Writes the counts, and this node's status.
    async fn beat(&self, says_so: bool) -> Result<()> {
        let Shared { heart, store, policies, .. } = &*self.shared;
        let _turn = heart.turn.lock().await;
        let (rows, finished) = heart.take();
        if rows.is_empty() && !says_so {
            return Ok(());
        }
        let (running, places) = heart.busy();
        let node = heart.is_node().then(|| NodeRow {
            id: heart.id,
            name: this_process(),
            version: env!("CARGO_PKG_VERSION"),
            policies: policies.current().id.to_string(),
            drift: policies.drift().map(|drift| drift.to_string()),
            running,
            places,
            finished,
        });
        let written = store.beat(&rows, node.as_ref()).await;
        if written.is_err() {
            heart.put_back(rows);
        }
        written
    }

    /// Writes the remaining counts. If this node has no workers left, removes it from the list.
    pub(crate) async fn rest(&self) {
        let Shared { heart, store, .. } = &*self.shared;
        let leaves = heart.is_idle();
        if leaves {
            heart.hide();
        }
        let rested = async {
            self.beat(!leaves).await?;
            if leaves { store.leave(heart.id).await } else { Ok(()) }
        };
        if let Err(error) = rested.await {
            tracing::debug!(%error, "what was counted last is lost");
        }
    }
}

/// The background writer. It is dropped when its runtime ends; then another may start.
struct Beating(Weak<Shared>);

impl Drop for Beating {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.heart.end();
        }
    }
}

async fn beat(beating: Beating) {
    let (mut said, mut forgotten) = (None, clock::now());
    loop {
        // The writer holds only a weak reference between writes, so that it does not keep the store open.
        let Some(shared) = beating.0.upgrade() else { return };
        let work = Work { shared };
        let is_node = work.shared.heart.is_node();
        let says_so = is_node && said.is_none_or(|said| clock::now().saturating_sub(said) >= SAID_EVERY);
        match work.beat(says_so).await {
            Ok(()) if says_so => said = Some(clock::now()),
            Ok(()) => {}
            Err(error) => {
                tracing::debug!(%error, "what was counted cannot be written down; it is tried again");
            }
        }
        if is_node && clock::now().saturating_sub(forgotten) >= FORGOTTEN_EVERY {
            forgotten = clock::now();
            if let Err(error) = work.shared.store.forget().await {
                tracing::debug!(%error, "old counts cannot be forgotten; it is tried again");
            }
        }
        drop(work);
        tokio::time::sleep(EVERY).await;
    }
}
