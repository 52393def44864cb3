//! Tasks as they are written in JSON.

use std::time::Duration;

use holdoff_policy::parse_duration;
use holdoff_work::{HttpStep, Step, Task};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::schema::WaitText;

use crate::access::Access;
use crate::problem::{Kind, Problem};

/// The maximum number of tasks in one request.
const MOST_TASKS: usize = 1000;

/// The submitted tasks: one task, or a list.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) tasks: Vec<Task>,
    /// Whether the request was a list, so that the response is a list too.
    pub(super) is_list: bool,
}

/// Reads a task or a list of tasks, each in a namespace that the caller may use. The error names the invalid field.
pub(super) fn read(body: &[u8], trace: Option<&str>, access: &Access) -> Result<Sent, Problem> {
    let invalid = |why| Problem::new(Kind::InvalidTask, why);
    let mut sent = read_forms(body).map_err(invalid)?;
    for form in &mut sent.1 {
        form.namespace = Some(access.namespace(form.namespace.take())?);
    }
    tasks(sent, trace).map_err(invalid)
}

/// Returns the forms, and whether they were in a list.
fn read_forms(body: &[u8]) -> Result<(bool, Vec<TaskForm>), String> {
    let is_list = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let forms: Vec<TaskForm> = if is_list { parse(body)? } else { vec![parse(body)?] };
    if forms.len() > MOST_TASKS {
        return Err(format!("there are {} tasks; at most {MOST_TASKS} are taken in at once", forms.len()));
    }
    Ok((is_list, forms))
}

fn tasks((is_list, forms): (bool, Vec<TaskForm>), trace: Option<&str>) -> Result<Sent, String> {
    let number = |place: usize| if is_list { format!("[{place}]: ") } else { String::new() };
    let task = |(place, form): (usize, TaskForm)| form.task(trace).map_err(|why| number(place) + &why);
    Ok(Sent { tasks: forms.into_iter().enumerate().map(task).collect::<Result<_, _>>()?, is_list })
}

pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let form = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        if path == "." { error.inner().to_string() } else { format!("{path}: {}", error.inner()) }
    })?;
    json.end().map_err(|error| error.to_string())?;
    Ok(form)
}

/// What may be sent: one task, or several.
#[derive(ToSchema)]
#[schema(as = SentTasks)]
#[serde(untagged)]
#[expect(dead_code, reason = "it stands in the document only")]
pub(super) enum SentForm {
    One(Box<TaskForm>),
    Several(Vec<TaskForm>),
}

/// A task: one step at the top, or `steps`.
// One flat struct: serde's `flatten` cannot read a body that is kept as it was written (`RawValue`).
#[derive(Deserialize, ToSchema)]
#[schema(as = NewTask)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskForm {
    #[schema(min_length = 1, max_length = 200)]
    pub(super) namespace: Option<String>,
    /// A key under which a task is taken in once.
    #[schema(min_length = 1, max_length = 200)]
    pub(super) dedup: Option<String>,
    /// For how long the key is remembered.
    #[schema(value_type = Option<WaitText>)]
    dedup_retention: Option<Wait>,
    /// The steps of a graph; what follows here is for a task of one step.
    #[schema(min_items = 1)]
    steps: Option<Vec<StepForm>>,
    #[schema(min_length = 1, max_length = 200)]
    operation: Option<String>,
    #[schema(value_type = Option<HttpForm>)]
    http: Option<HttpStep>,
    /// What goes into it, for a worker that pulls it or a handler in Rust.
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    #[schema(min_length = 1, max_length = 200)]
    queue: Option<String>,
    /// From 0, which goes first, to 9.
    #[schema(maximum = 9)]
    priority: Option<u8>,
    /// How long it waits before it runs.
    #[schema(value_type = Option<WaitText>)]
    delay: Option<Wait>,
    /// Which policy decides when it is tried again, instead of its operation's.
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
    /// The names of the steps that must have succeeded before.
    #[serde(default)]
    after: Vec<String>,
    #[schema(value_type = Option<HttpForm>)]
    http: Option<HttpStep>,
    /// What goes into it, for a worker that pulls it or a handler in Rust.
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    #[schema(min_length = 1, max_length = 200)]
    queue: Option<String>,
    /// From 0, which goes first, to 9.
    #[schema(maximum = 9)]
    priority: Option<u8>,
    /// How long it waits before it runs.
    #[schema(value_type = Option<WaitText>)]
    delay: Option<Wait>,
    /// Which policy decides when it is tried again, instead of its operation's.
    #[schema(min_length = 1)]
    policy: Option<String>,
}

/// A step that is an HTTP request.
#[derive(ToSchema)]
#[schema(as = HttpStep)]
#[expect(dead_code, reason = "it stands in the document only")]
struct HttpForm {
    #[schema(default = "POST")]
    method: Option<String>,
    #[schema(format = "uri")]
    url: String,
    headers: Option<std::collections::BTreeMap<String, String>>,
    /// What is sent, as JSON; or else `body_text`.
    body: Option<serde_json::Value>,
    body_text: Option<String>,
    /// How long the request may take.
    #[schema(value_type = Option<WaitText>)]
    timeout: Option<String>,
    /// Which statuses mean success: `200`, `"2xx"` or `"200-204"`; any 2xx unless it is said.
    expect: Option<Vec<serde_json::Value>>,
    /// The name of a credential in the settings whose token is sent.
    credential: Option<String>,
}

impl TaskForm {
    pub(super) fn task(self, trace: Option<&str>) -> Result<Task, String> {
        let Self { namespace, dedup, dedup_retention, steps, .. } = self;
        let mut task = match (steps, self.operation) {
            (Some(steps), None) => {
                let of_steps = [
                    ("http", self.http.is_some()),
                    ("payload", self.payload.is_some()),
                    ("queue", self.queue.is_some()),
                    ("priority", self.priority.is_some()),
                    ("delay", self.delay.is_some()),
                    ("policy", self.policy.is_some()),
                ];
                if let Some((key, _)) = of_steps.iter().find(|(_, is_there)| *is_there) {
                    return Err(format!("`{key}` belongs into each of the steps, not beside them"));
                }
                steps.into_iter().try_fold(Task::graph(), StepForm::add)?
            }
            (None, Some(operation)) => {
                let (http, payload, queue, priority) = (self.http, self.payload, self.queue, self.priority);
                let (delay, policy) = (self.delay, self.policy);
                let (name, after) = (operation.clone(), Vec::new());
                let step = StepForm { name, operation, after, http, payload, queue, priority, delay, policy };
                Task::of(step.step()?)
            }
            (Some(_), Some(_)) => {
                return Err("expected either `operation` or `steps`, and there are both".to_owned());
            }
            (None, None) => {
                return Err("expected `operation`, for a task of one step, or `steps`, for more".to_owned());
            }
        };
        if let Some(namespace) = namespace {
            task = task.namespace(namespace);
        }
        if let Some(key) = dedup {
            task = task.dedup(key);
        }
        if let Some(Wait(retention)) = dedup_retention {
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
                    "step `{name}` has both `http` and `payload`; a request's body is `http.body`"
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
        if let Some(Wait(delay)) = self.delay {
            step = step.delay(delay);
        }
        if let Some(policy) = self.policy {
            step = step.policy(policy);
        }
        Ok(self.after.into_iter().fold(step, Step::after))
    }
}

/// A duration such as `"5s"`.
pub(crate) struct Wait(pub(crate) Duration);

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = |why| D::Error::custom(format!("{text:?} is no time such as \"5s\" or \"2m\": {why}"));
        parse_duration(&text).map(Self).map_err(wrong)
    }
}
