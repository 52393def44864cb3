//! `holdoff ledger history`

use std::io::Write;
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::Value;

use super::LedgerContext;
use crate::api_client::{ApiError, ProblemDocument, read};
use crate::error::CommandError;
use crate::output::style::{FAINT, HEADING};
use crate::output::{self, escaped};
use crate::signals::StopSignals;

#[derive(clap::Args, Debug)]
pub(super) struct HistoryArgs {
    /// List only entries after this index
    #[arg(long, value_name = "N")]
    after: Option<u64>,

    /// Maximum number of entries
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,

    /// Print new entries until the command is stopped
    #[arg(long, conflicts_with = "limit")]
    follow: bool,
}

#[derive(Deserialize)]
struct EntryResponse {
    index: u64,
    kind: String,
    tx_id: Option<String>,
    goal: Option<String>,
    commands: Option<Vec<Value>>,
    reason: Option<String>,
    #[serde(default)]
    diff: Vec<String>,
}

pub(super) async fn run(context: &LedgerContext, args: &HistoryArgs) -> Result<ExitCode, CommandError> {
    if args.follow {
        return follow(context, args.after).await;
    }
    list(context, args.after, args.limit).await
}

/// The maximum size of an event: a goal, its changes and its answer, with a margin.
const MAX_EVENT_BYTES: usize = 16 << 20;

#[derive(Deserialize)]
struct HistoryResponse {
    entries: Vec<EntryResponse>,
    next: Option<u64>,
}

async fn list(context: &LedgerContext, after: Option<u64>, limit: u32) -> Result<ExitCode, CommandError> {
    let answer = match (fetch_page(context, after.unwrap_or(0), limit).await, after) {
        // Without `--after`, the listing begins at the first retained entry.
        (Err(ApiError::Rejected(ProblemDocument { first: Some(first), .. })), None) => {
            fetch_page(context, first.saturating_sub(1), limit).await?
        }
        (answer, _) => answer?,
    };
    if context.print_json(&answer)? {
        return Ok(ExitCode::SUCCESS);
    }
    let HistoryResponse { entries, next } = read(answer)?;
    for entry in &entries {
        print_entry(entry)?;
    }
    if entries.is_empty() {
        note!("no entries");
    }
    if let Some(next) = next {
        note!("there may be more entries: add --after {next}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn fetch_page(context: &LedgerContext, after: u64, limit: u32) -> Result<Value, ApiError> {
    let query = [("after", after.to_string()), ("limit", limit.to_string())];
    context.daemon.get(&["history"], &query).await
}

async fn follow(context: &LedgerContext, after: Option<u64>) -> Result<ExitCode, CommandError> {
    let query: Vec<_> = after.map(|after| ("after", after.to_string())).into_iter().collect();
    let mut signals = StopSignals::new()?;
    let mut response = context.daemon.stream("events", &query).await?;
    let (mut buffer, mut last) = (Vec::new(), after.unwrap_or_default());
    loop {
        let chunk = tokio::select! {
            chunk = response.chunk() => chunk.ok().flatten(),
            _ = signals.next() => return Ok(ExitCode::SUCCESS),
        };
        let Some(chunk) = chunk.filter(|chunk| buffer.len() + chunk.len() <= MAX_EVENT_BYTES) else {
            return Err(CommandError::Failed(format!(
                "the daemon closed the connection; continue with --after {last}"
            )));
        };
        buffer.extend_from_slice(&chunk);
        for event in events(&mut buffer) {
            last = print_event(context, &event)?.unwrap_or(last);
        }
    }
}

/// A server-sent event of the daemon.
struct ServerEvent {
    name: String,
    data: String,
}

/// Removes the complete events from the buffer and returns them. An incomplete event stays in the buffer.
fn events(buffer: &mut Vec<u8>) -> Vec<ServerEvent> {
    let Some(end) = buffer.windows(2).rposition(|two| two == b"\n\n") else { return Vec::new() };
    let complete: Vec<u8> = buffer.drain(..end + 2).collect();
    String::from_utf8_lossy(&complete).split("\n\n").filter_map(event).collect()
}

fn event(text: &str) -> Option<ServerEvent> {
    let field = |name: &str| {
        let values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let values: Vec<_> = values.map(|value| value.strip_prefix(' ').unwrap_or(value)).collect();
        (!values.is_empty()).then(|| values.join("\n"))
    };
    Some(ServerEvent { name: field("event").unwrap_or_default(), data: field("data")? })
}

/// Prints an entry. Returns its index.
fn print_event(context: &LedgerContext, event: &ServerEvent) -> Result<Option<u64>, CommandError> {
    let Ok(data) = serde_json::from_str::<Value>(&event.data) else { return Ok(None) };
    match event.name.as_str() {
        "entry" => {}
        "missed" => {
            let first = data.get("first").map(Value::to_string).unwrap_or_default();
            note!("entries before {first} are compacted");
            return Ok(None);
        }
        "stopped" => {
            let reason = data.get("reason").and_then(Value::as_str).unwrap_or_default();
            return Err(CommandError::Failed(escaped(reason)));
        }
        _ => return Ok(None),
    }
    let entry: EntryResponse = read(data.clone())?;
    if !context.print_json(&data)? {
        print_entry(&entry)?;
    }
    output::stdout().flush()?;
    Ok(Some(entry.index))
}

fn print_entry(entry: &EntryResponse) -> Result<(), CommandError> {
    let mut out = output::stdout();
    let EntryResponse { index, kind, tx_id, goal, commands, reason, diff } = entry;
    let commands = commands.as_ref().map(|commands| serde_json::json!(commands).to_string());
    let what = escaped(goal.as_ref().or(commands.as_ref()).unwrap_or(kind));
    writeln!(out, "{HEADING}{index}{HEADING:#}  {what}")?;
    if let Some(reason) = reason {
        writeln!(out, "    failed: {}", escaped(reason))?;
    }
    for line in diff {
        writeln!(out, "    {}", escaped(line))?;
    }
    if let Some(tx_id) = tx_id {
        writeln!(out, "    {FAINT}{}{FAINT:#}", escaped(tx_id))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_events_stay_in_the_buffer() {
        let mut buffer = b"event: ready\ndata: []\n\n: still here\n\nid: 3\nevent: entry\nda".to_vec();
        let first = events(&mut buffer);
        assert_eq!(first.len(), 1);
        assert_eq!((first[0].name.as_str(), first[0].data.as_str()), ("ready", "[]"));
        assert!(events(&mut buffer).is_empty());
        buffer.extend_from_slice(b"ta: {\ndata: }\n\n");
        let second = events(&mut buffer);
        assert_eq!((second[0].name.as_str(), second[0].data.as_str()), ("entry", "{\n}"));
        assert!(buffer.is_empty());
    }
}
