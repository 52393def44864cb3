//! `holdoff ledger step-down`

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Desk, members};
use crate::failure::Failure;

pub(super) async fn step_down(desk: &Desk, to: Option<&str>) -> Result<ExitCode, Failure> {
    let body = match to {
        Some(to) => json!({ "to": members::key(desk, to).await? }),
        None => json!({}),
    };
    let answer = desk.daemon.post("step-down", body, Duration::ZERO).await?;
    if !desk.said_as_json(&answer)? {
        let leader = answer.get("leader").and_then(Value::as_str).unwrap_or_default();
        writeln!(anstream::stdout(), "{leader}")?;
        anstream::eprintln!("It was left to that one. `holdoff ledger status` says who leads.");
    }
    Ok(ExitCode::SUCCESS)
}
