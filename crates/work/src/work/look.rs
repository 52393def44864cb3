//! Looking at what there is and what happened, without reading more than one may.

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
    /// Steps that match, newest first. One look goes through so many of the newest steps at most, and says where to go on:
    /// a page may be short, and even empty, before the end.
    pub async fn look(&self, filter: &Filter, page: &Page) -> Result<StepPage> {
        patiently(&self.shared.callers, |_| self.shared.store.look(filter, page)).await
    }

    /// Steps that match, newest first: a full page, however many steps must be gone through for it, unless that is all.
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

    /// How many steps match, counted no further than `most`. As with a [look](Self::look), so many of the newest steps
    /// are gone through at most.
    pub async fn count(&self, filter: &Filter, most: u64) -> Result<Count> {
        patiently(&self.shared.callers, |_| self.shared.store.count(filter, most)).await
    }

    /// Signals that live or were seen lately, those first that came last; at most so many.
    pub async fn signals(&self, namespace: Option<&str>, limit: u32) -> Result<Vec<SignalRecord>> {
        let limit = limit.clamp(1, Page::MOST);
        patiently(&self.shared.callers, |_| self.shared.store.signals(namespace, limit)).await
    }

    /// What happened within this time until now, at most a day, over all nodes: as they counted it, a few seconds ago. Beats
    /// are of five seconds, or of a minute if it is more than a quarter of an hour; the rest goes by whole minutes, or
    /// by quarters of an hour.
    pub async fn pulse(&self, namespace: Option<&str>, window: Duration) -> Result<Pulse> {
        let level = Level::reaching(window);
        let asked = Asked { namespace, level, window: window.min(level.kept) };
        let kept = patiently(&self.shared.callers, |_| self.shared.store.pulse(&asked)).await?;
        Ok(Pulse::of(&asked, kept))
    }

    /// The processes that run workers, or daemons, on this store; those that live first.
    pub async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        patiently(&self.shared.callers, |_| self.shared.store.nodes()).await
    }
}
