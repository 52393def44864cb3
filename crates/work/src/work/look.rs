//! Bounded queries of steps, signals, recent activity and nodes.

use std::time::Duration;

use super::Work;
use crate::filter::{Filter, Page};
use crate::look::{Count, StepPage};
use crate::node::NodeRecord;
use crate::patience::patiently;
use crate::pulse::{Asked, Level, Pulse};
use crate::record::StepRecord;
use crate::signal::SignalRecord;
use crate::store::Result;

impl Work {
    /// Returns matching steps, newest first. A call reads a bounded number of the newest steps, and returns the
    /// position to continue from. A page may be short, and even empty, before the end. Cancel-safe.
    pub async fn look(&self, filter: &Filter, page: &Page) -> Result<StepPage> {
        patiently(&self.shared.callers, |_| self.shared.store.look(filter, page)).await
    }

    /// Returns matching steps, newest first. The page is full, however many steps must be read for it, unless there are
    /// no more matches. Cancel-safe.
    pub async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<StepRecord>> {
        let mut steps = Vec::new();
        let mut page = page.clone();
        loop {
            let seen = self.look(filter, &page).await?;
            page.limit = page.limit.saturating_sub(u32::try_from(seen.steps.len()).unwrap_or(u32::MAX));
            steps.extend(seen.steps);
            match seen.next {
                Some(next) if page.limit > 0 => page.after = Some(next),
                _ => return Ok(steps),
            }
        }
    }

    /// Returns the number of matching steps, up to `most`. Like [`look`](Self::look), it reads a bounded number of the
    /// newest steps. Cancel-safe.
    pub async fn count(&self, filter: &Filter, most: u64) -> Result<Count> {
        patiently(&self.shared.callers, |_| self.shared.store.count(filter, most)).await
    }

    /// Returns at most `limit` live and recent signals, the most recent first. Cancel-safe.
    pub async fn signals(&self, namespace: Option<&str>, limit: u32) -> Result<Vec<SignalRecord>> {
        let limit = limit.clamp(1, Page::MOST);
        patiently(&self.shared.callers, |_| self.shared.store.signals(namespace, limit)).await
    }

    /// Returns the recent activity within this window, at most a day, over all nodes. The nodes' counts are a few
    /// seconds old. Buckets cover five seconds, or a minute if the window exceeds a quarter of an hour. The other
    /// counts cover whole minutes, or quarters of an hour. Cancel-safe.
    pub async fn pulse(&self, namespace: Option<&str>, window: Duration) -> Result<Pulse> {
        let level = Level::reaching(window);
        let asked = Asked { namespace, level, window: window.min(level.kept) };
        let kept = patiently(&self.shared.callers, |_| self.shared.store.pulse(&asked)).await?;
        Ok(Pulse::of(&asked, kept))
    }

    /// Returns the processes that run workers or joined the store as daemons, live ones first. Cancel-safe.
    pub async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        patiently(&self.shared.callers, |_| self.shared.store.nodes()).await
    }
}
