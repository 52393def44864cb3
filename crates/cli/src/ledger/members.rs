//! `holdoff ledger members …` and `holdoff ledger step-down`

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use holdoff_net::PeerAddress;
use serde_json::{Value, json};

use super::LedgerContext;
use super::status::{self, StatusResponse};
use crate::api_client::read;
use crate::error::CommandError;
use crate::output::{self, escaped};

#[derive(Subcommand, Debug)]
pub(super) enum MembersCommand {
    /// List the members
    List,

    /// Add a member, or change its address, name or role
    Add {
        /// Public key and address of the node, as `holdoff ledger join` prints them there
        #[arg(value_name = "KEY@HOST:PORT")]
        member: PeerAddress,

        /// Name of the member [default: the first digits of its key]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,

        /// Add the member as a learner, which replicates the log and does not vote
        #[arg(long)]
        learner: bool,
    },

    /// Remove a member
    Remove {
        /// Public key of the member, or its name if the name is unique
        member: String,
    },
}

/// The number of key digits that stand for a member without a name.
const SHORT_KEY_DIGITS: usize = 8;

pub(super) async fn run(
    context: &LedgerContext,
    command: Option<&MembersCommand>,
) -> Result<ExitCode, CommandError> {
    match command {
        None | Some(MembersCommand::List) => list(context).await,
        Some(MembersCommand::Add { member, name, learner }) => {
            add(context, member, name.as_deref(), !learner).await
        }
        Some(MembersCommand::Remove { member }) => remove(context, member).await,
    }
}

async fn list(context: &LedgerContext) -> Result<ExitCode, CommandError> {
    let answer = context.daemon.get(&[], &[]).await?;
    let members = answer.get("members").cloned().unwrap_or(Value::Null);
    if !context.print_json(&members)? {
        status::print(&read::<Vec<_>>(members)?, &mut output::stdout())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn add(
    context: &LedgerContext,
    member: &PeerAddress,
    name: Option<&str>,
    votes: bool,
) -> Result<ExitCode, CommandError> {
    let short: String = member.key.to_string().chars().take(SHORT_KEY_DIGITS).collect();
    let name = name.unwrap_or(&short);
    let body = json!({ "key": member.key, "address": member.address, "name": name, "votes": votes });
    let answer = context.daemon.post("members", body, Duration::ZERO).await?;
    if !context.print_json(&answer)? {
        let role = if votes { "it votes when it has caught up" } else { "it is a learner and does not vote" };
        note!("added {name}: {role}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn remove(context: &LedgerContext, member: &str) -> Result<ExitCode, CommandError> {
    let key = find_key(context, member).await?;
    let answer = context.daemon.delete(&["members", &key]).await?;
    if !context.print_json(&answer)? {
        note!("removed {member}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the key of the member that has this key or name.
async fn find_key(context: &LedgerContext, member: &str) -> Result<String, CommandError> {
    let StatusResponse { members, .. } = read(context.daemon.get(&[], &[]).await?)?;
    let matching: Vec<_> = members.iter().filter(|it| it.key == member || it.name == member).collect();
    match matching.as_slice() {
        [one] => Ok(one.key.clone()),
        [] => Err(CommandError::Failed(format!(
            "{member} is not a member of this ledger; `holdoff ledger members` lists the members"
        ))),
        _ => Err(CommandError::Usage(format!("several members have the name {member}: use the public key"))),
    }
}

pub(super) async fn step_down(context: &LedgerContext, to: Option<&str>) -> Result<ExitCode, CommandError> {
    let body = match to {
        Some(to) => json!({ "to": find_key(context, to).await? }),
        None => json!({}),
    };
    let answer = context.daemon.post("step-down", body, Duration::ZERO).await?;
    if !context.print_json(&answer)? {
        let leader = answer.get("leader").and_then(Value::as_str).unwrap_or_default();
        writeln!(output::stdout(), "{}", escaped(leader))?;
        note!("Leadership transfer to this member requested; `holdoff ledger status` shows the leader.");
    }
    Ok(ExitCode::SUCCESS)
}
