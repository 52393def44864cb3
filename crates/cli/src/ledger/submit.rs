//! `holdoff ledger submit`

use std::process::ExitCode;

use fastrand::Rng;
use holdoff_ledger::machine::Goal;
use serde_json::{Value, json};

use super::Desk;
use super::seen::Ended;
use crate::args::LedgerSubmitArgs;
use crate::daemon::{NOT_DONE, Refusal, TIME_WAS_UP, read};
use crate::failure::Failure;
use crate::work::text;

pub(super) async fn run(desk: &Desk, args: &LedgerSubmitArgs) -> Result<ExitCode, Failure> {
    // Chooses the transaction id before the first request, so that the user can submit again after any failure.
    let tx_id = args.tx_id.clone().unwrap_or_else(|| format!("{:032x}", Rng::new().u128(..)));
    let mut body = wanted(args)?;
    if let Some(body) = body.as_object_mut() {
        body.insert("tx_id".to_owned(), json!(tx_id));
        body.insert("timeout".to_owned(), json!(holdoff_policy::format_duration(args.timeout)));
    }
    match desk.daemon.post("transactions", body, args.timeout).await {
        Ok(answer) => ended(desk, answer),
        // A node that stops may have forwarded the transaction before.
        Err(Refusal::Said(problem)) if problem.status == 504 || problem.kind() == "ledger-stopped" => {
            unknown(desk, &tx_id, &problem.detail)
        }
        Err(Refusal::Said(problem)) if problem.status == 503 => {
            let outcome = if problem.kind() == "no-quorum" { "no_quorum" } else { "not_taken" };
            let said = format!("nothing has happened: {} (--tx-id {tx_id})", problem.detail);
            say(desk, NOT_DONE, &tx_id, outcome, said)
        }
        Err(Refusal::NoAnswer(why)) => unknown(desk, &tx_id, &why),
        Err(refusal) => Err(refusal.into()),
    }
}

/// Builds the request. It validates the goal or the JSON as far as that is possible without the daemon.
fn wanted(args: &LedgerSubmitArgs) -> Result<Value, Failure> {
    if let Some(commands) = &args.commands {
        return Ok(json!({ "commands": text::read_json("--commands", commands)? }));
    }
    let goal = goal(args.goal.as_deref().unwrap_or_default())?;
    Ok(json!({ "goal": goal }))
}

/// Parses a goal. The error shows each problem at its position.
pub(super) fn goal(argument: &str) -> Result<String, Failure> {
    let text = text::read(argument)?;
    let parsed: Result<Goal, _> = text.trim_end().parse();
    parsed
        .map(|goal| goal.to_string())
        .map_err(|problems| Failure::Usage(format!("this is no goal\n\n{problems}")))
}

fn ended(desk: &Desk, answer: Value) -> Result<ExitCode, Failure> {
    let is_said = desk.said_as_json(&answer)?;
    let Ended { tx_id, outcome, index, result, why } = read(answer)?;
    let is_committed = outcome == "committed";
    if is_said {
        return Ok(if is_committed { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if !is_committed {
        let why = why.unwrap_or_default();
        return Err(Failure::Failed(format!(
            "{why}; nothing is changed by it (index {index}, tx-id {tx_id})"
        )));
    }
    if let Some(result) = result {
        result.print(&mut anstream::stdout())?;
    }
    anstream::eprintln!("committed at index {index}, tx-id {tx_id}");
    Ok(ExitCode::SUCCESS)
}

fn unknown(desk: &Desk, tx_id: &str, why: &str) -> Result<ExitCode, Failure> {
    let said = format!(
        "it is not known what came of it: {why}. Submitted again under the same name, here or elsewhere, it happens \
         once at most: --tx-id {tx_id}"
    );
    say(desk, TIME_WAS_UP, tx_id, "unknown", said)
}

fn say(desk: &Desk, code: u8, tx_id: &str, outcome: &str, why: String) -> Result<ExitCode, Failure> {
    if desk.said_as_json(&json!({ "tx_id": tx_id, "outcome": outcome, "why": why }))? {
        return Ok(ExitCode::from(code));
    }
    Err(Failure::Coded(code, why))
}
