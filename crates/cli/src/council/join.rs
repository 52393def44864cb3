//! `holdoff council init` and `holdoff council join`

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use holdoff_council::machine::Members;
use holdoff_council::runtime::{Council, Joining, Settings};
use holdoff_council::{CouncilId, PublicKey};
use holdoff_net::{LinkOptions, PeerAddress};
use holdoff_policy::parse_duration;

use super::{CATCH_UP_TIMEOUT, read_exit_code};
use crate::error::{CommandError, EXIT_TIMEOUT};
use crate::output::{self, warn};

#[derive(clap::Args, Debug)]
pub(super) struct InitArgs {
    /// Name of this device
    #[arg(long, value_name = "NAME")]
    name: String,

    /// Acceptor, as it prints its address when it starts; repeat for three or five acceptors
    #[arg(long = "acceptor", value_name = "KEY@HOST:PORT", required = true)]
    acceptors: Vec<PeerAddress>,
}

#[derive(clap::Args, Debug)]
pub(super) struct JoinArgs {
    /// Id of the council
    council: CouncilId,

    /// Acceptor of the council to fetch the invitation from; repeatable
    #[arg(long = "acceptor", value_name = "KEY@HOST:PORT", required = true)]
    acceptors: Vec<PeerAddress>,

    /// Keep the device and its key, because the council was recovered from the one to which the device belongs
    #[arg(long)]
    recovered: bool,

    /// Accept only an invitation by this member
    #[arg(long, value_name = "KEY")]
    by: Option<PublicKey>,

    /// Time to wait for the invitation
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    wait: Duration,
}

pub(super) async fn init(
    directory: &Path,
    args: &InitArgs,
    deadline: Duration,
    json: bool,
) -> Result<ExitCode, CommandError> {
    let InitArgs { name, acceptors } = args;
    let (count, mut keys) = (acceptors.len(), BTreeSet::new());
    if let Some(twice) = acceptors.iter().find(|acceptor| !keys.insert(acceptor.key)) {
        let key = twice.key;
        return Err(CommandError::Usage(format!(
            "two `--acceptor` options have the key {key}: name each acceptor once"
        )));
    }
    if count.is_multiple_of(2) {
        warn(&format!("{count} acceptors tolerate no more failures than {}; use an odd number", count - 1));
    }
    let options = LinkOptions::default();
    let creating = Council::<Members>::create(directory, name, acceptors, &options);
    let late = |_| {
        CommandError::Coded(
            EXIT_TIMEOUT,
            "not every acceptor answered before the deadline; the council was not created".into(),
        )
    };
    let council = tokio::time::timeout(deadline, creating).await.map_err(late)??;
    let mut out = output::stdout();
    if json {
        return Ok(writeln!(out, "{}", serde_json::json!({ "council": council.to_string() }))
            .map(|()| ExitCode::SUCCESS)?);
    }
    writeln!(out, "{council}")?;
    note!(
        "Other devices join with `holdoff council join {council} --acceptor {}`.",
        acceptors.first().map(ToString::to_string).unwrap_or_default()
    );
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn join(directory: &Path, args: &JoinArgs, json: bool) -> Result<ExitCode, CommandError> {
    let joining =
        if args.recovered { Joining::open_recovered(directory)? } else { Joining::open(directory)? };
    let (key, mut out) = (joining.key(), output::stdout());
    if json {
        writeln!(out, "{}", serde_json::json!({ "key": key }))?;
    } else if !args.recovered {
        writeln!(out, "{key}")?;
        note!(
            "This is the key of the device. A member adds it with `holdoff council add {key} --name NAME`."
        );
    }
    let JoinArgs { council, acceptors, by, wait, .. } = args;
    let options = LinkOptions::default();
    let joined = joining.wait::<Members>(*council, acceptors, *by, *wait, &options).await?;
    drop(joining);
    let device = Council::<Members>::open(directory, Settings::default())?;
    let is_current = device.catch_up(CATCH_UP_TIMEOUT).await?;
    let state = device.state().await?;
    device.close().await;
    let members = state.machine().members();
    let name = members.get(&joined.by).map_or("a former member", |member| member.name.as_str());
    let is_member = members.contains_key(&key);
    if json {
        let answer = serde_json::json!({
            "council": council.to_string(), "by": joined.by, "slot": state.applied().0, "members": members.len(),
            "is_member": is_member,
        });
        writeln!(out, "{answer}")?;
    } else {
        note!(
            "Joined council {council}, invited by {name} ({}): {} members after slot {}.",
            joined.by,
            members.len(),
            state.applied()
        );
    }
    Ok(read_exit_code(is_current && is_member))
}
