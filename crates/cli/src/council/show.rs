//! `holdoff council members | status | watch`

use std::io::Write;
use std::process::ExitCode;

use holdoff_council::machine::{CouncilChange, InvalidOperation};
use holdoff_council::runtime::CouncilEvent;
use holdoff_council::{Applied, SignedOperation};
use holdoff_net::PeerAddress;
use holdoff_policy::as_micros_u64;

use super::{CouncilContext, acceptors, read_exit_code};
use crate::error::CommandError;
use crate::output::{self, Table, time};
use crate::signals::StopSignals;

pub(super) async fn members(context: &CouncilContext<'_>) -> Result<ExitCode, CommandError> {
    let is_current = context.catch_up().await?;
    let state = context.council.state().await?;
    let (me, mut out) = (context.council.key(), output::stdout());
    let members = state.machine().members();
    if context.json {
        let members: Vec<_> = members
            .iter()
            .map(|(key, member)| {
                serde_json::json!({ "key": key, "name": member.name, "since": member.since.0, "is_me": *key == me })
            })
            .collect();
        let answer = serde_json::json!({
            "slot": state.applied().0, "chain": state.chain().to_string(), "is_current": is_current, "members": members,
        });
        writeln!(out, "{answer}")?;
        return Ok(read_exit_code(is_current));
    }
    let mut table = Table::new(["name", "since slot", "key"]);
    for (key, member) in members {
        let me = if *key == me { " (this device)" } else { "" };
        table.row([format!("{}{me}", member.name), member.since.to_string(), key.to_string()]);
    }
    table.print(&mut out)?;
    Ok(read_exit_code(is_current))
}

pub(super) async fn status(context: &CouncilContext<'_>) -> Result<ExitCode, CommandError> {
    let is_current = context.catch_up().await?;
    let status = context.council.status().await?;
    let pending: Vec<_> = status.pending.iter().map(ToString::to_string).collect();
    let mut out = output::stdout();
    if context.json {
        let answer = serde_json::json!({
            "council": status.council.to_string(),
            "short_id": status.council.short_id().to_string(),
            "key": status.key,
            "is_member": status.is_member,
            "is_current": is_current,
            "slot": status.applied.0,
            "chain": status.chain.to_string(),
            "compacted": status.compacted.0,
            "pending": pending,
            "unposted_mail": status.unposted_mail,
            "round_trip_us": as_micros_u64(status.round_trip),
            "acceptors": status.acceptors.iter().map(acceptors::as_json).collect::<Vec<_>>(),
        });
        writeln!(out, "{answer}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(
        out,
        "council     {} (short id at the acceptors: {})",
        status.council,
        status.council.short_id()
    )?;
    writeln!(out, "device key  {}{}", status.key, if status.is_member { "" } else { " (not a member)" })?;
    writeln!(out, "slot        {} (snapshot after {})", status.applied, status.compacted)?;
    writeln!(out, "hash        {}", status.chain)?;
    writeln!(out, "pending     {} operations, {} messages to post", pending.len(), status.unposted_mail)?;
    writeln!(out, "round trip  {}", time(status.round_trip))?;
    writeln!(out)?;
    acceptors::print(&status.acceptors, &mut out)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn watch(context: &CouncilContext<'_>) -> Result<ExitCode, CommandError> {
    let mut events = context.council.subscribe()?;
    let before = context.council.state().await?.applied();
    note!("watching from slot {before} until the command is stopped");
    let mut signals = StopSignals::new()?;
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(event) => report(&event, context.json)?,
                None => return Err(CommandError::Failed("the device has stopped; the log contains the cause".to_owned())),
            },
            _ = signals.next() => return Ok(ExitCode::SUCCESS),
        }
    }
}

fn report(event: &CouncilEvent, json: bool) -> Result<(), CommandError> {
    let mut out = output::stdout();
    match event {
        CouncilEvent::Applied(applied) if json => writeln!(out, "{}", as_json(applied))?,
        CouncilEvent::Applied(applied) => print_applied(applied, &mut out)?,
        CouncilEvent::Installed(slot) if json => {
            writeln!(out, "{}", serde_json::json!({ "installed": slot.0 }))?;
        }
        CouncilEvent::Installed(slot) => writeln!(out, "slot {slot}: installed a snapshot")?,
        CouncilEvent::Lagged(many) => {
            note!("skipped {many} slots that arrived faster than they could be printed");
        }
        _ => {}
    }
    out.flush()?;
    Ok(())
}

fn as_json(applied: &Applied) -> serde_json::Value {
    let operation = |(operation, result): &(SignedOperation, Result<(), InvalidOperation>)| {
        serde_json::json!({
            "id": operation.id.to_string(),
            "author": operation.author,
            "change": describe(operation),
            "invalid": result.as_ref().err().map(ToString::to_string),
        })
    };
    serde_json::json!({
        "slot": applied.slot.0,
        "author": applied.author,
        "operations": applied.operations.iter().map(operation).collect::<Vec<_>>(),
        "skipped": applied.skipped.as_ref().map(ToString::to_string),
    })
}

fn print_applied(applied: &Applied, out: &mut impl Write) -> std::io::Result<()> {
    let slot = applied.slot;
    if let Some(why) = &applied.skipped {
        writeln!(out, "slot {slot}: skipped by all devices: {why}")?;
    }
    for (operation, result) in &applied.operations {
        let author = operation.author.short();
        match result {
            Ok(()) => writeln!(out, "slot {slot}: {author} {}", describe(operation))?,
            Err(why) => {
                writeln!(out, "slot {slot}: rejected: {author} {}: {why}", describe(operation))?;
            }
        }
    }
    Ok(())
}

fn describe(operation: &SignedOperation) -> String {
    match CouncilChange::read(&operation.body) {
        Some(CouncilChange::Add { key, name }) => format!("adds {name} ({key})"),
        Some(CouncilChange::Remove { key }) => format!("removes {key}"),
        Some(CouncilChange::Rotate { to }) => format!("replaces its key by {to}"),
        Some(CouncilChange::AddAcceptor(acceptor)) => {
            let address = PeerAddress { key: acceptor.key, address: acceptor.address };
            format!("adds the acceptor {address}")
        }
        Some(CouncilChange::RemoveAcceptor(id)) => format!("removes the acceptor {id}"),
        Some(CouncilChange::Compact { .. }) => "compacts the history".to_owned(),
        _ => "submits an operation that this version does not know".to_owned(),
    }
}
