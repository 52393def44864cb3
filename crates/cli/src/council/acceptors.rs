//! `holdoff council acceptors …`

use std::io::Write;
use std::process::ExitCode;

use holdoff_council::NodeId;
use holdoff_council::machine::{Acceptor, Change, Machine};
use holdoff_council::runtime::{AcceptorAddress, Health, Watched};

use super::{Desk, change, current};
use crate::failure::Failure;
use crate::output::Table;

pub(super) async fn list(desk: &Desk<'_>) -> Result<ExitCode, Failure> {
    let is_current = desk.catch_up().await?;
    let status = desk.council.status().await?;
    let mut out = anstream::stdout();
    if desk.json {
        let acceptors: Vec<_> = status.acceptors.iter().map(as_json).collect();
        writeln!(
            out,
            "{}",
            serde_json::json!({ "slot": status.applied.0, "is_current": is_current, "acceptors": acceptors })
        )?;
    } else {
        print(&status.acceptors, &mut out)?;
    }
    Ok(current(is_current))
}

pub(super) fn print(acceptors: &[Watched], out: &mut impl Write) -> std::io::Result<()> {
    let mut table = Table::new(["acceptor", "how it is", "address"]);
    for watched in acceptors {
        let address =
            AcceptorAddress { key: watched.acceptor.key, address: watched.acceptor.address.clone() };
        table.row([short(watched.id), in_words(&watched.health), address.to_string()]);
    }
    table.print(out)
}

pub(super) fn as_json(watched: &Watched) -> serde_json::Value {
    let Watched { id, acceptor, health } = watched;
    let (word, why) = match health {
        Health::Connected => ("connected", None),
        Health::Unreachable(why) => ("unreachable", Some(why.clone())),
        Health::Wiped { .. } => ("wiped", Some(in_words(health))),
        Health::Refusing(why) => ("refusing", Some(why.to_string())),
        _ => ("connecting", None),
    };
    serde_json::json!({
        "id": format!("{:032x}", id.0), "key": acceptor.key, "address": acceptor.address, "health": word, "why": why,
    })
}

fn in_words(health: &Health) -> String {
    match health {
        Health::Connected => "connected".to_owned(),
        Health::Unreachable(why) => format!("unreachable: {why}"),
        Health::Wiped { .. } => "its storage was wiped: remove it, and add it again".to_owned(),
        Health::Refusing(why) => format!("refuses: {why}"),
        _ => "not reached yet".to_owned(),
    }
}

fn short(id: NodeId) -> String {
    format!("{id}")
}

pub(super) async fn add(desk: &Desk<'_>, address: &AcceptorAddress) -> Result<ExitCode, Failure> {
    let met = desk.council.meet(address, desk.args.deadline).await?;
    change::submit(desk, Change::AddAcceptor(met), None).await
}

pub(super) async fn remove(desk: &Desk<'_>, named: &str) -> Result<ExitCode, Failure> {
    desk.catch_up().await?;
    let state = desk.council.state().await?;
    let is_meant = |id: &NodeId, acceptor: &Acceptor| {
        acceptor.key.to_string() == named
            || (named.len() >= 4 && format!("{:032x}", id.0).starts_with(named))
            || AcceptorAddress { key: acceptor.key, address: acceptor.address.clone() }.to_string() == named
    };
    let acceptors = state.machine().acceptors();
    let meant: Vec<_> = acceptors.iter().filter(|(id, acceptor)| is_meant(id, acceptor)).collect();
    match meant.as_slice() {
        [(id, _)] => change::submit(desk, Change::RemoveAcceptor(**id), None).await,
        [] => Err(Failure::Failed(format!(
            "{named} does not decide here: `holdoff council acceptors list` says who does"
        ))),
        _ => Err(Failure::Usage(format!("{named} may be several: name more digits of the id"))),
    }
}
