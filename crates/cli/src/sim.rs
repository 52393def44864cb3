//! `holdoff sim`

mod all;
mod files;
mod params;
mod show;

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use holdoff_policy::PolicySet;
use holdoff_sim::scenario::Scenario;
use holdoff_sim::scenario::election::Way;
use holdoff_sim::{LAB_STRATEGIES, Plan, Row, Strategy};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{Args, SimArgs};
use crate::config;
use crate::failure::Failure;

pub(crate) fn run(command: &SimArgs, args: &Args) -> Result<ExitCode, Failure> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = command.threads.map_or_else(cores, usize::from);
    if command.all {
        return all::run(command, threads, args.json);
    }
    let scenario = params::scenario(command)?;
    if command.show_params {
        write!(std::io::stdout(), "{}{}", params::text(&scenario)?, params::absent(&scenario))?;
        return Ok(ExitCode::SUCCESS);
    }
    let set = config::load(args.config.as_deref())?;
    let usual = || scenario.usual_strategies().iter().map(ToString::to_string).collect();
    let named: Vec<String> = if command.policies.is_empty() { usual() } else { command.policies.clone() };
    let mut names = Vec::new();
    for name in named {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let meant = |name: &String| match scenario {
        Scenario::Election(_) => way(name),
        _ => strategy(&set, name),
    };
    let strategies = names.iter().map(meant).collect::<Result<_, _>>()?;
    let asked = if command.clients.is_empty() { &[scenario.clients()] } else { command.clients.as_slice() };
    let clients: BTreeSet<u32> = asked.iter().copied().collect();
    let clients: Vec<u32> = clients.into_iter().collect();
    for number in &clients {
        params::check(&scenario.clone().with_clients(*number))?;
    }
    // Every thread holds a whole simulation in memory.
    let largest = clients.last().copied().unwrap_or(1).max(1);
    let affordable = usize::try_from(MOST_CLIENTS_AT_ONCE / largest).unwrap_or(1).max(1);
    let threads = threads.min(affordable);
    let plan = Plan {
        scenario,
        strategies,
        clients,
        runs: command.runs.unwrap_or(RUNS),
        seed: command.seed,
        threads,
    };
    if plan.total_runs() > MOST_RUNS {
        let message =
            format!("{} runs in all are more than the {MOST_RUNS} there is room for", plan.total_runs());
        return Err(Failure::Usage(format!("{message}; take fewer --runs, --clients or --policy")));
    }
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

/// The default number of runs per figure.
const RUNS: u32 = 100;

/// The maximum number of runs whose figures are kept.
const MOST_RUNS: u64 = 10_000_000;

/// The maximum number of clients in concurrent simulations, over all threads.
const MOST_CLIENTS_AT_ONCE: u32 = 40_000_000;

/// Resolves a strategy by name: a policy of the file or a preset first, then one of the lab's strategies.
fn strategy(set: &PolicySet, name: &str) -> Result<Strategy, Failure> {
    if let Some(policy) = set.policy(name) {
        if LAB_STRATEGIES.iter().any(|(lab, _)| *lab == name) {
            anstream::eprintln!("note: {name} is the policy of your file, not the lab's own");
        }
        return Ok(Strategy::policy(name, (**policy).clone()));
    }
    Strategy::named(name).ok_or_else(|| {
        let lab = LAB_STRATEGIES.iter().map(|(name, _)| *name);
        let known: Vec<&str> = set.policies().keys().map(String::as_str).chain(lab).collect();
        Failure::Usage(format!("there is no policy {name}; {}", config::hint(name, &known)))
    })
}

/// Resolves an election algorithm by name.
fn way(name: &str) -> Result<Strategy, Failure> {
    let unknown = || {
        Failure::Usage(format!(
            "there is no way {name} to find a leader; {}",
            config::hint(name, &Way::NAMES)
        ))
    };
    Way::named(name).map(Strategy::way).ok_or_else(unknown)
}

/// Runs the plan. On a terminal, a bar shows the progress.
fn run_with_progress(plan: &Plan) -> Vec<Row> {
    if !std::io::stderr().is_terminal() {
        return holdoff_sim::run(plan, &|_, _| {});
    }
    let style = ProgressStyle::with_template("{bar:40.cyan/dim} {pos}/{len} runs, {eta} left");
    let bar = ProgressBar::new(plan.total_runs())
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let rows = holdoff_sim::run(plan, &|done, _| bar.set_position(done as u64));
    bar.finish_and_clear();
    rows
}
