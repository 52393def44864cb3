//! `holdoff council recover`

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use holdoff_council::machine::Members;
use holdoff_council::runtime::{Council, RecoveredCouncil, Settings};
use holdoff_net::{LinkOptions, PeerAddress};

use super::read_exit_code;
use crate::error::CommandError;
use crate::output;

#[derive(clap::Args, Debug)]
pub(super) struct RecoverArgs {
    /// Acceptor of the new council, as it prints its address when it starts; repeatable. Acceptors that are left may be among
    /// them
    #[arg(long = "acceptor", value_name = "KEY@HOST:PORT", required = true)]
    acceptors: Vec<PeerAddress>,
}

pub(super) async fn recover(
    directory: &Path,
    args: &RecoverArgs,
    deadline: Duration,
    json: bool,
) -> Result<ExitCode, CommandError> {
    let recovery = Council::<Members>::recover(directory, &args.acceptors, &LinkOptions::default()).await?;
    let device = Council::<Members>::open(directory, Settings::default())?;
    let is_posted = device.settle(deadline).await?;
    device.close().await;
    let RecoveredCouncil { council, from, unproven, lost } = recovery;
    let mut out = output::stdout();
    if json {
        let lost: Vec<_> = lost.iter().map(|acceptor| acceptor.key).collect();
        let from = serde_json::json!({ "council": from.council.to_string(), "slot": from.slot.0, "chain": from.chain.to_string() });
        let answer = serde_json::json!({ "council": council.to_string(), "from": from, "unproven": unproven, "lost": lost });
        writeln!(out, "{answer}")?;
    } else {
        writeln!(out, "{council}")?;
        let first = args.acceptors.first().map(ToString::to_string).unwrap_or_default();
        let lost: Vec<_> = lost.iter().map(|acceptor| acceptor.key.to_string()).collect();
        note!(
            "Council {} ends after slot {}, and continues as council {council}. Decisions that only these acceptors know are \
             lost: {}. Never start them with their stores again. No majority has confirmed the last {unproven} slots.\nEvery \
             other member runs `holdoff council join {council} --recovered --acceptor {first}` on its device.",
            from.council,
            from.slot,
            lost.join(", "),
        );
    }
    Ok(read_exit_code(is_posted))
}
