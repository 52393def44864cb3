//! Counts the content of the store after all work has stopped.

use std::collections::HashSet;

use holdoff_lock::Locks;
use holdoff_work::{Filter, Outcome, Page, StepState, TaskRecord, Work};

use super::rivals::DEPLOY;
use super::storm::ALERT;
use super::summary::{Attempts, Stored};

/// Counts all tasks, steps and attempts, and reads the last fencing token of the contended lock.
pub(super) async fn count(work: &Work, locks: &Locks) -> Result<Stored, String> {
    let said = |error: holdoff_work::Error| error.to_string();
    let lanes = work.stats().await.map_err(said)?;
    let paused: HashSet<Lane> = lanes
        .into_iter()
        .filter(|lane| lane.paused)
        .map(|lane| (lane.namespace, lane.queue, lane.operation))
        .collect();
    let (mut stored, mut before) = (Stored::default(), None);
    loop {
        let page = work.tasks(&Filter::default(), None, before, Page::MOST).await.map_err(said)?;
        for task in &page.tasks {
            let Some(task) = work.task(task.id).await.map_err(said)? else { continue };
            stored.add(&task, &paused);
        }
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    let lock = locks.inspect(DEPLOY).await.map_err(|error| error.to_string())?;
    stored.token = lock.map_or(0, |lock| lock.token.get());
    Ok(stored)
}

/// A namespace, a queue and an operation.
type Lane = (String, String, String);

impl Stored {
    fn add(&mut self, task: &TaskRecord, paused: &HashSet<Lane>) {
        self.tasks += 1;
        self.alerts += u64::from(task.steps.iter().any(|step| step.operation == ALERT));
        for step in &task.steps {
            if step.destination.is_some() {
                self.requests.insert(step.id.to_string(), step.state);
            }
            let lane = (step.namespace.clone(), step.queue.clone(), step.operation.clone());
            if step.state == StepState::Ready && paused.contains(&lane) {
                self.steps.left.paused += 1;
            } else {
                self.steps.count(step.state);
            }
            self.attempts.made += u64::from(step.state == StepState::Succeeded);
        }
        task.attempts.iter().for_each(|attempt| self.attempts.count(attempt.outcome));
    }
}

impl Attempts {
    /// Counts an attempt that did not succeed. A step that was put back before it ran is not an attempt.
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

/// Returns whether every step is finished that can finish without an operator.
pub(super) async fn is_drained(work: &Work) -> Result<bool, holdoff_work::Error> {
    let is_idle =
        |lane: &holdoff_work::QueueStats| lane.running == 0 && (lane.paused || lane.due + lane.waiting == 0);
    Ok(work.stats().await?.iter().all(is_idle))
}
