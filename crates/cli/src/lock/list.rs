//! `holdoff lock list` and `holdoff lock show`

use std::io::Write;

use serde_json::Value;

use super::LockContext;
use super::backend::{HolderStatus, LockStatus};
use crate::api_client::read;
use crate::error::CommandError;
use crate::output::{self, Table, escaped, time};

#[derive(clap::Args, Debug)]
pub(super) struct ListArgs {
    /// List only held locks
    #[arg(long)]
    pub(super) held: bool,

    /// List only keys with this prefix
    #[arg(long, value_name = "TEXT")]
    pub(super) prefix: Option<String>,

    /// List the locks of all namespaces
    #[arg(long)]
    pub(super) all: bool,

    /// Maximum number of locks
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) limit: u32,
}

pub(super) async fn list(context: &LockContext, args: &ListArgs) -> Result<(), CommandError> {
    let locks = context.backend.list(args, &context.namespace).await?;
    let mut out = output::stdout();
    if context.json {
        return Ok(writeln!(out, "{}", Value::from(locks))?);
    }
    if locks.is_empty() {
        note!("no locks");
        return Ok(());
    }
    let count = locks.len();
    let mut table =
        Table::new(["namespace", "key", "holder", "held for", "expires in", "waiters", "fencing token"]);
    for lock in locks {
        table.row(row(read(lock)?));
    }
    table.print(&mut out)?;
    if u32::try_from(count).is_ok_and(|count| count >= args.limit) {
        note!("there may be more locks: raise --limit or add --prefix");
    }
    Ok(())
}

fn row(lock: LockStatus) -> [String; 7] {
    let LockStatus { namespace, key, token, holder, waiting } = lock;
    let of_holder = |shown: fn(&HolderStatus) -> String| holder.as_ref().map(shown).unwrap_or_default();
    [
        namespace,
        key,
        of_holder(|holder| holder.name.clone()),
        of_holder(|holder| time(holder.held_for())),
        of_holder(|holder| time(holder.expires_in())),
        waiting.to_string(),
        token.to_string(),
    ]
}

pub(super) async fn show(context: &LockContext, key: &str) -> Result<(), CommandError> {
    let Some(lock) = context.backend.show(&context.namespace, key).await? else {
        return Err(CommandError::Failed(format!(
            "there is no lock {key}: it was never held, or its record was removed because it is long unused"
        )));
    };
    let mut out = output::stdout();
    if context.json {
        return Ok(writeln!(out, "{lock}")?);
    }
    let lock: LockStatus = read(lock)?;
    match &lock.holder {
        Some(holder) => {
            let (name, since, left) =
                (escaped(&holder.name), time(holder.held_for()), time(holder.expires_in()));
            writeln!(out, "{key} is held by {name} for {since}; the lease expires in {left} unless renewed")?;
        }
        None => writeln!(out, "{key} is free")?,
    }
    writeln!(out, "waiters: {}; latest fencing token: {}", lock.waiting, lock.token)?;
    Ok(())
}
