//! `holdoff sim`

mod files;
mod params;
mod show;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use holdoff_policy::PolicySet;
use holdoff_sim::{LAB_STRATEGIES, Plan, Row, Strategy};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{Args, SimArgs};
use crate::config;
use crate::failure::Failure;

pub(crate) fn run(command: &SimArgs, args: &Args) -> Result<ExitCode, Failure> {
    let scenario = params::scenario(command)?;
    if command.show_params {
        write!(std::io::stdout(), "{}", params::text(&scenario)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let set = config::load(args.config.as_deref())?;
    let usual = || scenario.usual_strategies().iter().map(ToString::to_string).collect();
    let names: Vec<String> = if command.policies.is_empty() { usual() } else { command.policies.clone() };
    let strategies = names.iter().map(|name| strategy(&set, name)).collect::<Result<_, _>>()?;
    let clients = if command.clients.is_empty() { vec![scenario.clients()] } else { command.clients.clone() };
    for number in &clients {
        params::check(&scenario.clone().with_clients(*number))?;
    }
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = command.threads.map_or_else(cores, usize::from);
    let plan = Plan { scenario, strategies, clients, runs: command.runs, seed: command.seed, threads };
    let rows = run_with_progress(&plan);
    if let Some(folder) = &command.out {
        files::write(folder, &plan, &rows)?;
    }
    if args.json {
        show::json(&rows)?;
    } else {
        show::table(&plan, &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What this name means: a policy of the file or a preset, else one of the lab's own.
fn strategy(set: &PolicySet, name: &str) -> Result<Strategy, Failure> {
    if let Some(policy) = set.policy(name) {
        return Ok(Strategy::policy(name, (**policy).clone()));
    }
    Strategy::named(name).ok_or_else(|| {
        let lab = LAB_STRATEGIES.iter().map(|(name, _)| *name);
        let known: Vec<&str> = set.policies().keys().map(String::as_str).chain(lab).collect();
        let hint = holdoff_policy::nearest(name, known.iter().copied()).map_or_else(
            || format!("there are {}", known.join(", ")),
            |near| format!("did you mean {near}?"),
        );
        Failure::Usage(format!("there is no policy {name}; {hint}"))
    })
}

/// Runs the plan; on a terminal a bar shows how far it is.
fn run_with_progress(plan: &Plan) -> Vec<Row> {
    if !std::io::stderr().is_terminal() {
        return holdoff_sim::run(plan, &|_, _| {});
    }
    let style = ProgressStyle::with_template("{bar:40.cyan/dim} {pos}/{len} runs, {eta} left");
    let bar = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let rows = holdoff_sim::run(plan, &|done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    rows
}
