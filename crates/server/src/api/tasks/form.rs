//! The JSON form of tasks.

use holdoff_work::{HttpStep, Step, Task};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::super::input::{HumanDuration, parse_json};
use crate::access::Caller;
use crate::problem::{Kind, Problem};
use crate::schema::DurationText;

/// The maximum number of tasks in one request.
const MAX_TASKS: usize = 1000;

/// The submitted tasks: one task, or a list.
#[derive(Debug)]
pub(super) struct TaskBatch {
    pub(super) tasks: Vec<Task>,
    /// Whether the request was a list, so that the response is a list too.
    pub(super) is_list: bool,
}

/// Reads a task or a list of tasks, each in a namespace that the caller may use. The error names the invalid field.
pub(super) fn read(body: &[u8], trace: Option<&str>, caller: &Caller) -> Result<TaskBatch, Problem> {
    let invalid = |why| Problem::new(Kind::InvalidTask, why);
    let mut batch = read_forms(body).map_err(invalid)?;
    for form in &mut batch.1 {
        form.namespace = Some(caller.namespace(form.namespace.take())?);
    }
    tasks(batch, trace).map_err(invalid)
}

/// Returns the forms, and whether they were in a list.
fn read_forms(body: &[u8]) -> Result<(bool, Vec<TaskForm>), String> {
    let is_list = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let forms: Vec<TaskForm> = if is_list { parse_json(body)? } else { vec![parse_json(body)?] };
    if forms.len() > MAX_TASKS {
        return Err(format!("the request has {} tasks; a request may have at most {MAX_TASKS}", forms.len()));
    }
    Ok((is_list, forms))
}

fn tasks((is_list, forms): (bool, Vec<TaskForm>), trace: Option<&str>) -> Result<TaskBatch, String> {
    let prefix = |index: usize| if is_list { format!("[{index}]: ") } else { String::new() };
    let task = |(index, form): (usize, TaskForm)| form.task(trace).map_err(|why| prefix(index) + &why);
    Ok(TaskBatch { tasks: forms.into_iter().enumerate().map(task).collect::<Result<_, _>>()?, is_list })
}

/// The body of a submission: one task, or a list of tasks.
#[derive(ToSchema)]
#[schema(as = TaskSubmission)]
#[serde(untagged)]
#[expect(dead_code, reason = "only the API document uses it")]
pub(super) enum TaskSubmission {
    One(Box<TaskForm>),
    Several(Vec<TaskForm>),
}

/// A task: one step at the top, or `steps`.
// One flat struct: serde's `flatten` cannot read a body that is kept as it was written (`RawValue`).
#[derive(Deserialize, ToSchema)]
#[schema(as = NewTask)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct TaskForm {
    #[schema(min_length = 1, max_length = 200)]
    pub(in crate::api) namespace: Option<String>,
    /// The deduplication key: tasks with the same key are accepted once.
    #[schema(min_length = 1, max_length = 200)]
    pub(in crate::api) dedup: Option<String>,
    /// How long the store remembers the key.
    #[schema(value_type = Option<DurationText>)]
    dedup_retention: Option<HumanDuration>,
    /// The steps of a graph. The fields below are for a task of one step.
    #[schema(min_items = 1)]
    steps: Option<Vec<StepForm>>,
    #[schema(min_length = 1, max_length = 200)]
    operation: Option<String>,
    #[schema(value_type = Option<HttpForm>)]
    http: Option<HttpStep>,
    /// The input of the step, for a pull worker or a handler in Rust.
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    #[schema(min_length = 1, max_length = 200)]
    queue: Option<String>,
    /// The priority, from 0 (first) to 9.
    #[schema(maximum = 9)]
    priority: Option<u8>,
    /// The delay before the first attempt.
    #[schema(value_type = Option<DurationText>)]
    delay: Option<HumanDuration>,
    /// The start-by time, counted from the submission: no attempt begins later, and a ready step then fails.
    #[schema(value_type = Option<DurationText>)]
    expires_in: Option<HumanDuration>,
    /// The policy that decides about retries, instead of the operation's.
    #[schema(min_length = 1)]
    policy: Option<String>,
}

/// A step of a graph.
#[derive(Deserialize, ToSchema)]
#[schema(as = NewStep)]
#[serde(deny_unknown_fields)]
struct StepForm {
    #[schema(min_length = 1, max_length = 200)]
    name: String,
    #[schema(min_length = 1, max_length = 200)]
    operation: String,
    /// The names of the steps that must succeed before this one runs.
    #[serde(default)]
    after: Vec<String>,
    #[schema(value_type = Option<HttpForm>)]
    http: Option<HttpStep>,
    /// The input of the step, for a pull worker or a handler in Rust.
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    #[schema(min_length = 1, max_length = 200)]
    queue: Option<String>,
    /// The priority, from 0 (first) to 9.
    #[schema(maximum = 9)]
    priority: Option<u8>,
    /// The delay before the first attempt.
    #[schema(value_type = Option<DurationText>)]
    delay: Option<HumanDuration>,
    /// The start-by time, counted from the submission: no attempt begins later, and a ready step then fails.
    #[schema(value_type = Option<DurationText>)]
    expires_in: Option<HumanDuration>,
    /// The policy that decides about retries, instead of the operation's.
    #[schema(min_length = 1)]
    policy: Option<String>,
}

/// A step that is an HTTP request.
#[derive(ToSchema)]
#[schema(as = HttpStep)]
#[expect(dead_code, reason = "only the API document uses it")]
struct HttpForm {
    #[schema(default = "POST")]
    method: Option<String>,
    #[schema(format = "uri")]
    url: String,
    headers: Option<std::collections::BTreeMap<String, String>>,
    /// The request body as JSON. `body_text` is the alternative.
    body: Option<serde_json::Value>,
    body_text: Option<String>,
    /// The timeout of the request.
    #[schema(value_type = Option<DurationText>)]
    timeout: Option<String>,
    /// The statuses that mean success: `200`, `"2xx"` or `"200-204"`. The default is any 2xx.
    expect: Option<Vec<serde_json::Value>>,
    /// The name of a credential in the settings. Its token is sent with the request.
    credential: Option<String>,
}

impl TaskForm {
    pub(in crate::api) fn task(self, trace: Option<&str>) -> Result<Task, String> {
        let Self { namespace, dedup, dedup_retention, steps, .. } = self;
        let mut task = match (steps, self.operation) {
            (Some(steps), None) => {
                let step_fields = [
                    ("http", self.http.is_some()),
                    ("payload", self.payload.is_some()),
                    ("queue", self.queue.is_some()),
                    ("priority", self.priority.is_some()),
                    ("delay", self.delay.is_some()),
                    ("expires_in", self.expires_in.is_some()),
                    ("policy", self.policy.is_some()),
                ];
                if let Some((key, _)) = step_fields.iter().find(|(_, is_present)| *is_present) {
                    return Err(format!("`{key}` belongs in each step, not beside `steps`"));
                }
                steps.into_iter().try_fold(Task::graph(), StepForm::add)?
            }
            (None, Some(operation)) => {
                let (http, payload, queue, priority) = (self.http, self.payload, self.queue, self.priority);
                let (delay, expires_in, policy) = (self.delay, self.expires_in, self.policy);
                let (name, after) = (operation.clone(), Vec::new());
                let step = StepForm {
                    name,
                    operation,
                    after,
                    http,
                    payload,
                    queue,
                    priority,
                    delay,
                    expires_in,
                    policy,
                };
                Task::of(step.step()?)
            }
            (Some(_), Some(_)) => {
                return Err("expected either `operation` or `steps`, got both".to_owned());
            }
            (None, None) => {
                return Err("expected `operation` (a task of one step) or `steps` (a graph)".to_owned());
            }
        };
        if let Some(namespace) = namespace {
            task = task.namespace(namespace);
        }
        if let Some(key) = dedup {
            task = task.dedup(key);
        }
        if let Some(HumanDuration(retention)) = dedup_retention {
            task = task.dedup_retention(retention);
        }
        Ok(match trace {
            Some(trace) => task.trace(trace),
            None => task,
        })
    }
}

impl StepForm {
    fn add(task: Task, form: Self) -> Result<Task, String> {
        let name = form.name.clone();
        Ok(task.step(name, form.step()?))
    }

    fn step(self) -> Result<Step, String> {
        let mut step = match (&self.http, &self.payload) {
            (Some(_), Some(_)) => {
                let name = self.name;
                return Err(format!(
                    "step `{name}` has both `http` and `payload`; the body of a request is `http.body`"
                ));
            }
            (Some(request), None) => Step::http(self.operation, request),
            (None, Some(payload)) => Step::new(self.operation).json(payload),
            (None, None) => Step::new(self.operation),
        };
        if let Some(queue) = self.queue {
            step = step.queue(queue);
        }
        if let Some(priority) = self.priority {
            step = step.priority(priority);
        }
        if let Some(HumanDuration(delay)) = self.delay {
            step = step.delay(delay);
        }
        if let Some(HumanDuration(time)) = self.expires_in {
            step = step.expires_in(time);
        }
        if let Some(policy) = self.policy {
            step = step.policy(policy);
        }
        Ok(self.after.into_iter().fold(step, Step::after))
    }
}
