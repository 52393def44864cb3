//! `holdoff work list`

use std::io::Write;

use holdoff_work::{Page, StepRecord};

use super::Desk;
use super::filter::filter;
use crate::args::ListArgs;
use crate::failure::Failure;
use crate::output::Table;

/// The displayed length of a message.
const MESSAGE: usize = 60;

pub(super) async fn run(desk: &Desk, args: &ListArgs) -> Result<(), Failure> {
    let mut page = Page::first(args.limit);
    page.after = args.after;
    let steps = desk.work.list(&filter(desk, &args.filter).unwrap_or_default(), &page).await?;
    let mut out = anstream::stdout();
    if desk.json {
        return Ok(writeln!(out, "{}", serde_json::json!(steps))?);
    }
    if steps.is_empty() {
        anstream::eprintln!("no steps");
        return Ok(());
    }
    let mut table =
        Table::new(["step", "operation", "queue", "state", "failures", "submitted", "last message"]);
    for step in &steps {
        table.row(row(step));
    }
    table.print(&mut out)?;
    let is_full = u32::try_from(steps.len()).is_ok_and(|count| count >= args.limit);
    if let Some(last) = steps.last().filter(|_| is_full) {
        anstream::eprintln!("there may be more: --after {}", last.id);
    }
    Ok(())
}

fn row(step: &StepRecord) -> [String; 7] {
    let message: String = step.message.as_deref().unwrap_or_default().chars().take(MESSAGE).collect();
    [
        step.id.to_string(),
        step.operation.clone(),
        step.queue.clone(),
        step.state.to_string(),
        step.failures.to_string(),
        step.created_at.to_string(),
        message,
    ]
}
