//! `holdoff ledger get`

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use holdoff_policy::format_duration;
use serde::Deserialize;
use serde_json::{Value, json};

use super::seen::Answer;
use super::{Desk, submit};
use crate::args::ReadHow;
use crate::daemon::read;
use crate::failure::Failure;

/// The result of a read or the reason for its absence, and the last index that the answering node knows.
#[derive(Deserialize)]
struct Look {
    index: u64,
    result: Option<Answer>,
    why: Option<String>,
}

pub(super) async fn value(
    desk: &Desk,
    key: &str,
    how: ReadHow,
    timeout: Duration,
) -> Result<ExitCode, Failure> {
    let wanted =
        json!({ "commands": [{ "get": key }], "how": how.word(), "timeout": format_duration(timeout) });
    let answer = desk.daemon.post("read", wanted, timeout).await?;
    let value = answer.pointer("/result/0").cloned().unwrap_or(Value::Null);
    let Look { index, result, .. } = read(answer)?;
    let found = result.and_then(Answer::into_value);
    if desk.said_as_json(&json!({ "key": key, "value": value, "index": index }))? {
        return Ok(if found.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let none = || Failure::Failed(format!("there is no value under {key:?} up to index {index}"));
    let value = found.ok_or_else(none)?;
    writeln!(anstream::stdout(), "{}", value.plain())?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn goal(
    desk: &Desk,
    goal: &str,
    how: ReadHow,
    timeout: Duration,
) -> Result<ExitCode, Failure> {
    let goal = submit::goal(goal)?;
    let wanted = json!({ "goal": goal, "how": how.word(), "timeout": format_duration(timeout) });
    let answer = desk.daemon.post("read", wanted, timeout).await?;
    let is_said = desk.said_as_json(&answer)?;
    let Look { result, why, .. } = read(answer)?;
    match (result, why) {
        (Some(_), _) if is_said => Ok(ExitCode::SUCCESS),
        (None, _) if is_said => Ok(ExitCode::FAILURE),
        (Some(result), _) => {
            result.print(&mut anstream::stdout())?;
            Ok(ExitCode::SUCCESS)
        }
        (None, why) => Err(Failure::Failed(why.unwrap_or_default())),
    }
}
