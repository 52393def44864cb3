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
use crate::output::{self, escaped};

#[derive(clap::Args, Debug)]
pub(super) struct SubmitArgs {
    /// Goal: conditions and the changes to make if they hold, such as 'job(?id, waiting) => -job(?id, waiting)': text,
    /// @FILE or - for stdin
    #[arg(required_unless_present = "commands", allow_hyphen_values = true)]
    goal: Option<String>,

    /// Commands over values instead of a goal, such as '[{"increment": "visits"}]': JSON, @FILE or - for stdin
    #[arg(long, value_name = "JSON", conflicts_with = "goal")]
    commands: Option<String>,

    /// Transaction id, 32 hexadecimal digits; with its --birth, the transaction is committed at most once [default: a new id]
    #[arg(long, value_name = "ID", value_parser = parse_tx_id)]
    tx_id: Option<String>,

    /// Birth of the transaction: an index of the history from before its first submission; needed to submit it again
    /// [default: the current index]
    #[arg(long, value_name = "INDEX", requires = "tx_id")]
    birth: Option<u64>,

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
    let mut body = request(args)?;
    // Chooses the transaction id and the birth before the transaction is sent, so that the user can submit it again after
    // any failure.
    let id = args.tx_id.clone().unwrap_or_else(|| format!("{:032x}", Rng::new().u128(..)));
    let mut tx = SubmittedTx { id, birth: args.birth };
    if tx.birth.is_none() {
        match context.daemon.get(&[], &[]).await {
            Ok(status) => tx.birth = status.get("index").and_then(Value::as_u64),
            Err(ApiError::NoResponse(why)) => {
                let message =
                    format!("the transaction was not sent: the daemon does not respond: {why} ({tx})");
                return fail(context, EXIT_TEMPFAIL, &tx, "not_accepted", message);
            }
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(body) = body.as_object_mut() {
        body.insert("tx_id".to_owned(), json!(tx.id));
        body.extend(tx.birth.map(|birth| ("birth".to_owned(), json!(birth))));
        body.insert("timeout".to_owned(), json!(format_duration(args.timeout)));
    }
    match context.daemon.post("transactions", body, args.timeout).await {
        Ok(answer) => report(context, answer),
        Err(ApiError::Rejected(problem)) => {
            tx.birth = problem.birth.or(tx.birth);
            match problem.kind() {
                // A node that stops may have forwarded the transaction before.
                "ledger-stopped" => unknown_outcome(context, &tx, &problem.detail),
                _ if problem.status == 504 => unknown_outcome(context, &tx, &problem.detail),
                "transaction-expired" => {
                    let message =
                        format!("the transaction has expired: {} (tx-id {})", problem.detail, tx.id);
                    fail(context, EXIT_TIMEOUT, &tx, "expired", message)
                }
                kind if problem.status == 503 => {
                    let outcome = if kind == "no-quorum" { "no_quorum" } else { "not_accepted" };
                    let message = format!("the transaction was not accepted: {} ({tx})", problem.detail);
                    fail(context, EXIT_TEMPFAIL, &tx, outcome, message)
                }
                _ => Err(ApiError::Rejected(problem).into()),
            }
        }
        Err(ApiError::NoResponse(why)) => unknown_outcome(context, &tx, &why),
        Err(error) => Err(error.into()),
    }
}

/// The id and the birth of a transaction. The text is the options that submit it again.
struct SubmittedTx {
    id: String,
    /// `None` if the daemon does not know the history yet.
    birth: Option<u64>,
}

impl fmt::Display for SubmittedTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--tx-id {}", self.id)?;
        self.birth.map_or(Ok(()), |birth| write!(f, " --birth {birth}"))
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
        let (reason, tx_id) = (escaped(&reason.unwrap_or_default()), escaped(&tx_id));
        return Err(CommandError::Failed(format!(
            "the transaction failed and changed nothing: {reason} (index {index}, tx-id {tx_id})"
        )));
    }
    if let Some(result) = result {
        result.print(&mut output::stdout())?;
    }
    note!("committed at index {index}, tx-id {}", escaped(&tx_id));
    Ok(ExitCode::SUCCESS)
}

fn unknown_outcome(context: &LedgerContext, tx: &SubmittedTx, why: &str) -> Result<ExitCode, CommandError> {
    let message = format!(
        "the outcome is unknown: {why}; submit the transaction again with {tx}, through any daemon: it is committed at \
         most once"
    );
    fail(context, EXIT_TIMEOUT, tx, "unknown", message)
}

fn fail(
    context: &LedgerContext,
    code: u8,
    tx: &SubmittedTx,
    outcome: &str,
    why: String,
) -> Result<ExitCode, CommandError> {
    let SubmittedTx { id: tx_id, birth } = tx;
    if context.print_json(&json!({ "tx_id": tx_id, "birth": birth, "outcome": outcome, "reason": why }))? {
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
                let pairs =
                    variables.iter().zip(values).map(|(name, value)| format!("?{} = {value}", escaped(name)));
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
            Self::Symbol { symbol } => f.write_str(&escaped(symbol)),
            Self::Text(text) => match machine::Value::text(text.as_str()) {
                Ok(value) => write!(f, "{value}"),
                Err(_) => write!(f, "{text:?}"),
            },
        }
    }
}
