//! `holdoff ledger verify` and `holdoff ledger snapshot`

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::Desk;
use super::seen::Verified;
use crate::daemon::read;
use crate::failure::Failure;

pub(super) async fn run(desk: &Desk) -> Result<ExitCode, Failure> {
    let answer = desk.daemon.get(&["verify"], &[]).await?;
    let is_said = desk.said_as_json(&answer)?;
    let Verified { first, last, certified, broken } = read(answer)?;
    if let Some(broken) = broken {
        if is_said {
            return Ok(ExitCode::FAILURE);
        }
        return Err(Failure::Failed(format!(
            "the history of this daemon does not hold together: {broken}. Stop the daemon, and join again from an \
             empty directory"
        )));
    }
    if !is_said {
        writeln!(
            anstream::stdout(),
            "entries {first} to {last} follow one from the other; a majority has signed those up to {certified}"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn snapshot(desk: &Desk) -> Result<ExitCode, Failure> {
    let answer = desk.daemon.post("snapshot", json!({}), Duration::ZERO).await?;
    if !desk.said_as_json(&answer)? {
        let through = answer.get("through").map(Value::to_string).unwrap_or_default();
        writeln!(anstream::stdout(), "a snapshot stands for everything up to index {through} on its disk")?;
    }
    Ok(ExitCode::SUCCESS)
}
