//! `holdoff ledger submit`

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use fastrand::Rng;
use holdoff_ledger::machine::{self, Goal};
use holdoff_policy::{format_duration, parse_duration};
use serde::Deserialize;
use serde_json::{Value, json};

use super::LedgerContext;
use crate::api_client::{ApiError, read};
use crate::error::{CommandError, EXIT_TEMPFAIL, EXIT_TIMEOUT};
use crate::input::{read_json, read_text};

#[derive(clap::Args, Debug)]
pub(super) struct SubmitArgs {
    /// Goal: conditions and the changes to make if they hold, such as 'job(?id, waiting) => -job(?id, waiting)': text,
    /// @FILE or - for stdin
    #[arg(required_unless_present = "commands", allow_hyphen_values = true)]
    goal: Option<String>,

    /// Commands over values instead of a goal, such as '[{"increment": "visits"}]': JSON, @FILE or - for stdin
    #[arg(long, value_name = "JSON", conflicts_with = "goal")]
    commands: Option<String>,

    /// Transaction id, 32 hexadecimal digits; a transaction with this id is committed at most once [default: a new id]
    #[arg(long, value_name = "ID", value_parser = parse_tx_id)]
    tx_id: Option<String>,

    /// Time to wait for the result
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    timeout: Duration,
}

fn parse_tx_id(text: &str) -> Result<String, String> {
    let is_valid = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_valid
        .then(|| text.to_ascii_lowercase())
        .ok_or_else(|| "a transaction id has 32 hexadecimal digits".to_owned())
}

pub(super) async fn run(context: &LedgerContext, args: &SubmitArgs) -> Result<ExitCode, CommandError> {
    // Chooses the transaction id before the first request, so that the user can submit again after any failure.
    let tx_id = args.tx_id.clone().unwrap_or_else(|| format!("{:032x}", Rng::new().u128(..)));
    let mut body = request(args)?;
    if let Some(body) = body.as_object_mut() {
        body.insert("tx_id".to_owned(), json!(tx_id));
        body.insert("timeout".to_owned(), json!(format_duration(args.timeout)));
    }
    match context.daemon.post("transactions", body, args.timeout).await {
        Ok(answer) => report(context, answer),
        // A node that stops may have forwarded the transaction before.
        Err(ApiError::Rejected(problem)) if problem.status == 504 || problem.kind() == "ledger-stopped" => {
            unknown_outcome(context, &tx_id, &problem.detail)
        }
        Err(ApiError::Rejected(problem)) if problem.status == 503 => {
            let outcome = if problem.kind() == "no-quorum" { "no_quorum" } else { "not_accepted" };
            let message = format!("the transaction was not accepted: {} (--tx-id {tx_id})", problem.detail);
            fail(context, EXIT_TEMPFAIL, &tx_id, outcome, message)
        }
        Err(ApiError::NoResponse(why)) => unknown_outcome(context, &tx_id, &why),
        Err(error) => Err(error.into()),
    }
}

/// Builds the request. It validates the goal or the JSON as far as that is possible without the daemon.
fn request(args: &SubmitArgs) -> Result<Value, CommandError> {
    if let Some(commands) = &args.commands {
        return Ok(json!({ "commands": read_json("--commands", commands)? }));
    }
    let goal = parse_goal(args.goal.as_deref().unwrap_or_default())?;
    Ok(json!({ "goal": goal }))
}

/// Parses a goal. The error shows each problem at its position.
pub(super) fn parse_goal(argument: &str) -> Result<String, CommandError> {
    let text = read_text(argument)?;
    let parsed: Result<Goal, _> = text.trim_end().parse();
    parsed
        .map(|goal| goal.to_string())
        .map_err(|problems| CommandError::Usage(format!("invalid goal\n\n{problems}")))
}

fn report(context: &LedgerContext, answer: Value) -> Result<ExitCode, CommandError> {
    let is_printed = context.print_json(&answer)?;
    let TransactionResponse { tx_id, outcome, index, result, reason } = read(answer)?;
    let is_committed = outcome == "committed";
    if is_printed {
        return Ok(if is_committed { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if !is_committed {
        let reason = reason.unwrap_or_default();
        return Err(CommandError::Failed(format!(
            "the transaction failed and changed nothing: {reason} (index {index}, tx-id {tx_id})"
        )));
    }
    if let Some(result) = result {
        result.print(&mut anstream::stdout())?;
    }
    anstream::eprintln!("committed at index {index}, tx-id {tx_id}");
    Ok(ExitCode::SUCCESS)
}

fn unknown_outcome(context: &LedgerContext, tx_id: &str, why: &str) -> Result<ExitCode, CommandError> {
    let message = format!(
        "the outcome is unknown: {why}; submit the transaction again with --tx-id {tx_id}, through any daemon: it is \
         committed at most once"
    );
    fail(context, EXIT_TIMEOUT, tx_id, "unknown", message)
}

fn fail(
    context: &LedgerContext,
    code: u8,
    tx_id: &str,
    outcome: &str,
    why: String,
) -> Result<ExitCode, CommandError> {
    if context.print_json(&json!({ "tx_id": tx_id, "outcome": outcome, "reason": why }))? {
        return Ok(ExitCode::from(code));
    }
    Err(CommandError::Coded(code, why))
}

#[derive(Deserialize)]
struct TransactionResponse {
    tx_id: String,
    outcome: String,
    index: u64,
    result: Option<GoalResult>,
    reason: Option<String>,
}

/// The result of a goal or of commands.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum GoalResult {
    /// The values of a goal's variables, for each match.
    Facts { variables: Vec<String>, matches: Vec<Vec<LedgerValue>> },
    /// The value that each command returned.
    Values(Vec<Option<LedgerValue>>),
}

/// A value.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum LedgerValue {
    Integer(i64),
    Text(String),
    Symbol { symbol: String },
}

impl GoalResult {
    /// Returns the value of the first command.
    pub(super) fn into_value(self) -> Option<LedgerValue> {
        match self {
            Self::Facts { .. } => None,
            Self::Values(values) => values.into_iter().next().flatten(),
        }
    }

    /// Prints a line for each match or for each command.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Facts { variables, .. } if variables.is_empty() => Ok(()),
            Self::Facts { variables, matches } => matches.iter().try_for_each(|values| {
                let pairs = variables.iter().zip(values).map(|(name, value)| format!("?{name} = {value}"));
                writeln!(out, "{}", pairs.collect::<Vec<_>>().join(", "))
            }),
            Self::Values(values) => values.iter().try_for_each(|value| match value {
                Some(value) => writeln!(out, "{value}"),
                None => writeln!(out, "none"),
            }),
        }
    }
}

impl LedgerValue {
    /// Returns the bare value. A text has no quotes.
    pub(super) fn plain(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            value => value.to_string(),
        }
    }
}

/// Formats the value in the syntax of goals.
impl fmt::Display for LedgerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => write!(f, "{number}"),
            Self::Symbol { symbol } => f.write_str(symbol),
            Self::Text(text) => match machine::Value::text(text.as_str()) {
                Ok(value) => write!(f, "{value}"),
                Err(_) => write!(f, "{text:?}"),
            },
        }
    }
}
