//! `holdoff ledger verify` and `holdoff ledger snapshot`

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::LedgerContext;
use crate::api_client::read;
use crate::error::CommandError;
use crate::output;

#[derive(Deserialize)]
struct VerifyResponse {
    first: u64,
    last: u64,
    certified: u64,
    broken: Option<String>,
}

pub(super) async fn verify(context: &LedgerContext) -> Result<ExitCode, CommandError> {
    let answer = context.daemon.get(&["verify"], &[]).await?;
    let is_printed = context.print_json(&answer)?;
    let VerifyResponse { first, last, certified, broken } = read(answer)?;
    if let Some(broken) = broken {
        if is_printed {
            return Ok(ExitCode::FAILURE);
        }
        return Err(CommandError::Failed(format!(
            "the history of this daemon is inconsistent: {broken}; stop the daemon, and join again with an empty \
             directory"
        )));
    }
    if !is_printed {
        writeln!(
            output::stdout(),
            "verified entries {first} to {last}; a majority has signed them up to {certified}"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn snapshot(context: &LedgerContext) -> Result<ExitCode, CommandError> {
    let answer = context.daemon.post("snapshot", json!({}), Duration::ZERO).await?;
    if !context.print_json(&answer)? {
        let through = answer.get("through").map(Value::to_string).unwrap_or_default();
        writeln!(output::stdout(), "wrote a snapshot through index {through}")?;
    }
    Ok(ExitCode::SUCCESS)
}
