//! `holdoff work retry | cancel | discard | resolve`

use std::io::Write;

use holdoff_server::Deed;
use holdoff_work::{Action, Filter, Page, Payload, StepState};

use super::filter::{filter, words};
use super::{Desk, text};
use crate::args::{ActArgs, ResolveArgs, Target};
use crate::audit;
use crate::failure::Failure;
use crate::output::is_wanted;

/// The maximum that the confirmation counts. A higher number would not change the user's decision.
const MOST_COUNTED: usize = 10_000;

pub(super) async fn run(desk: &Desk, args: &ActArgs, action: Action) -> Result<(), Failure> {
    if let Some(target) = args.target {
        return act_on(desk, target, &action).await;
    }
    let name = action.name();
    let filter = filter(desk, &args.filter).ok_or_else(|| {
        Failure::Usage(format!(
            "say what to {name}: a task, a step as TASK/NUMBER, or filters such as --operation"
        ))
    })?;
    let meant = applicable(filter, &action)?;
    if !args.yes {
        let Some(what) = meant_by(desk, &meant, &action).await? else { return say(desk, &action, 0) };
        if !is_wanted(&what)? {
            return Err(Failure::Failed("nothing was changed".to_owned()));
        }
    }
    let count = desk.work.act(&meant, &action).await?;
    note(desk, &action, words(&args.filter), count).await;
    say(desk, &action, count)
}

pub(super) async fn resolve(desk: &Desk, args: &ResolveArgs) -> Result<(), Failure> {
    let payload = match &args.payload {
        Some(payload) => {
            let json = text::read_json("--payload", payload)?;
            Some(Payload::json(&json).map_err(|error| Failure::Usage(error.to_string()))?)
        }
        None => None,
    };
    act_on(desk, Target::Step(args.step), &Action::Resolve(payload)).await
}

/// Performs the action on the named task or step. If it changes nothing, the error says why.
async fn act_on(desk: &Desk, target: Target, action: &Action) -> Result<(), Failure> {
    let (filter, task, number) = match target {
        Target::Task(task) => (Filter::task(task), task, None),
        Target::Step(step) => (Filter::step(step), step.task, Some(step.number)),
    };
    let count = desk.work.act(&filter, action).await?;
    if count > 0 {
        let what = number.map_or_else(|| task.to_string(), |number| format!("{task}/{number}"));
        note(desk, action, what, count).await;
        return say(desk, action, count);
    }
    let name = action.name();
    let Some(record) = desk.work.task_outline(task).await? else {
        return Err(Failure::Failed(format!("there is no task {task}")));
    };
    let needed = match action {
        Action::Cancel => "a task that is over cannot be cancelled",
        Action::Resolve(_) => "only conflicted steps can be resolved",
        _ => "only failed and conflicted steps can be",
    };
    let is = match number {
        None => format!("task {task} is {}", record.state),
        Some(number) => match record.steps.iter().find(|step| step.id.number == number) {
            Some(step) => format!("step {} is {}", step.id, step.state),
            None => format!("task {task} has no step {number}"),
        },
    };
    Err(Failure::Failed(format!("nothing to {name}: {is}, and {needed}")))
}

async fn note(desk: &Desk, action: &Action, what: String, count: u64) {
    audit::note(&desk.place, Deed::new(format!("work.{}", action.name()), what).times(count)).await;
}

/// Restricts the filter to the steps that the action applies to.
fn applicable(mut filter: Filter, action: &Action) -> Result<Filter, Failure> {
    let possible = |state: &StepState| match action {
        Action::Cancel => !StepState::OVER.contains(state),
        _ => matches!(state, StepState::Failed | StepState::Conflicted),
    };
    let states: Vec<StepState> = StepState::ALL.into_iter().filter(possible).collect();
    if let Some(impossible) = filter.states.iter().find(|state| !possible(state)) {
        let names: Vec<&str> = states.iter().map(|state| state.name()).collect();
        let (name, names) = (action.name(), names.join(" or "));
        return Err(Failure::Usage(format!("cannot {name} what is {impossible}, only what is {names}")));
    }
    if filter.states.is_empty() {
        filter.states = states;
    }
    Ok(filter)
}

/// Describes the action and the number of its steps, or returns `None` if no step matches.
async fn meant_by(desk: &Desk, filter: &Filter, action: &Action) -> Result<Option<String>, Failure> {
    let (mut count, mut page) = (0, Page::first(Page::MOST));
    let count = loop {
        let steps = desk.work.list(filter, &page).await?;
        count += steps.len();
        match steps.last() {
            Some(last) if count < MOST_COUNTED => page = page.after(last.id),
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

fn say(desk: &Desk, action: &Action, count: u64) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    if desk.json {
        let answer = serde_json::json!({ "action": action.name(), "steps": count });
        return Ok(writeln!(out, "{answer}")?);
    }
    let done = match action {
        Action::Retry => "will be tried again",
        Action::Cancel => "cancelled",
        Action::Discard => "discarded",
        _ => "resolved",
    };
    Ok(writeln!(out, "{} {done}", steps_of(count))?)
}

fn steps_of(count: u64) -> String {
    if count == 1 { "1 step".to_owned() } else { format!("{count} steps") }
}
