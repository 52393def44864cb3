//! `holdoff council status`

use std::io::Write;
use std::process::ExitCode;

use super::{Desk, acceptors};
use crate::failure::Failure;
use crate::output::time;

pub(super) async fn run(desk: &Desk<'_>) -> Result<ExitCode, Failure> {
    let is_current = desk.catch_up().await?;
    let status = desk.council.status().await?;
    let pending: Vec<_> = status.pending.iter().map(ToString::to_string).collect();
    let mut out = anstream::stdout();
    if desk.json {
        let answer = serde_json::json!({
            "council": status.council.to_string(),
            "mark": status.council.mark().to_string(),
            "key": status.key,
            "is_member": status.is_member,
            "is_current": is_current,
            "slot": status.applied.0,
            "chain": status.chain.to_string(),
            "compacted": status.compacted.0,
            "pending": pending,
            "letters": status.letters,
            "round_trip_us": u64::try_from(status.round_trip.as_micros()).unwrap_or(u64::MAX),
            "acceptors": status.acceptors.iter().map(acceptors::as_json).collect::<Vec<_>>(),
        });
        writeln!(out, "{answer}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "council    {} (its acceptors show it as {})", status.council, status.council.mark())?;
    writeln!(out, "this key   {}{}", status.key, if status.is_member { "" } else { " (not a member)" })?;
    writeln!(out, "slot       {} (snapshot after {})", status.applied, status.compacted)?;
    writeln!(out, "history    {}", status.chain)?;
    writeln!(out, "under way  {} operations, {} letters", pending.len(), status.letters)?;
    writeln!(out, "round trip {}", time(status.round_trip))?;
    writeln!(out)?;
    acceptors::print(&status.acceptors, &mut out)?;
    Ok(ExitCode::SUCCESS)
}
