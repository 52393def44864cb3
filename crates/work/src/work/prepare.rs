//! Turns submitted tasks into the form that a store keeps.

use std::collections::BTreeMap;
use std::time::Duration;

use holdoff_policy::PolicySet;

use super::{Shared, Work};
use crate::store::{Dedup, NewStep, NewTask, Result, Submitted};
use crate::task::graph;
use crate::{InvalidTask, Lane, Step, Task, TaskId, notify};

const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const LONGEST_NAME: usize = 200;

/// Validated tasks, ready to be stored.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) tasks: Vec<NewTask>,
}

impl Work {
    /// Validates tasks and looks up the numbers needed to store them, so that they can be submitted inside a
    /// transaction of the caller's own: with [`postgres::submit_in`](crate::postgres::submit_in) or
    /// [`sqlite::submit_in`](crate::sqlite::submit_in).
    pub async fn prepare(&self, tasks: Vec<Task>) -> Result<Prepared> {
        Ok(Prepared { tasks: self.number(tasks).await? })
    }

    /// Validates tasks, and looks up the numbers of their lanes and policies.
    pub(crate) async fn number(&self, tasks: Vec<Task>) -> Result<Vec<NewTask>> {
        // All tasks use one version, even if another is deployed meanwhile.
        let version = self.shared.policies.current();
        for task in &tasks {
            self.check(task, &version.set)?;
        }
        self.check_depth(&tasks).await?;
        let Shared { store, names, callers, .. } = &*self.shared;
        let mut prepared = Vec::with_capacity(tasks.len());
        let mut policy_numbers = BTreeMap::new();
        for task in tasks {
            let graph = graph(&task.steps)?;
            let namespace = task.namespace.unwrap_or_else(|| PolicySet::DEFAULT_NAMESPACE.to_owned());
            let lanes: Vec<Lane> = task.steps.iter().map(|step| lane(&namespace, step)).collect();
            let lanes = crate::patience::patiently(callers, |_| names.lane_ids(&**store, &lanes)).await?;
            let counts = graph.parents.iter().zip(&graph.children);
            let mut steps = Vec::with_capacity(task.steps.len());
            for ((step, lane), (parents, children)) in task.steps.into_iter().zip(lanes).zip(counts) {
                let policy = match &step.policy {
                    Some(named) => named.as_str(),
                    None => version.set.policy_for(&namespace, &step.operation).0,
                };
                let number = match policy_numbers.get(policy) {
                    Some(number) => *number,
                    None => version.number(&**store, policy).await?,
                };
                policy_numbers.insert(policy.to_owned(), number);
                steps.push(NewStep {
                    name: step.name,
                    lane,
                    policy: number,
                    destination: step.destination,
                    parents: *parents,
                    children: *children,
                    delay: step.delay,
                    payload: step.payload,
                });
            }
            let retention = task.dedup_retention.unwrap_or(self.shared.settings.dedup_retention);
            let number = |place: &usize| i32::try_from(*place).unwrap_or(i32::MAX);
            prepared.push(NewTask {
                id: task.mark.map_or_else(TaskId::fresh, TaskId::marked),
                namespace,
                dedup: task.dedup.map(|key| Dedup { key, retention }),
                trace: task.trace,
                steps,
                edges: graph.edges.iter().map(|(parent, child)| (number(parent), number(child))).collect(),
            });
        }
        Ok(prepared)
    }

    fn check(&self, task: &Task, policies: &PolicySet) -> std::result::Result<(), InvalidTask> {
        let settings = &self.shared.settings;
        if task.steps.is_empty() {
            return Err(InvalidTask::NoSteps);
        }
        if task.steps.len() > settings.max_steps {
            return Err(InvalidTask::TooManySteps { count: task.steps.len(), limit: settings.max_steps });
        }
        let named =
            [("namespace", &task.namespace), ("deduplication key", &task.dedup), ("trace", &task.trace)];
        for (what, name) in named {
            name.as_deref().map_or(Ok(()), |name| check_name(what, name))?;
        }
        if let Some(namespace) = task.namespace.as_deref().filter(|name| *name == notify::NAMESPACE) {
            return Err(InvalidTask::Reserved { namespace: namespace.to_owned() });
        }
        if let Some(delay) = task.dedup_retention.filter(|delay| *delay > LONGEST) {
            return Err(InvalidTask::TooLong { what: "the retention of the deduplication key", delay });
        }
        task.steps.iter().try_for_each(|step| self.check_step(step, policies))
    }

    fn check_step(&self, step: &Step, policies: &PolicySet) -> std::result::Result<(), InvalidTask> {
        if let Some(problem) = &step.problem {
            return Err(problem.clone());
        }
        check_name("operation", &step.operation)?;
        for (what, name) in [("step name", &step.name), ("queue", &step.queue)] {
            name.as_deref().map_or(Ok(()), |name| check_name(what, name))?;
        }
        let shown = || step.shown().to_owned();
        if step.priority > Step::LOWEST {
            return Err(InvalidTask::Priority { step: shown(), priority: step.priority });
        }
        if step.delay > LONGEST {
            return Err(InvalidTask::TooLong { what: "the delay of a step", delay: step.delay });
        }
        let (size, limit) = (step.payload.bytes.len(), self.shared.settings.max_payload);
        if size > limit {
            return Err(InvalidTask::PayloadTooLarge { step: shown(), size, limit });
        }
        match &step.policy {
            Some(policy) if policies.policy(policy).is_none() => {
                Err(InvalidTask::NoSuchPolicy { step: shown(), policy: policy.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Counts the accepted tasks.
    pub(crate) fn count_in(&self, tasks: &[NewTask], submitted: &[Submitted]) {
        let mut taken_in = Vec::new();
        for (task, fate) in tasks.iter().zip(submitted) {
            let is_new = matches!(fate, Submitted::Created(_));
            for lane in task.steps.iter().filter_map(|step| self.shared.names.seen_lane(step.lane)) {
                if is_new {
                    lane.metrics.submitted();
                    self.shared.depth.add(&lane.lane.namespace, &lane.lane.queue);
                    taken_in.push(lane);
                } else {
                    lane.metrics.duplicate();
                }
            }
        }
        self.shared.heart.submitted(taken_in.iter().map(|lane| &lane.lane));
        self.keep_beating();
    }
}

fn check_name(what: &'static str, name: &str) -> std::result::Result<(), InvalidTask> {
    let length = name.chars().count();
    if (1..=LONGEST_NAME).contains(&length) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(InvalidTask::BadName { what, name: name.chars().take(LONGEST_NAME).collect() })
}

fn lane(namespace: &str, step: &Step) -> Lane {
    Lane {
        namespace: namespace.to_owned(),
        queue: step.queue.clone().unwrap_or_else(|| Task::DEFAULT_QUEUE.to_owned()),
        operation: step.operation.clone(),
        kind: step.kind,
        priority: step.priority,
    }
}
