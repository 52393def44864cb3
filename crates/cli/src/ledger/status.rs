//! `holdoff ledger status`

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::LedgerContext;
use crate::api_client::read;
use crate::error::CommandError;
use crate::output::{self, Table, escaped, time};
use crate::signals::StopSignals;

/// The interval between two checks for changes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

pub(super) async fn run(context: &LedgerContext, watch: bool) -> Result<ExitCode, CommandError> {
    let mut answer = context.daemon.get(&[], &[]).await?;
    show(context, &answer)?;
    if !watch {
        return Ok(ExitCode::SUCCESS);
    }
    let mut signals = StopSignals::new()?;
    loop {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            _ = signals.next() => return Ok(ExitCode::SUCCESS),
        }
        let now = context.daemon.get(&[], &[]).await?;
        if without_time(&now) != without_time(&answer) {
            writeln!(output::stdout())?;
            show(context, &now)?;
            answer = now;
        }
    }
}

/// Removes the fields that change without an event: the leader's time in office and the counters.
fn without_time(answer: &Value) -> Value {
    let mut answer = answer.clone();
    if let Some(fields) = answer.as_object_mut() {
        fields.remove("leader_for_ms");
        fields.remove("counts");
    }
    answer
}

fn show(context: &LedgerContext, answer: &Value) -> Result<(), CommandError> {
    if context.print_json(answer)? {
        return Ok(());
    }
    let status: StatusResponse = read(answer.clone())?;
    let mut out = output::stdout();
    writeln!(out, "this node  {}", escaped(&status.contact))?;
    let Some(joined) = &status.joined else {
        let line = format!("holdoff ledger members add {}", escaped(&status.contact));
        writeln!(
            out,
            "ledger     {}: waiting to be added; run `{line}` on a member",
            escaped(&status.namespace)
        )?;
        return Ok(());
    };
    writeln!(out, "ledger     {} ({})", escaped(&status.namespace), escaped(&joined.ledger))?;
    writeln!(out, "leader     {}", leader(status.leader.as_ref(), joined))?;
    writeln!(out, "role       {} at index {}", escaped(&status.role), joined.index)?;
    writeln!(out, "log hash   {}", escaped(&joined.hash))?;
    writeln!(out, "state hash {}", escaped(&joined.state_hash))?;
    writeln!(out, "certified  up to index {} by a majority", joined.certified)?;
    writeln!(out, "pending    {} transactions", joined.pending)?;
    writeln!(out)?;
    print(&status.members, &mut out)?;
    Ok(())
}

fn leader(leader: Option<&LeaderResponse>, joined: &JoinedResponse) -> String {
    let duration = time(Duration::from_millis(joined.leader_for_ms));
    match leader {
        Some(LeaderResponse { key, name }) => {
            let (name, term) = (escaped(name.as_deref().unwrap_or(key)), &joined.term);
            format!("{name} for {duration} in term {}.{}", term.start, term.attempt)
        }
        None => format!("none for {duration}; a majority of the voters must be connected"),
    }
}

pub(super) fn print(members: &[MemberResponse], out: &mut impl Write) -> std::io::Result<()> {
    let mut table = Table::new(["member", "state", "votes", "index", "lag", "address", "key"]);
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    for member in members {
        let votes = match (member.votes, member.should_vote) {
            (true, true) => "yes",
            (false, true) => "pending",
            (true, false) => "until demoted",
            (false, false) => "no",
        };
        table.row([
            member.name.clone(),
            if member.reachable { "reachable" } else { "unreachable" }.to_owned(),
            votes.to_owned(),
            number(member.index),
            number(member.lag),
            member.address.clone(),
            member.key.clone(),
        ]);
    }
    table.print(out)
}

/// The status of a daemon's node. Before the node has joined, most fields are unknown.
#[derive(Deserialize)]
pub(super) struct StatusResponse {
    pub(super) namespace: String,
    pub(super) contact: String,
    pub(super) role: String,
    #[serde(flatten)]
    pub(super) joined: Option<JoinedResponse>,
    pub(super) leader: Option<LeaderResponse>,
    pub(super) members: Vec<MemberResponse>,
}

#[derive(Deserialize)]
pub(super) struct JoinedResponse {
    pub(super) ledger: String,
    pub(super) term: TermResponse,
    pub(super) leader_for_ms: u64,
    pub(super) index: u64,
    pub(super) hash: String,
    pub(super) state_hash: String,
    pub(super) certified: u64,
    pub(super) pending: u64,
}

#[derive(Deserialize)]
pub(super) struct LeaderResponse {
    pub(super) key: String,
    pub(super) name: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct TermResponse {
    pub(super) start: u64,
    pub(super) attempt: u64,
}

#[derive(Deserialize)]
pub(super) struct MemberResponse {
    pub(super) key: String,
    pub(super) name: String,
    pub(super) address: String,
    pub(super) votes: bool,
    pub(super) should_vote: bool,
    pub(super) reachable: bool,
    pub(super) index: Option<u64>,
    pub(super) lag: Option<u64>,
}
