//! `holdoff work submit`

use std::io::Write;

use holdoff_work::{HttpStep, Step, Submitted, Task};
use serde_json::value::RawValue;

use super::{Desk, text};
use crate::args::SubmitArgs;
use crate::failure::Failure;

pub(super) async fn run(desk: &Desk, args: &SubmitArgs) -> Result<(), Failure> {
    // A daemon refuses to start with a file that fails this check, so the submission refuses it too.
    let checked = desk.settings.check_policies(&desk.work.policies());
    checked.map_err(|waits| Failure::Failed(waits.to_string()))?;
    let submitted = desk.work.submit(task(args)?).await?;
    let is_duplicate = matches!(submitted, Submitted::Duplicate(_));
    let mut out = anstream::stdout();
    if desk.json {
        let answer = serde_json::json!({ "id": submitted.task(), "duplicate": is_duplicate });
        return Ok(writeln!(out, "{answer}")?);
    }
    writeln!(out, "{}", submitted.task())?;
    if is_duplicate {
        anstream::eprintln!("it was there already, under the same key");
    }
    Ok(())
}

fn task(args: &SubmitArgs) -> Result<Task, Failure> {
    let mut step = match (request(args)?, &args.json_payload) {
        (Some(request), _) => Step::http(&args.operation, &request),
        (None, Some(payload)) => {
            Step::new(&args.operation).json(&text::read_json("--json-payload", payload)?)
        }
        (None, None) => Step::new(&args.operation),
    };
    step = step.priority(args.priority).delay(args.delay.unwrap_or_default());
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

fn request(args: &SubmitArgs) -> Result<Option<HttpStep>, Failure> {
    let Some([method, url]) = args.http.as_deref() else { return Ok(None) };
    let mut request = HttpStep::new(method.to_uppercase(), url);
    for header in &args.headers {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            Failure::Usage(format!("--header {header}: expected a name, a colon and a value"))
        })?;
        request = request.header(name.trim(), value.trim());
    }
    let Some(body) = &args.body else { return Ok(Some(request)) };
    let body = text::read(body)?;
    Ok(Some(match serde_json::from_str::<&RawValue>(&body) {
        Ok(json) => request.json(json),
        Err(_) => request.text(body),
    }))
}
