//! `holdoff work pause | resume | stats`

use std::io::Write;

use holdoff_policy::PolicySet;
use holdoff_server::AuditEvent;
use holdoff_work::Pausable;

use super::WorkContext;
use crate::error::CommandError;
use crate::output::{self, Table, time};
use crate::store;

#[derive(clap::Args, Debug)]
pub(super) struct PauseArgs {
    /// Queue to pause or resume
    #[arg(long, value_name = "NAME", conflicts_with = "operation")]
    queue: Option<String>,

    /// Operation to pause or resume
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,

    /// Namespace of the queue or the operation
    #[arg(long, value_name = "NAME", default_value = PolicySet::DEFAULT_NAMESPACE)]
    namespace: String,
}

pub(super) async fn set_paused(
    context: &WorkContext,
    args: &PauseArgs,
    pause: bool,
) -> Result<(), CommandError> {
    let (what, kind, name) = match (&args.queue, &args.operation) {
        (Some(queue), _) => (Pausable::Queue, "queue", queue),
        (None, Some(operation)) => (Pausable::Operation, "operation", operation),
        (None, None) => return Err(CommandError::Usage("add --queue NAME or --operation NAME".to_owned())),
    };
    if pause {
        context.work.pause(&args.namespace, what, name).await?;
    } else {
        context.work.resume(&args.namespace, what, name).await?;
    }
    let action = if pause { "work.pause" } else { "work.resume" };
    let event = AuditEvent::new(action, format!("{kind} {name}")).in_namespace(&args.namespace);
    store::record(&context.store, event).await;
    let mut out = output::stdout();
    if context.json {
        let answer = serde_json::json!({ kind: name, "namespace": args.namespace, "paused": pause });
        return Ok(writeln!(out, "{answer}")?);
    }
    if pause {
        return Ok(writeln!(
            out,
            "paused {kind} {name}: running steps continue, and no other step is dispatched"
        )?);
    }
    Ok(writeln!(out, "resumed {kind} {name}")?)
}

pub(super) async fn stats(context: &WorkContext) -> Result<(), CommandError> {
    let queues = context.work.stats().await?;
    let mut out = output::stdout();
    if context.json {
        return Ok(writeln!(out, "{}", serde_json::json!(queues))?);
    }
    if queues.is_empty() {
        note!("no steps");
        return Ok(());
    }
    let mut table = Table::new([
        "operation",
        "queue",
        "namespace",
        "due",
        "waiting",
        "running",
        "blocked",
        "failed",
        "conflicted",
        "stale",
        "oldest due",
    ]);
    for queue in &queues {
        let paused = if queue.paused { " (paused)" } else { "" };
        let oldest = if queue.due > 0 { time(queue.oldest_due) } else { String::new() };
        let counts = [
            queue.due,
            queue.waiting,
            queue.running,
            queue.blocked,
            queue.failed,
            queue.conflicted,
            queue.stale,
        ];
        let named = [format!("{}{paused}", queue.operation), queue.queue.clone(), queue.namespace.clone()];
        table.row(named.into_iter().chain(counts.map(|count| count.to_string())).chain([oldest]));
    }
    table.print(&mut out)?;
    Ok(())
}
