//! `holdoff work retry | cancel | discard | resolve`

use std::io::Write;

use holdoff_server::AuditEvent;
use holdoff_work::{Action, PageRequest, ParseIdError, Payload, StepFilter, StepId, StepState, TaskId};

use super::WorkContext;
use super::list::{FilterArgs, describe, filter};
use crate::error::CommandError;
use crate::input::{confirm, read_json};
use crate::output;
use crate::store;

#[derive(clap::Args, Debug)]
pub(super) struct ActArgs {
    /// Task, or one of its steps as TASK/NUMBER; without it, the filter options select the steps
    #[arg(value_name = "TASK[/STEP]", conflicts_with_all = FilterArgs::IDS)]
    target: Option<Target>,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    filter: FilterArgs,
}

#[derive(clap::Args, Debug)]
pub(super) struct ResolveArgs {
    /// Step as TASK/NUMBER
    step: StepId,

    /// New payload: JSON, @FILE or - for stdin
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    payload: Option<String>,
}

/// The target of a command: a task or one of its steps.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    Task(TaskId),
    Step(StepId),
}

impl Target {
    /// Returns the task, or that of the step.
    pub(super) const fn task(self) -> TaskId {
        match self {
            Self::Task(task) => task,
            Self::Step(step) => step.task,
        }
    }
}

impl std::str::FromStr for Target {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('/') { text.parse().map(Self::Step) } else { text.parse().map(Self::Task) }
    }
}

/// The maximum that the confirmation counts. A higher number would not change the user's decision.
const MAX_COUNTED: usize = 10_000;

pub(super) async fn run(context: &WorkContext, args: &ActArgs, action: Action) -> Result<(), CommandError> {
    if let Some(target) = args.target {
        return act_on(context, target, &action).await;
    }
    let name = action.name();
    let filter = filter(context, &args.filter).ok_or_else(|| {
        CommandError::Usage(format!(
            "nothing selected to {name}: add a task, a step as TASK/NUMBER, or filters such as --operation"
        ))
    })?;
    let selected = applicable(filter, &action)?;
    if !args.yes {
        let Some(what) = describe_action(context, &selected, &action).await? else {
            return print_result(context, &action, 0);
        };
        if !confirm(&what)? {
            return Err(CommandError::Failed("nothing was changed".to_owned()));
        }
    }
    let count = context.work.act(&selected, &action).await?;
    record(context, &action, describe(&args.filter), count).await;
    print_result(context, &action, count)
}

pub(super) async fn resolve(context: &WorkContext, args: &ResolveArgs) -> Result<(), CommandError> {
    let payload = match &args.payload {
        Some(payload) => {
            let json = read_json("--payload", payload)?;
            Some(Payload::json(&json).map_err(|error| CommandError::Usage(error.to_string()))?)
        }
        None => None,
    };
    act_on(context, Target::Step(args.step), &Action::Resolve(payload)).await
}

/// Performs the action on the named task or step. If it changes nothing, the error says why.
async fn act_on(context: &WorkContext, target: Target, action: &Action) -> Result<(), CommandError> {
    let (filter, task, number) = match target {
        Target::Task(task) => (StepFilter::task(task), task, None),
        Target::Step(step) => (StepFilter::step(step), step.task, Some(step.number)),
    };
    let count = context.work.act(&filter, action).await?;
    if count > 0 {
        let what = number.map_or_else(|| task.to_string(), |number| format!("{task}/{number}"));
        record(context, action, what, count).await;
        return print_result(context, action, count);
    }
    let name = action.name();
    let Some(record) = context.work.task_outline(task).await? else {
        return Err(CommandError::Failed(format!("there is no task {task}")));
    };
    let needed = match action {
        Action::Cancel => "a finished task cannot be cancelled",
        Action::Resolve(_) => "the action needs a conflicted step",
        _ => "the action needs a failed or conflicted step",
    };
    let is = match number {
        None => format!("task {task} is {}", record.state),
        Some(number) => match record.steps.iter().find(|step| step.id.number == number) {
            Some(step) => format!("step {} is {}", step.id, step.state),
            None => format!("task {task} has no step {number}"),
        },
    };
    Err(CommandError::Failed(format!("cannot {name}: {is}; {needed}")))
}

async fn record(context: &WorkContext, action: &Action, what: String, count: u64) {
    store::record(&context.store, AuditEvent::new(format!("work.{}", action.name()), what).with_count(count))
        .await;
}

/// Restricts the filter to the steps that the action applies to.
fn applicable(mut filter: StepFilter, action: &Action) -> Result<StepFilter, CommandError> {
    let possible = |state: &StepState| match action {
        Action::Cancel => !StepState::OVER.contains(state),
        _ => matches!(state, StepState::Failed | StepState::Conflicted),
    };
    let states: Vec<StepState> = StepState::ALL.into_iter().filter(possible).collect();
    if let Some(impossible) = filter.states.iter().find(|state| !possible(state)) {
        let names: Vec<&str> = states.iter().map(|state| state.name()).collect();
        let (name, names) = (action.name(), names.join(" or "));
        return Err(CommandError::Usage(format!("cannot {name} {impossible} steps, only {names} steps")));
    }
    if filter.states.is_empty() {
        filter.states = states;
    }
    Ok(filter)
}

/// Describes the action and the number of its steps, or returns `None` if no step matches.
async fn describe_action(
    context: &WorkContext,
    filter: &StepFilter,
    action: &Action,
) -> Result<Option<String>, CommandError> {
    let (mut count, mut page) = (0, PageRequest::first(PageRequest::MAX_LIMIT));
    let count = loop {
        let steps = context.work.list(filter, &page).await?;
        count += steps.len();
        match steps.last() {
            Some(last) if count < MAX_COUNTED => page = page.after(last.id),
            Some(_) => break format!("{count} steps or more"),
            None if count == 0 => return Ok(None),
            None => break steps_of(count as u64),
        }
    };
    Ok(Some(match action {
        Action::Cancel => format!("cancel all tasks of {count}"),
        _ => format!("{} {count}", action.name()),
    }))
}

fn print_result(context: &WorkContext, action: &Action, count: u64) -> Result<(), CommandError> {
    let mut out = output::stdout();
    if context.json {
        let answer = serde_json::json!({ "action": action.name(), "steps": count });
        return Ok(writeln!(out, "{answer}")?);
    }
    let done = match action {
        Action::Retry => "will be retried",
        Action::Cancel => "cancelled",
        Action::Discard => "discarded",
        _ => "resolved",
    };
    Ok(writeln!(out, "{} {done}", steps_of(count))?)
}

fn steps_of(count: u64) -> String {
    if count == 1 { "1 step".to_owned() } else { format!("{count} steps") }
}
