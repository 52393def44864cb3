//! `holdoff lock release`

use std::io::Write;

use super::Desk;
use crate::failure::Failure;

/// The error for a release without `--force`.
pub(super) fn explain(key: &str) -> Failure {
    Failure::Usage(format!(
        "whoever holds {key} lets it go by itself, or its lease ends; say --force to take it from a holder that may \
         still be at work: what the lock protects must then refuse its token"
    ))
}

pub(super) async fn run(desk: &Desk, key: &str) -> Result<(), Failure> {
    let holder = desk.keeper.take_away(&desk.namespace, key).await?;
    let mut out = anstream::stdout();
    if desk.json {
        let holder = holder.as_ref().map(|holder| &holder.name);
        let answer = serde_json::json!({ "key": key, "released": holder.is_some(), "holder": holder });
        return Ok(writeln!(out, "{answer}")?);
    }
    let Some(holder) = holder else { return Ok(writeln!(out, "nobody held {key}")?) };
    let (name, token) = (&holder.name, holder.token);
    Ok(writeln!(out, "{key} is free: it was taken from {name}, whose token {token} is stale now")?)
}
