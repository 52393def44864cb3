//! `holdoff lock release` and `holdoff lock raise-floor`

use std::io::Write;

use holdoff_lock::Token;

use super::LockContext;
use crate::error::CommandError;
use crate::output::{self, escaped};

pub(super) const AFTER_HELP: &str = "A token is the time of its grant in microseconds, so tokens grow by themselves over a \
crash, a failover and a restore. Raise the floor if a resource has seen higher tokens than the store grants: because its \
tokens came from another store, or because the store's clock was set back and grants were lost.";

#[derive(clap::Args, Debug)]
pub(super) struct ReleaseArgs {
    /// Key of the lock
    key: String,

    /// Release the lock although its holder may still be working; the holder's fencing token becomes stale
    #[arg(long)]
    force: bool,
}

impl ReleaseArgs {
    /// Fails without `--force` and says what it does.
    pub(super) fn require_force(&self) -> Result<(), CommandError> {
        if self.force {
            return Ok(());
        }
        Err(CommandError::Usage(format!(
            "the holder releases {} itself, or its lease expires; add --force to release it now. The holder may still \
             be working, so the protected resource must reject its fencing token",
            self.key
        )))
    }
}

pub(super) async fn release(context: &LockContext, args: &ReleaseArgs) -> Result<(), CommandError> {
    let key = &args.key;
    let holder = context.backend.force_release(&context.namespace, key).await?;
    let mut out = output::stdout();
    if context.json {
        let holder = holder.as_ref().map(|holder| &holder.name);
        let answer = serde_json::json!({ "key": key, "released": holder.is_some(), "holder": holder });
        return Ok(writeln!(out, "{answer}")?);
    }
    let Some(holder) = holder else { return Ok(writeln!(out, "{key} was not held")?) };
    let (name, token) = (escaped(&holder.name), holder.token);
    Ok(writeln!(out, "released {key}, held by {name}; fencing token {token} is stale now")?)
}

pub(super) async fn raise_floor(context: &LockContext, token: Token) -> Result<(), CommandError> {
    let floor = context.backend.raise_floor(token).await?;
    let mut out = output::stdout();
    if context.json {
        return Ok(writeln!(out, "{}", serde_json::json!({ "floor": floor }))?);
    }
    Ok(writeln!(out, "new fencing tokens are above {floor}")?)
}
