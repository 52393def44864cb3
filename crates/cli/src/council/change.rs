//! Commands that change a council, and their outcomes.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use holdoff_council::machine::Change;
use holdoff_council::runtime::new_id;
use holdoff_council::{Letter, NotCommitted, OperationId, Outcome, PublicKey};

use super::{Desk, NOT_COMMITTED, TIME_WAS_UP};
use crate::failure::Failure;

/// The time a majority of the acceptors gets to store an invitation or a snapshot.
const HAND_IN: Duration = Duration::from_secs(10);

pub(super) async fn add(desk: &Desk<'_>, key: PublicKey, name: &str) -> Result<ExitCode, Failure> {
    let letter = desk.council.invite(key, desk.args.deadline).await?;
    let code = submit(desk, Change::Add { key, name: name.to_owned() }, Some(letter)).await?;
    if !desk.council.settle(HAND_IN).await? {
        anstream::eprintln!(
            "no majority of the acceptors keeps the invitation yet: the next command on this device goes on posting it"
        );
    }
    Ok(code)
}

pub(super) async fn remove(desk: &Desk<'_>, member: &str) -> Result<ExitCode, Failure> {
    let key = match member.parse() {
        Ok(key) => key,
        Err(error) => {
            desk.catch_up().await?;
            named(desk, member).await?.ok_or_else(|| {
                Failure::Failed(format!("nobody is called {member:?}, and as a key it will not do: {error}"))
            })?
        }
    };
    submit(desk, Change::Remove { key }, None).await
}

async fn named(desk: &Desk<'_>, name: &str) -> Result<Option<PublicKey>, Failure> {
    let state = desk.council.state().await?;
    let members = state.machine().members();
    let mut found = members.iter().filter(|(_, member)| member.name == name).map(|(key, _)| *key);
    match (found.next(), found.next()) {
        (Some(_), Some(_)) => Err(Failure::Usage(format!(
            "several are called {name:?}: name the one to remove by its key (`holdoff council members`)"
        ))),
        (found, _) => Ok(found),
    }
}

pub(super) async fn rotate(desk: &Desk<'_>) -> Result<ExitCode, Failure> {
    // After the rotation, signatures by the old key are no longer valid.
    desk.council.settle(desk.args.deadline).await?;
    let (key, outcome) = desk.council.rotate(desk.args.deadline).await?;
    if desk.json {
        return tell_json(&outcome, &serde_json::json!({ "key": key }));
    }
    if matches!(outcome, Outcome::Committed(_)) {
        writeln!(anstream::stdout(), "{key}")?;
    }
    tell(&outcome)
}

pub(super) async fn compact(desk: &Desk<'_>) -> Result<ExitCode, Failure> {
    desk.catch_up().await?;
    let since = desk.council.state().await?.applied();
    let code = submit(desk, Change::Compact { since }, None).await?;
    if !desk.council.settle(HAND_IN).await? {
        anstream::eprintln!("not every acceptor has the snapshot yet: they keep the slots until then");
    }
    Ok(code)
}

pub(super) async fn submit(
    desk: &Desk<'_>,
    change: Change,
    letter: Option<Letter>,
) -> Result<ExitCode, Failure> {
    let id: OperationId = desk.args.id.map_or_else(new_id, Ok)?;
    let outcome = desk.council.submit_with_id(id, change, letter, desk.args.deadline).await?;
    if desk.json {
        return tell_json(&outcome, &serde_json::json!({ "id": id.to_string() }));
    }
    tell(&outcome)
}

fn tell_json(outcome: &Outcome, more: &serde_json::Value) -> Result<ExitCode, Failure> {
    let mut answer = match outcome {
        Outcome::Committed(slot) => serde_json::json!({ "outcome": "committed", "slot": slot.0 }),
        Outcome::NotCommitted(NotCommitted::AlreadySo) => serde_json::json!({ "outcome": "already_so" }),
        Outcome::NotCommitted(why) => {
            serde_json::json!({ "outcome": "not_committed", "why": why.to_string() })
        }
        Outcome::Unknown => serde_json::json!({ "outcome": "unknown" }),
        Outcome::Invalid(why) => serde_json::json!({ "outcome": "invalid", "why": why.to_string() }),
    };
    if let (Some(answer), Some(more)) = (answer.as_object_mut(), more.as_object()) {
        answer.extend(more.clone());
    }
    writeln!(anstream::stdout(), "{answer}")?;
    Ok(ExitCode::from(code(outcome)))
}

fn tell(outcome: &Outcome) -> Result<ExitCode, Failure> {
    match outcome {
        Outcome::Committed(slot) => anstream::eprintln!("committed in slot {slot}"),
        Outcome::NotCommitted(NotCommitted::AlreadySo) => anstream::eprintln!("it is so already"),
        Outcome::NotCommitted(why) => {
            return Err(Failure::Coded(code(outcome), format!("not committed, and never will be: {why}")));
        }
        Outcome::Unknown => {
            return Err(Failure::Coded(
                code(outcome),
                "time was up, and it may still happen: the next command on this device goes on with it; `holdoff \
                 council status` says whether it is under way, and how the acceptors are"
                    .to_owned(),
            ));
        }
        Outcome::Invalid(why) => return Err(Failure::Coded(code(outcome), format!("it cannot be: {why}"))),
    }
    Ok(ExitCode::SUCCESS)
}

fn code(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Committed(_) | Outcome::NotCommitted(NotCommitted::AlreadySo) => 0,
        Outcome::NotCommitted(_) => NOT_COMMITTED,
        Outcome::Unknown => TIME_WAS_UP,
        Outcome::Invalid(_) => 1,
    }
}
