//! What the store holds, counted when nothing moves any more.

use std::collections::HashSet;

use holdoff_lock::Locks;
use holdoff_work::{Filter, Outcome, Page, StepState, Work};

use super::rivals::DEPLOY;
use super::storm::ALERT;
use super::summary::{Attempts, Stored};

/// Counts everything.
pub(super) async fn count(work: &Work, locks: &Locks) -> Result<Stored, String> {
    let said = |error: holdoff_work::Error| error.to_string();
    let lanes = work.stats().await.map_err(said)?;
    let paused: HashSet<_> = lanes
        .into_iter()
        .filter(|lane| lane.paused)
        .map(|lane| (lane.namespace, lane.queue, lane.operation))
        .collect();
    let (mut stored, mut tasks) = (Stored::default(), HashSet::new());
    let mut page = Page::first(Page::MOST);
    loop {
        let steps = work.list(&Filter::default(), &page).await.map_err(said)?;
        let Some(last) = steps.last().map(|step| step.id) else { break };
        for step in steps {
            let is_new = tasks.insert(step.id.task);
            stored.alerts += u64::from(is_new && step.operation == ALERT);
            if step.destination.is_some() {
                stored.requests.insert(step.id.to_string(), step.state);
            }
            let lane = (step.namespace, step.queue, step.operation);
            if step.state == StepState::Ready && paused.contains(&lane) {
                stored.steps.left.paused += 1;
            } else {
                stored.steps.count(step.state);
            }
        }
        page = page.after(last);
    }
    stored.tasks = tasks.len() as u64;
    stored.attempts.made = stored.steps.succeeded;
    for task in tasks {
        let Some(task) = work.task(task).await.map_err(said)? else { continue };
        task.attempts.iter().for_each(|attempt| stored.attempts.count(attempt.outcome));
    }
    let lock = locks.inspect(DEPLOY).await.map_err(|error| error.to_string())?;
    stored.token = lock.map_or(0, |lock| lock.token.get());
    Ok(stored)
}

impl Attempts {
    /// Counts one that did not succeed. What was put back without having been tried is none.
    const fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Retried => self.retried += 1,
            Outcome::Rescued => self.rescued += 1,
            Outcome::Failed | Outcome::Conflicted => {}
            _ => return,
        }
        self.made += 1;
    }
}

/// Whether everything is over that can end by itself.
pub(super) async fn is_drained(work: &Work) -> Result<bool, holdoff_work::Error> {
    let is_idle =
        |lane: &holdoff_work::QueueStats| lane.running == 0 && (lane.paused || lane.due + lane.waiting == 0);
    Ok(work.stats().await?.iter().all(is_idle))
}
