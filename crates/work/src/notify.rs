//! Notifications: a task for every step that ended as failed or conflicted, created in the same transaction.

use serde_json::json;

use crate::names::NameCache;
use crate::store::{EndedStep, LaneId, NewStep, NewTask, PolicyNumber, Result};
use crate::work::Work;
use crate::{Kind, Lane, NotifyRule, Payload, Step, TaskId, metrics};

/// The operation of notifications. A notification that fails causes no further notification.
pub(crate) const OPERATION: &str = "holdoff.notification";

/// The namespace of notifications. It is reserved for them: notifications describe the steps of all other namespaces,
/// so a caller that can read this namespace learns about all of them.
pub(crate) const NAMESPACE: &str = "holdoff.notifications";

/// The policy of notifications.
const POLICY: &str = "notification";

/// Creates notification tasks. It holds the rules, and the numbers with which a task is made without a call to the
/// store.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    rules: Vec<NotifyRule>,
    lane: LaneId,
    /// The policy's number, unless the active version has another.
    policy: PolicyNumber,
    work: Option<Work>,
}

impl Notifier {
    /// Looks up the lane and the policy of notifications.
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
        let lane = shared.names.internal_lane(&*shared.store, lane).await?;
        let policy = shared.policies.current().number(&*shared.store, POLICY).await?;
        let rules = shared.settings.notify.clone();
        Ok(Self { rules, lane, policy, work: Some(work.clone()) })
    }

    /// Whether there are any notification rules.
    pub(crate) fn is_needed(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Returns the task that notifies about a step, with one step for each matching rule, or `None` if no rule matches.
    pub(crate) fn notify(&self, names: &NameCache, ended: &EndedStep) -> Option<NewTask> {
        let known = names.cached_lane(ended.lane)?;
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

    /// Returns the number of the policy in the active version.
    fn policy(&self) -> PolicyNumber {
        let known = self.work.as_ref().and_then(|work| work.shared.policies.current().cached_number(POLICY));
        known.unwrap_or(self.policy)
    }

    fn step(&self, rule: &NotifyRule, lane: &Lane, ended: &EndedStep) -> NewStep {
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
            expires_in: None,
            payload: Payload { format: crate::Format::Json, bytes: request.to_string().into() },
        }
    }
}

fn applies(rule: &NotifyRule, lane: &Lane) -> bool {
    let is = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    let operation = rule
        .operation
        .as_deref()
        .is_none_or(|pattern| holdoff_policy::matches_pattern(pattern, &lane.operation));
    operation && is(&rule.queue, &lane.queue) && is(&rule.namespace, &lane.namespace)
}
