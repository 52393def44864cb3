//! `holdoff council init` and `holdoff council join`

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use holdoff_council::machine::Members;
use holdoff_council::runtime::{AcceptorAddress, Council, Joining, Settings};
use holdoff_council::{CouncilId, PublicKey};
use holdoff_net::LinkOptions;

use super::{LOOK, TIME_WAS_UP};
use crate::failure::Failure;

pub(super) async fn found(
    directory: &Path,
    name: &str,
    acceptors: &[AcceptorAddress],
    deadline: Duration,
    json: bool,
) -> Result<ExitCode, Failure> {
    if acceptors.len().is_multiple_of(2) {
        anstream::eprintln!(
            "of {} acceptors {} must answer, as of one more: an odd number bears as much with less",
            acceptors.len(),
            acceptors.len() / 2 + 1
        );
    }
    let options = LinkOptions::default();
    let founding = Council::<Members>::found(directory, name, acceptors, &options);
    let late =
        |_| Failure::Coded(TIME_WAS_UP, "not every acceptor has answered in time; nothing is founded".into());
    let council = tokio::time::timeout(deadline, founding).await.map_err(late)??;
    let mut out = anstream::stdout();
    if json {
        return Ok(writeln!(out, "{}", serde_json::json!({ "council": council.to_string() }))
            .map(|()| ExitCode::SUCCESS)?);
    }
    writeln!(out, "{council}")?;
    anstream::eprintln!(
        "Others join by `holdoff council join {council} --acceptor {}`. Tell the id only to those who shall.",
        acceptors.first().map(ToString::to_string).unwrap_or_default()
    );
    Ok(ExitCode::SUCCESS)
}

/// The council to join, and the accepted inviter.
pub(super) struct Wish<'a> {
    pub(super) council: CouncilId,
    pub(super) acceptors: &'a [AcceptorAddress],
    pub(super) by: Option<PublicKey>,
    pub(super) wait: Duration,
}

pub(super) async fn join(directory: &Path, wish: &Wish<'_>, json: bool) -> Result<ExitCode, Failure> {
    let joining = Joining::open(directory)?;
    let (key, mut out) = (joining.key(), anstream::stdout());
    if json {
        writeln!(out, "{}", serde_json::json!({ "key": key }))?;
    } else {
        writeln!(out, "{key}")?;
        anstream::eprintln!("This device's key. A member adds it by `holdoff council add {key} --name …`.");
    }
    let Wish { council, acceptors, by, wait } = *wish;
    let options = LinkOptions::default();
    let joined = joining.wait::<Members>(council, acceptors, by, wait, &options).await?;
    drop(joining);
    let device = Council::<Members>::open(directory, Settings::default())?;
    let is_current = device.catch_up(LOOK).await?;
    let state = device.state().await?;
    device.close().await;
    let members = state.machine().members();
    let name = members.get(&joined.by).map_or("somebody who has left", |member| member.name.as_str());
    let is_member = members.contains_key(&key);
    if json {
        let answer = serde_json::json!({
            "council": council.to_string(), "by": joined.by, "slot": state.applied().0, "members": members.len(),
            "is_member": is_member,
        });
        writeln!(out, "{answer}")?;
    } else {
        anstream::eprintln!(
            "Joined council {council}, by invitation of {name} ({}): {} members after slot {}.",
            joined.by,
            members.len(),
            state.applied()
        );
    }
    Ok(super::current(is_current && is_member))
}
