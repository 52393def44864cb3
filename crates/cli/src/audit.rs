//! `holdoff audit …`, and audit entries for the other commands.

use std::io::Write;
use std::process::ExitCode;

use holdoff_server::{AuditPage, Deed, Error, Keep, Place};

use crate::args::{Args, AuditArgs, AuditCommand};
use crate::failure::Failure;
use crate::output::Table;
use crate::serve;

/// The actor in audit entries of this command. The name is not authenticated: a process that can write to the store
/// can use any name.
pub(crate) const WHO: &str = "command line";

pub(crate) fn run(command: &AuditArgs, args: &Args) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(answer(command, args)))
}

async fn answer(command: &AuditArgs, args: &Args) -> Result<ExitCode, Failure> {
    let place = serve::place(&command.place, args.config.as_deref())?;
    refuse_missing(&place, "audit log", "serve")?;
    let AuditCommand::List { namespace, before, limit } = &command.command;
    let mut page = AuditPage::newest(*limit);
    (page.namespace, page.before) = (namespace.clone(), *before);
    let entries = open(&place).await?.audit(&page).await?;
    let mut out = anstream::stdout();
    if args.json {
        writeln!(out, "{}", serde_json::json!(entries))?;
        return Ok(ExitCode::SUCCESS);
    }
    if entries.is_empty() {
        anstream::eprintln!("nothing was done");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["id", "when", "who", "what", "namespace", "on", "how many", "request"]);
    for entry in &entries {
        table.row([
            entry.id.to_string(),
            entry.at.to_string(),
            entry.who.clone(),
            entry.action.clone(),
            entry.namespace.clone().unwrap_or_default(),
            entry.object.clone(),
            entry.count.to_string(),
            entry.request.clone().unwrap_or_default(),
        ]);
    }
    table.print(&mut out)?;
    let is_full = u32::try_from(entries.len()).is_ok_and(|count| count >= *limit);
    if let Some(last) = entries.last().filter(|_| is_full) {
        anstream::eprintln!("there may be more: --before {}", last.id);
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the API tokens and the audit log of a store.
pub(crate) async fn open(place: &Place) -> Result<Keep, Failure> {
    Ok(Box::pin(Keep::open(place.url())).await?)
}

/// Writes an audit entry for an action of this command. The action is already done, so a failure only prints a
/// warning.
pub(crate) async fn note(place: &Place, deed: Deed) {
    // An in-memory store ends with this process, and Kubernetes has no audit table.
    if place.url().starts_with("sqlite::memory:") || place.url().starts_with("kubernetes") {
        return;
    }
    let noted = async { Box::pin(Keep::open(place.url())).await?.note(&deed.by(WHO)).await };
    if let Err(error) = noted.await {
        let mark = crate::output::style::WARNING;
        anstream::eprintln!("{mark}warning:{mark:#} done, and missing in the audit log: {error}");
    }
}

/// Fails if the store does not exist, so that a read-only command does not create an empty store.
pub(crate) fn refuse_missing(place: &Place, what: &str, by: &str) -> Result<(), Failure> {
    let Some(file) = place.missing_file() else { return Ok(()) };
    Err(Failure::Failed(format!(
        "no {what} is kept in {} yet: `holdoff {by}` makes it; --data DIR and --store URL name another place",
        file.display()
    )))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Token(_) => Self::Usage(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}
