//! `holdoff work pause | resume`

use std::io::Write;

use holdoff_server::Deed;
use holdoff_work::Pausable;

use super::Desk;
use crate::args::PauseArgs;
use crate::audit;
use crate::failure::Failure;

pub(super) async fn run(desk: &Desk, args: &PauseArgs, pause: bool) -> Result<(), Failure> {
    let (what, kind, name) = match (&args.queue, &args.operation) {
        (Some(queue), _) => (Pausable::Queue, "queue", queue),
        (None, Some(operation)) => (Pausable::Operation, "operation", operation),
        (None, None) => return Err(Failure::Usage("name a --queue or an --operation".to_owned())),
    };
    if pause {
        desk.work.pause(&args.namespace, what, name).await?;
    } else {
        desk.work.resume(&args.namespace, what, name).await?;
    }
    let action = if pause { "work.pause" } else { "work.resume" };
    let deed = Deed::new(action, format!("{kind} {name}")).within(&args.namespace);
    audit::note(&desk.place, deed).await;
    let mut out = anstream::stdout();
    if desk.json {
        let answer = serde_json::json!({ kind: name, "namespace": args.namespace, "paused": pause });
        return Ok(writeln!(out, "{answer}")?);
    }
    let done = if pause { "is paused: what runs goes on, and nothing else is given out" } else { "goes on" };
    Ok(writeln!(out, "{kind} {name} {done}")?)
}
