//! Telling somebody: a task of its own for every step that ended in failed or conflicted, in the same transaction.

use serde_json::json;

use crate::names::Names;
use crate::store::{Ended, LaneId, NewStep, NewTask, PolicyNumber, Result};
use crate::work::Work;
use crate::{Kind, Lane, Notify, Payload, Step, TaskId, metrics};

/// The operation of notifications. Nobody is told about these.
pub(crate) const OPERATION: &str = "holdoff.notification";

/// Their namespace. It is theirs alone: they tell of every other, so that whoever sees them sees of all.
pub(crate) const NAMESPACE: &str = "holdoff.notifications";

/// The policy they are retried by.
const POLICY: &str = "notification";

/// Who is told, with the numbers that are needed to make a task without asking anybody.
#[derive(Debug, Default)]
pub(crate) struct Herald {
    rules: Vec<Notify>,
    lane: LaneId,
    /// Until another version says otherwise.
    policy: PolicyNumber,
    work: Option<Work>,
}

impl Herald {
    /// Looks up what will be needed.
    pub(crate) async fn new(work: &Work) -> Result<Self> {
        let shared = &*work.shared;
        if shared.settings.notify.is_empty() {
            return Ok(Self::default());
        }
        let lane = Lane {
            namespace: NAMESPACE.to_owned(),
            queue: crate::Task::DEFAULT_QUEUE.to_owned(),
            operation: OPERATION.to_owned(),
            kind: Kind::Http,
            priority: Step::NORMAL,
        };
        let lane = shared.names.own_lane(&*shared.store, lane).await?;
        let policy = shared.policies.current().number(&*shared.store, POLICY).await?;
        let rules = shared.settings.notify.clone();
        Ok(Self { rules, lane, policy, work: Some(work.clone()) })
    }

    /// Whether anybody wants to be told at all.
    pub(crate) fn is_needed(&self) -> bool {
        !self.rules.is_empty()
    }

    /// The task that tells about a step: one step for everybody who wants to know.
    pub(crate) fn tell(&self, names: &Names, ended: &Ended) -> Option<NewTask> {
        let known = names.seen_lane(ended.lane)?;
        let lane = &*known.lane;
        if lane.operation == OPERATION {
            return None;
        }
        let steps: Vec<NewStep> = self
            .rules
            .iter()
            .filter(|rule| applies(rule, lane))
            .map(|rule| self.step(rule, lane, ended))
            .collect();
        if steps.is_empty() {
            return None;
        }
        metrics::notified();
        let namespace = NAMESPACE.to_owned();
        Some(NewTask { id: TaskId::fresh(), namespace, dedup: None, trace: None, steps, edges: Vec::new() })
    }

    /// The policy of the version in force.
    fn policy(&self) -> PolicyNumber {
        let known = self.work.as_ref().and_then(|work| work.shared.policies.current().known(POLICY));
        known.unwrap_or(self.policy)
    }

    fn step(&self, rule: &Notify, lane: &Lane, ended: &Ended) -> NewStep {
        let request = json!({
            "method": "POST",
            "url": rule.url,
            "credential": rule.credential,
            "body": {
                "event": ended.state.name(),
                "task": ended.step.task.to_string(),
                "step": ended.step.number,
                "namespace": lane.namespace,
                "queue": lane.queue,
                "operation": lane.operation,
                "attempts": ended.attempts,
                "class": ended.class,
                "message": ended.message,
            },
        });
        NewStep {
            name: None,
            lane: self.lane,
            policy: self.policy(),
            destination: None,
            parents: 0,
            children: 0,
            delay: std::time::Duration::ZERO,
            payload: Payload { format: crate::Format::Json, bytes: request.to_string().into() },
        }
    }
}

fn applies(rule: &Notify, lane: &Lane) -> bool {
    let is = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    let operation = rule
        .operation
        .as_deref()
        .is_none_or(|pattern| holdoff_policy::matches_pattern(pattern, &lane.operation));
    operation && is(&rule.queue, &lane.queue) && is(&rule.namespace, &lane.namespace)
}
