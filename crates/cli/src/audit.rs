//! `holdoff audit …`

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;
use holdoff_server::AuditPage;

use crate::args::{GlobalArgs, StoreArgs};
use crate::error::CommandError;
use crate::output::{self, Table};
use crate::store;

#[derive(clap::Args, Debug)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    store: StoreArgs,

    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Subcommand, Debug)]
enum AuditCommand {
    /// List the actions of operators, the newest first
    List {
        /// List only this namespace
        #[arg(long, value_name = "NAME")]
        namespace: Option<String>,

        /// List only entries older than the entry with this id
        #[arg(long, value_name = "ID")]
        before: Option<i64>,

        /// Maximum number of entries
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
}

pub(crate) fn run(args: &AuditArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(list(args, global)))
}

async fn list(args: &AuditArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let store = store::select(&args.store, global.config.as_deref())?;
    store::require_existing(&store, "`holdoff serve`")?;
    let AuditCommand::List { namespace, before, limit } = &args.command;
    let mut page = AuditPage::newest(*limit);
    (page.namespace, page.before) = (namespace.clone(), *before);
    let entries = store::open_tokens(&store).await?.audit(&page).await?;
    let mut out = output::stdout();
    if global.json {
        writeln!(out, "{}", serde_json::json!(entries))?;
        return Ok(ExitCode::SUCCESS);
    }
    if entries.is_empty() {
        note!("no audit entries");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["id", "time", "actor", "action", "namespace", "object", "count", "request"]);
    for entry in &entries {
        table.row([
            entry.id.to_string(),
            entry.at.to_string(),
            entry.actor.clone(),
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
        note!("there may be more entries: add --before {}", last.id);
    }
    Ok(ExitCode::SUCCESS)
}
