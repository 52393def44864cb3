//! `holdoff work list`, and the filter of steps that other commands share.

use std::io::Write;
use std::time::Duration;

use holdoff_policy::{Class, parse_duration};
use holdoff_work::{PageRequest, StepFilter, StepId, StepRecord, StepState, TaskId};

use super::WorkContext;
use crate::error::CommandError;
use crate::output::{self, Table, time};

#[derive(clap::Args, Debug)]
pub(super) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,

    /// Maximum number of steps
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(PageRequest::MAX_LIMIT)))]
    limit: u32,

    /// List only steps after this one, the last of the previous page
    #[arg(long, value_name = "STEP")]
    after: Option<StepId>,
}

/// The arguments that select steps.
#[derive(clap::Args, Debug, Default)]
pub(super) struct FilterArgs {
    /// State of the step; several are separated by commas
    #[arg(long = "state", value_name = "STATE", value_delimiter = ',', help_heading = FILTER)]
    states: Vec<StepState>,

    /// Operation; * matches any characters
    #[arg(long, value_name = "NAME", help_heading = FILTER)]
    operation: Option<String>,

    /// Queue
    #[arg(long, value_name = "NAME", help_heading = FILTER)]
    queue: Option<String>,

    /// Namespace
    #[arg(long, value_name = "NAME", help_heading = FILTER)]
    namespace: Option<String>,

    /// Failure class of the latest failed attempt
    #[arg(long, value_name = "CLASS", help_heading = FILTER)]
    class: Option<Class>,

    /// Task of the step
    #[arg(long, value_name = "TASK", help_heading = FILTER)]
    task: Option<TaskId>,

    /// Text in the name or in the latest message
    #[arg(long, value_name = "TEXT", help_heading = FILTER)]
    text: Option<String>,

    /// Minimum time since the step was submitted
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = FILTER)]
    older_than: Option<Duration>,

    #[arg(long, help_heading = FILTER, help = "Ready or running for longer than work.stale_after")]
    stale: bool,
}

const FILTER: &str = "Filter options";

impl FilterArgs {
    /// The ids of the arguments, which a command with another selection conflicts with.
    pub(super) const IDS: [&str; 9] =
        ["states", "operation", "queue", "namespace", "class", "task", "text", "older_than", "stale"];
}

/// Builds the filter from the arguments, or returns `None` if they do not restrict anything.
pub(super) fn filter(context: &WorkContext, args: &FilterArgs) -> Option<StepFilter> {
    let mut filter = StepFilter::states(args.states.iter().copied());
    filter.task = args.task;
    filter.namespace.clone_from(&args.namespace);
    filter.queue.clone_from(&args.queue);
    filter.operation.clone_from(&args.operation);
    filter.class = args.class.map(|class| class.name().to_owned());
    filter.older_than = args.older_than;
    filter.stale_after = args.stale.then_some(context.settings.stale_after);
    filter.text.clone_from(&args.text);
    (filter != StepFilter::default()).then_some(filter)
}

/// Formats the filter as given on the command line, for the audit log.
pub(super) fn describe(args: &FilterArgs) -> String {
    let states: Vec<_> = args.states.iter().map(ToString::to_string).collect();
    let filters = [
        ("state", (!states.is_empty()).then(|| states.join(","))),
        ("operation", args.operation.clone()),
        ("queue", args.queue.clone()),
        ("namespace", args.namespace.clone()),
        ("class", args.class.map(|class| class.name().to_owned())),
        ("task", args.task.map(|task| task.to_string())),
        ("text", args.text.clone()),
        ("older-than", args.older_than.map(time)),
        ("stale", args.stale.then(String::new)),
    ];
    let flags = filters
        .into_iter()
        .filter_map(|(key, value)| Some(format!("--{key} {}", value?).trim_end().to_owned()));
    flags.collect::<Vec<_>>().join(" ")
}

/// The displayed length of a message.
const MAX_MESSAGE: usize = 60;

pub(super) async fn run(context: &WorkContext, args: &ListArgs) -> Result<(), CommandError> {
    let mut page = PageRequest::first(args.limit);
    page.after = args.after;
    let steps = context.work.list(&filter(context, &args.filter).unwrap_or_default(), &page).await?;
    let mut out = output::stdout();
    if context.json {
        return Ok(writeln!(out, "{}", serde_json::json!(steps))?);
    }
    if steps.is_empty() {
        note!("no steps");
        return Ok(());
    }
    let mut table =
        Table::new(["step", "operation", "queue", "state", "failures", "submitted", "latest message"]);
    for step in &steps {
        table.row(row(step));
    }
    table.print(&mut out)?;
    let is_full = u32::try_from(steps.len()).is_ok_and(|count| count >= args.limit);
    if let Some(last) = steps.last().filter(|_| is_full) {
        note!("there may be more steps: add --after {}", last.id);
    }
    Ok(())
}

fn row(step: &StepRecord) -> [String; 7] {
    let message: String = step.message.as_deref().unwrap_or_default().chars().take(MAX_MESSAGE).collect();
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
