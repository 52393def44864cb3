//! `holdoff ledger members …`

use std::process::ExitCode;
use std::time::Duration;

use holdoff_ledger::runtime::Contact;
use serde_json::{Value, json};

use super::seen::Status;
use super::{Desk, status};
use crate::args::LedgerMembersCommand;
use crate::daemon::read;
use crate::failure::Failure;

/// The number of key digits that stand for a member without a name.
const DIGITS: usize = 8;

pub(super) async fn run(desk: &Desk, command: Option<&LedgerMembersCommand>) -> Result<ExitCode, Failure> {
    match command {
        None | Some(LedgerMembersCommand::List) => list(desk).await,
        Some(LedgerMembersCommand::Add { member, name, learns }) => {
            add(desk, member, name.as_deref(), !learns).await
        }
        Some(LedgerMembersCommand::Remove { member }) => remove(desk, member).await,
    }
}

async fn list(desk: &Desk) -> Result<ExitCode, Failure> {
    let answer = desk.daemon.get(&[], &[]).await?;
    let members = answer.get("members").cloned().unwrap_or(Value::Null);
    if !desk.said_as_json(&members)? {
        status::print(&read::<Vec<_>>(members)?, &mut anstream::stdout())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn add(desk: &Desk, member: &Contact, name: Option<&str>, votes: bool) -> Result<ExitCode, Failure> {
    let short: String = member.key.to_string().chars().take(DIGITS).collect();
    let name = name.unwrap_or(&short);
    let body = json!({ "key": member.key, "address": member.address, "name": name, "votes": votes });
    let answer = desk.daemon.post("members", body, Duration::ZERO).await?;
    if !desk.said_as_json(&answer)? {
        let then = if votes { "it votes when it has caught up" } else { "it learns, and does not vote" };
        anstream::eprintln!("{name} is a member now: {then}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn remove(desk: &Desk, member: &str) -> Result<ExitCode, Failure> {
    let key = key(desk, member).await?;
    let answer = desk.daemon.delete(&["members", &key]).await?;
    if !desk.said_as_json(&answer)? {
        anstream::eprintln!("{member} is no member any more");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the key of the member that has this key or name.
pub(super) async fn key(desk: &Desk, member: &str) -> Result<String, Failure> {
    let Status { members, .. } = read(desk.daemon.get(&[], &[]).await?)?;
    let meant: Vec<_> = members.iter().filter(|it| it.key == member || it.name == member).collect();
    match meant.as_slice() {
        [one] => Ok(one.key.clone()),
        [] => Err(Failure::Failed(format!(
            "{member} is not a member of this ledger: `holdoff ledger members` lists them"
        ))),
        _ => {
            Err(Failure::Usage(format!("several are called {member}: name the one that is meant by its key")))
        }
    }
}
