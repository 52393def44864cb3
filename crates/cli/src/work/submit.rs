//! `holdoff work submit`

use std::io::Write;
use std::time::Duration;

use holdoff_policy::parse_duration;
use holdoff_work::{HttpStep, Step, Submitted, Task};
use serde_json::value::RawValue;

use super::WorkContext;
use crate::error::CommandError;
use crate::input::{read_json, read_text};
use crate::output;

#[derive(clap::Args, Debug)]
pub(super) struct SubmitArgs {
    /// Operation: the name of the handler, which also selects the policy
    operation: String,

    /// Payload for the handler: JSON, @FILE or - for stdin
    #[arg(long, value_name = "JSON", conflicts_with = "http", allow_hyphen_values = true)]
    json_payload: Option<String>,

    /// Namespace of the task
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// Queue of the step
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,

    /// Priority from 0, the highest, to 9
    #[arg(long, value_name = "N", default_value_t = Step::NORMAL, value_parser = clap::value_parser!(u8).range(0..=i64::from(Step::LOWEST)))]
    priority: u8,

    /// Delay before the first attempt
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    delay: Option<Duration>,

    /// Start-by time: no attempt begins later, and a ready step then fails
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    expires_in: Option<Duration>,

    /// Retry policy [default: the policy of the operation]
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,

    /// Deduplication key: a second task with this key is not created
    #[arg(long, value_name = "KEY")]
    dedup: Option<String>,

    /// Send this HTTP request instead of running a handler
    #[arg(long, num_args = 2, value_names = ["METHOD", "URL"], help_heading = HTTP)]
    http: Option<Vec<String>>,

    /// Header of the request, such as accept:text/plain; repeatable
    #[arg(long = "header", value_name = "NAME:VALUE", requires = "http", help_heading = HTTP)]
    headers: Vec<String>,

    /// Body of the request: text, @FILE or - for stdin; valid JSON is sent as JSON
    #[arg(long, value_name = "TEXT", requires = "http", allow_hyphen_values = true, help_heading = HTTP)]
    body: Option<String>,
}

const HTTP: &str = "HTTP options";

pub(super) async fn run(context: &WorkContext, args: &SubmitArgs) -> Result<(), CommandError> {
    // A submitted task uses the store's active policies, as every other task does.
    context.work.refresh_policies().await?;
    // A daemon refuses to start with a file that fails this check, so the submission refuses it too.
    let checked = context.settings.check_policies(&context.work.policies());
    checked.map_err(CommandError::failed)?;
    let submitted = context.work.submit(task(args)?).await?;
    let is_duplicate = matches!(submitted, Submitted::Duplicate(_));
    let mut out = output::stdout();
    if context.json {
        let answer = serde_json::json!({ "id": submitted.task(), "duplicate": is_duplicate });
        return Ok(writeln!(out, "{answer}")?);
    }
    writeln!(out, "{}", submitted.task())?;
    if is_duplicate {
        note!("a task with this deduplication key already exists");
    }
    Ok(())
}

fn task(args: &SubmitArgs) -> Result<Task, CommandError> {
    let mut step = match (request(args)?, &args.json_payload) {
        (Some(request), _) => Step::http(&args.operation, &request),
        (None, Some(payload)) => Step::new(&args.operation).json(&read_json("--json-payload", payload)?),
        (None, None) => Step::new(&args.operation),
    };
    step = step.priority(args.priority).delay(args.delay.unwrap_or_default());
    if let Some(time) = args.expires_in {
        step = step.expires_in(time);
    }
    if let Some(queue) = &args.queue {
        step = step.queue(queue);
    }
    if let Some(policy) = &args.policy {
        step = step.policy(policy);
    }
    let mut task = Task::of(step);
    if let Some(namespace) = &args.namespace {
        task = task.namespace(namespace);
    }
    if let Some(key) = &args.dedup {
        task = task.dedup(key);
    }
    Ok(task)
}

fn request(args: &SubmitArgs) -> Result<Option<HttpStep>, CommandError> {
    let Some([method, url]) = args.http.as_deref() else { return Ok(None) };
    let mut request = HttpStep::new(method.to_uppercase(), url);
    for header in &args.headers {
        let (name, value) = header
            .split_once(':')
            .ok_or_else(|| CommandError::Usage(format!("--header {header}: expected NAME:VALUE")))?;
        request = request.header(name.trim(), value.trim());
    }
    let Some(body) = &args.body else { return Ok(Some(request)) };
    let body = read_text(body)?;
    Ok(Some(match serde_json::from_str::<&RawValue>(&body) {
        Ok(json) => request.json(json),
        Err(_) => request.text(body),
    }))
}
