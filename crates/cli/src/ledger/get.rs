//! `holdoff ledger get`

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use holdoff_policy::{format_duration, parse_duration};
use serde::Deserialize;
use serde_json::{Value, json};

use super::LedgerContext;
use super::submit::{GoalResult, parse_goal};
use crate::api_client::read;
use crate::error::CommandError;
use crate::output::{self, escaped};

#[derive(clap::Args, Debug)]
pub(super) struct GetArgs {
    /// Key of the value
    #[arg(required_unless_present = "goal")]
    key: Option<String>,

    /// Goal over facts instead of a key, such as 'balance(alice, ?a)': text, @FILE or - for stdin
    #[arg(long, conflicts_with = "key")]
    goal: Option<String>,

    /// Consistency of the read
    #[arg(long, value_enum, default_value_t = Consistency::Quorum)]
    consistency: Consistency,

    /// Time to wait for a leader
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    timeout: Duration,
}

/// The consistency of a read.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Consistency {
    /// State of the daemon's node, which may be outdated
    Local,
    /// Linearizable: the leader confirms its leadership with a majority
    Quorum,
    /// Linearizable by the leader lease, if clocks drift no more than configured
    Lease,
}

impl Consistency {
    /// Returns the name of the consistency level in the daemon's API.
    const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Quorum => "quorum",
            Self::Lease => "lease",
        }
    }
}

/// The result of a read or the reason for its absence, and the last index that the answering node knows.
#[derive(Deserialize)]
struct ReadResponse {
    index: u64,
    result: Option<GoalResult>,
    reason: Option<String>,
}

pub(super) async fn run(context: &LedgerContext, args: &GetArgs) -> Result<ExitCode, CommandError> {
    match &args.key {
        Some(key) => get_value(context, key, args).await,
        None => evaluate_goal(context, args).await,
    }
}

async fn get_value(context: &LedgerContext, key: &str, args: &GetArgs) -> Result<ExitCode, CommandError> {
    let answer = send(context, ("commands", json!([{ "get": key }])), args).await?;
    let value = answer.pointer("/result/0").cloned().unwrap_or(Value::Null);
    let ReadResponse { index, result, .. } = read(answer)?;
    let found = result.and_then(GoalResult::into_value);
    if context.print_json(&json!({ "key": key, "value": value, "index": index }))? {
        return Ok(if found.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let missing = || CommandError::Failed(format!("key {key:?} has no value at index {index}"));
    writeln!(output::stdout(), "{}", found.ok_or_else(missing)?.plain())?;
    Ok(ExitCode::SUCCESS)
}

async fn evaluate_goal(context: &LedgerContext, args: &GetArgs) -> Result<ExitCode, CommandError> {
    let goal = parse_goal(args.goal.as_deref().unwrap_or_default())?;
    let answer = send(context, ("goal", json!(goal)), args).await?;
    let is_printed = context.print_json(&answer)?;
    let ReadResponse { result, reason, .. } = read(answer)?;
    match result {
        Some(_) if is_printed => Ok(ExitCode::SUCCESS),
        None if is_printed => Ok(ExitCode::FAILURE),
        Some(result) => {
            result.print(&mut output::stdout())?;
            Ok(ExitCode::SUCCESS)
        }
        None => Err(CommandError::Failed(escaped(&reason.unwrap_or_default()))),
    }
}

async fn send(
    context: &LedgerContext,
    (field, query): (&str, Value),
    args: &GetArgs,
) -> Result<Value, CommandError> {
    let consistency = args.consistency.name();
    let body = json!({ field: query, "consistency": consistency, "timeout": format_duration(args.timeout) });
    Ok(context.daemon.post("read", body, args.timeout).await?)
}
