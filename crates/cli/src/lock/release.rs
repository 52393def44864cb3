//! `holdoff lock release` and `holdoff lock bump-epoch`

use std::io::Write;

use super::LockContext;
use crate::error::CommandError;

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
    let mut out = anstream::stdout();
    if context.json {
        let holder = holder.as_ref().map(|holder| &holder.name);
        let answer = serde_json::json!({ "key": key, "released": holder.is_some(), "holder": holder });
        return Ok(writeln!(out, "{answer}")?);
    }
    let Some(holder) = holder else { return Ok(writeln!(out, "{key} was not held")?) };
    let (name, token) = (&holder.name, holder.token);
    Ok(writeln!(out, "released {key}, held by {name}; fencing token {token} is stale now")?)
}

pub(super) async fn bump_epoch(context: &LockContext) -> Result<(), CommandError> {
    let epoch = context.backend.bump_epoch().await?;
    let mut out = anstream::stdout();
    if context.json {
        return Ok(writeln!(out, "{}", serde_json::json!({ "epoch": epoch }))?);
    }
    Ok(writeln!(out, "fencing epoch {epoch} starts: new fencing tokens exceed all earlier ones")?)
}
