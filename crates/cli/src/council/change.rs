//! Commands that change a council, and their outcomes.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use holdoff_council::machine::CouncilChange;
use holdoff_council::runtime::new_id;
use holdoff_council::{Mail, NotCommitted, OperationId, Outcome, PublicKey};

use super::CouncilContext;
use crate::error::{CommandError, EXIT_TEMPFAIL, EXIT_TIMEOUT};
use crate::output;

#[derive(clap::Args, Debug)]
pub(super) struct AddArgs {
    /// Public key of the device, as `holdoff council join` prints it there
    key: PublicKey,

    /// Name of the device
    #[arg(long, value_name = "NAME")]
    name: String,
}

/// The time a majority of the acceptors gets to store an invitation or a snapshot.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn add(context: &CouncilContext<'_>, args: &AddArgs) -> Result<ExitCode, CommandError> {
    let AddArgs { key, name } = args;
    let key = *key;
    let mail = context.council.invite(key, context.args.deadline).await?;
    let code = submit(context, CouncilChange::Add { key, name: name.to_owned() }, Some(mail)).await?;
    if !context.council.settle(SETTLE_TIMEOUT).await? {
        note!(
            "no majority of the acceptors has stored the invitation yet; the next command on this device sends it again"
        );
    }
    Ok(code)
}

pub(super) async fn remove(context: &CouncilContext<'_>, member: &str) -> Result<ExitCode, CommandError> {
    let key = match member.parse() {
        Ok(key) => key,
        Err(error) => {
            context.catch_up().await?;
            find_by_name(context, member).await?.ok_or_else(|| {
                CommandError::Failed(format!("no member has the name {member:?}, and it is {error}"))
            })?
        }
    };
    submit(context, CouncilChange::Remove { key }, None).await
}

async fn find_by_name(context: &CouncilContext<'_>, name: &str) -> Result<Option<PublicKey>, CommandError> {
    let state = context.council.state().await?;
    let members = state.machine().members();
    let mut found = members.iter().filter(|(_, member)| member.name == name).map(|(key, _)| *key);
    match (found.next(), found.next()) {
        (Some(_), Some(_)) => Err(CommandError::Usage(format!(
            "several members have the name {name:?}: use the public key, which `holdoff council members` shows"
        ))),
        (found, _) => Ok(found),
    }
}

pub(super) async fn rotate(context: &CouncilContext<'_>) -> Result<ExitCode, CommandError> {
    // After the rotation, signatures by the old key are no longer valid.
    context.council.settle(context.args.deadline).await?;
    let (key, outcome) = context.council.rotate(context.args.deadline).await?;
    if context.json {
        return print_json(&outcome, &serde_json::json!({ "key": key }));
    }
    if matches!(outcome, Outcome::Committed(_)) {
        writeln!(output::stdout(), "{key}")?;
    }
    report(&outcome)
}

pub(super) async fn compact(context: &CouncilContext<'_>) -> Result<ExitCode, CommandError> {
    context.catch_up().await?;
    let since = context.council.state().await?.applied();
    let code = submit(context, CouncilChange::Compact { since }, None).await?;
    if !context.council.settle(SETTLE_TIMEOUT).await? {
        note!("not every acceptor has stored the snapshot yet; an acceptor keeps the slots until then");
    }
    Ok(code)
}

pub(super) async fn submit(
    context: &CouncilContext<'_>,
    change: CouncilChange,
    mail: Option<Mail>,
) -> Result<ExitCode, CommandError> {
    let id: OperationId = context.args.id.map_or_else(new_id, Ok)?;
    let outcome = context.council.submit_with_id(id, change, mail, context.args.deadline).await?;
    if context.json {
        return print_json(&outcome, &serde_json::json!({ "id": id.to_string() }));
    }
    report(&outcome)
}

fn print_json(outcome: &Outcome, more: &serde_json::Value) -> Result<ExitCode, CommandError> {
    let mut answer = match outcome {
        Outcome::Committed(slot) => serde_json::json!({ "outcome": "committed", "slot": slot.0 }),
        Outcome::NotCommitted(NotCommitted::AlreadySatisfied) => {
            serde_json::json!({ "outcome": "already_satisfied" })
        }
        Outcome::NotCommitted(why) => {
            serde_json::json!({ "outcome": "not_committed", "reason": why.to_string() })
        }
        Outcome::Unknown => serde_json::json!({ "outcome": "unknown" }),
        Outcome::Invalid(why) => serde_json::json!({ "outcome": "invalid", "reason": why.to_string() }),
    };
    if let (Some(answer), Some(more)) = (answer.as_object_mut(), more.as_object()) {
        answer.extend(more.clone());
    }
    writeln!(output::stdout(), "{answer}")?;
    Ok(ExitCode::from(code(outcome)))
}

fn report(outcome: &Outcome) -> Result<ExitCode, CommandError> {
    match outcome {
        Outcome::Committed(slot) => note!("committed in slot {slot}"),
        Outcome::NotCommitted(NotCommitted::AlreadySatisfied) => note!("already satisfied"),
        Outcome::NotCommitted(why) => {
            return Err(CommandError::Coded(
                code(outcome),
                format!("the operation was not committed and never will be: {why}"),
            ));
        }
        Outcome::Unknown => {
            return Err(CommandError::Coded(
                code(outcome),
                "the deadline expired, and the operation may still be committed: the next command on this device \
                 continues it; `holdoff council status` shows pending operations and the state of the acceptors"
                    .to_owned(),
            ));
        }
        Outcome::Invalid(why) => {
            return Err(CommandError::Coded(code(outcome), format!("invalid operation: {why}")));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn code(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Committed(_) | Outcome::NotCommitted(NotCommitted::AlreadySatisfied) => 0,
        Outcome::NotCommitted(_) => EXIT_TEMPFAIL,
        Outcome::Unknown => EXIT_TIMEOUT,
        Outcome::Invalid(_) => 1,
    }
}
