//! `holdoff ledger status`

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use super::Desk;
use super::seen::{Joined, Leader, Member, Status};
use crate::daemon::read;
use crate::failure::Failure;
use crate::lock::signals::Signals;
use crate::output::{Table, time};

/// The interval between two checks for changes.
const LOOK: Duration = Duration::from_millis(500);

pub(super) async fn run(desk: &Desk, watch: bool) -> Result<ExitCode, Failure> {
    let mut answer = desk.daemon.get(&[], &[]).await?;
    show(desk, &answer)?;
    if !watch {
        return Ok(ExitCode::SUCCESS);
    }
    let mut signals = Signals::new()?;
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = signals.next() => return Ok(ExitCode::SUCCESS),
        }
        let now = desk.daemon.get(&[], &[]).await?;
        if without_time(&now) != without_time(&answer) {
            writeln!(anstream::stdout())?;
            show(desk, &now)?;
            answer = now;
        }
    }
}

/// Removes the fields that change without an event: the leader's tenure and the counters.
fn without_time(answer: &Value) -> Value {
    let mut answer = answer.clone();
    if let Some(fields) = answer.as_object_mut() {
        fields.remove("tenure_ms");
        fields.remove("counts");
    }
    answer
}

fn show(desk: &Desk, answer: &Value) -> Result<(), Failure> {
    if desk.said_as_json(answer)? {
        return Ok(());
    }
    let status: Status = read(answer.clone())?;
    let mut out = anstream::stdout();
    writeln!(out, "this node  {}", status.contact)?;
    let Some(joined) = &status.joined else {
        let line = format!("holdoff ledger members add {}", status.contact);
        writeln!(out, "ledger     {}: waits to be let in. A member does that by `{line}`", status.namespace)?;
        return Ok(());
    };
    writeln!(out, "ledger     {} ({})", status.namespace, joined.ledger)?;
    writeln!(out, "leader     {}", leader(status.leader.as_ref(), joined))?;
    writeln!(out, "here       {}, at index {}", in_words(&status.role), joined.index)?;
    writeln!(out, "history    {}", joined.hash)?;
    writeln!(out, "state      {}", joined.state_hash)?;
    writeln!(out, "signed     up to index {} by a majority", joined.certified)?;
    writeln!(out, "under way  {} transactions", joined.pending)?;
    writeln!(out)?;
    print(&status.members, &mut out)?;
    Ok(())
}

fn leader(leader: Option<&Leader>, joined: &Joined) -> String {
    let for_so_long = time(Duration::from_millis(joined.tenure_ms));
    match leader {
        Some(Leader { key, name }) => {
            let (name, term) = (name.as_deref().unwrap_or(key), &joined.term);
            format!("{name}, for {for_so_long}, in term {}.{}", term.start, term.attempt)
        }
        None => format!("none for {for_so_long}: a majority of the voters must reach each other"),
    }
}

fn in_words(role: &str) -> &str {
    if role == "looks" { "looks for a leader" } else { role }
}

pub(super) fn print(members: &[Member], out: &mut impl Write) -> std::io::Result<()> {
    let mut table = Table::new(["member", "how it is", "votes", "index", "behind", "address", "key"]);
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    for member in members {
        let votes = match (member.votes, member.shall_vote) {
            (true, true) => "yes",
            (false, true) => "soon",
            (true, false) => "no more soon",
            (false, false) => "no",
        };
        table.row([
            member.name.clone(),
            if member.here { "there" } else { "not heard of" }.to_owned(),
            votes.to_owned(),
            number(member.index),
            number(member.lag),
            member.address.clone(),
            member.key.clone(),
        ]);
    }
    table.print(out)
}
