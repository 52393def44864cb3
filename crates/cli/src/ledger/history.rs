//! `holdoff ledger history`

use std::io::Write;
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::Value;

use super::Desk;
use super::seen::Entry;
use crate::daemon::{Problem, Refusal, read};
use crate::failure::Failure;
use crate::lock::signals::Signals;
use crate::output::style::{FAINT, HEADING};

/// The maximum size of an event: a goal, its changes and its answer, with a margin.
const MOST_BYTES: usize = 16 << 20;

#[derive(Deserialize)]
struct Page {
    entries: Vec<Entry>,
    next: Option<u64>,
}

pub(super) async fn list(desk: &Desk, after: Option<u64>, limit: u32) -> Result<ExitCode, Failure> {
    let answer = match (page(desk, after.unwrap_or(0), limit).await, after) {
        // Without `--after`, the listing begins at the first retained entry.
        (Err(Refusal::Said(Problem { first: Some(first), .. })), None) => {
            page(desk, first.saturating_sub(1), limit).await?
        }
        (answer, _) => answer?,
    };
    if desk.said_as_json(&answer)? {
        return Ok(ExitCode::SUCCESS);
    }
    let Page { entries, next } = read(answer)?;
    for entry in &entries {
        show(entry)?;
    }
    if entries.is_empty() {
        anstream::eprintln!("nothing has happened");
    }
    if let Some(next) = next {
        anstream::eprintln!("there may be more: --after {next}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn page(desk: &Desk, after: u64, limit: u32) -> Result<Value, Refusal> {
    let query = [("after", after.to_string()), ("limit", limit.to_string())];
    desk.daemon.get(&["history"], &query).await
}

pub(super) async fn follow(desk: &Desk, after: Option<u64>) -> Result<ExitCode, Failure> {
    let query: Vec<_> = after.map(|after| ("after", after.to_string())).into_iter().collect();
    let mut signals = Signals::new()?;
    let mut response = desk.daemon.stream("events", &query).await?;
    let (mut said, mut last) = (Vec::new(), after.unwrap_or_default());
    loop {
        let chunk = tokio::select! {
            chunk = response.chunk() => chunk.ok().flatten(),
            _ = signals.next() => return Ok(ExitCode::SUCCESS),
        };
        let Some(chunk) = chunk.filter(|chunk| said.len() + chunk.len() <= MOST_BYTES) else {
            return Err(Failure::Failed(format!("the daemon has hung up: go on by --after {last}")));
        };
        said.extend_from_slice(&chunk);
        for event in events(&mut said) {
            last = tell(desk, &event)?.unwrap_or(last);
        }
    }
}

/// A server-sent event of the daemon.
struct Event {
    name: String,
    data: String,
}

/// Removes the complete events from the buffer and returns them. An incomplete event stays in the buffer.
fn events(said: &mut Vec<u8>) -> Vec<Event> {
    let Some(end) = said.windows(2).rposition(|two| two == b"\n\n") else { return Vec::new() };
    let whole: Vec<u8> = said.drain(..end + 2).collect();
    String::from_utf8_lossy(&whole).split("\n\n").filter_map(event).collect()
}

fn event(text: &str) -> Option<Event> {
    let field = |name: &str| {
        let values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let values: Vec<_> = values.map(|value| value.strip_prefix(' ').unwrap_or(value)).collect();
        (!values.is_empty()).then(|| values.join("\n"))
    };
    Some(Event { name: field("event").unwrap_or_default(), data: field("data")? })
}

/// Prints an entry. Returns its index.
fn tell(desk: &Desk, event: &Event) -> Result<Option<u64>, Failure> {
    let Ok(data) = serde_json::from_str::<Value>(&event.data) else { return Ok(None) };
    match event.name.as_str() {
        "entry" => {}
        "missed" => {
            let first = data.get("first").map(Value::to_string).unwrap_or_default();
            anstream::eprintln!("entries before {first} are not kept any more");
            return Ok(None);
        }
        "stopped" => {
            let why = data.get("why").and_then(Value::as_str).unwrap_or_default();
            return Err(Failure::Failed(why.to_owned()));
        }
        _ => return Ok(None),
    }
    let entry: Entry = read(data.clone())?;
    if !desk.said_as_json(&data)? {
        show(&entry)?;
    }
    anstream::stdout().flush()?;
    Ok(Some(entry.index))
}

fn show(entry: &Entry) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    let Entry { index, kind, tx_id, goal, commands, why, diff } = entry;
    let commands = commands.as_ref().map(|commands| serde_json::json!(commands).to_string());
    let what = goal.as_ref().or(commands.as_ref()).unwrap_or(kind);
    writeln!(out, "{HEADING}{index}{HEADING:#}  {what}")?;
    if let Some(why) = why {
        writeln!(out, "    failed: {why}")?;
    }
    for line in diff {
        writeln!(out, "    {line}")?;
    }
    if let Some(tx_id) = tx_id {
        writeln!(out, "    {FAINT}{tx_id}{FAINT:#}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_taken_when_they_are_whole() {
        let mut said = b"event: ready\ndata: []\n\n: still here\n\nid: 3\nevent: entry\nda".to_vec();
        let first = events(&mut said);
        assert_eq!(first.len(), 1);
        assert_eq!((first[0].name.as_str(), first[0].data.as_str()), ("ready", "[]"));
        assert!(events(&mut said).is_empty());
        said.extend_from_slice(b"ta: {\ndata: }\n\n");
        let second = events(&mut said);
        assert_eq!((second[0].name.as_str(), second[0].data.as_str()), ("entry", "{\n}"));
        assert!(said.is_empty());
    }
}
