//! `holdoff sim`

mod all;
mod output;
mod params;

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueHint;
use clap::builder::{PossibleValue, PossibleValuesParser};
use holdoff_policy::PolicySet;
use holdoff_sim::scenario::Scenario;
use holdoff_sim::scenario::election::Algorithm;
use holdoff_sim::{LAB_STRATEGIES, Plan, ResultRow, Strategy};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{GlobalArgs, with_default};
use crate::config;
use crate::error::CommandError;

#[derive(clap::Args, Debug)]
pub(crate) struct SimArgs {
    /// Scenario to simulate
    #[arg(value_parser = scenario_names())]
    scenario: String,

    /// Write a report, its charts and its data to this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,

    #[arg(long = "policy", value_name = "NAME", value_delimiter = ',', help_heading = INPUT, help = policy_help())]
    policies: Vec<String>,

    /// Numbers of clients, separated by commas; nodes for election [default: clients of the parameters]
    #[arg(long, visible_alias = "nodes", value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000_000), help_heading = INPUT)]
    clients: Vec<u32>,

    /// Parameters of the scenario as a TOML file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = INPUT)]
    params: Option<PathBuf>,

    /// Parameter of the scenario, such as hold=2s or layers=3; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = INPUT)]
    set: Vec<String>,

    /// Print the parameters of the scenario as TOML without running it
    #[arg(long, help_heading = INPUT)]
    show_params: bool,

    #[arg(
        long,
        visible_alias = "seeds",
        value_name = "R",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help_heading = RUN,
        help = with_default("Number of runs per result", format_args!("{RUNS}; {} with --all", all::RUNS))
    )]
    runs: Option<u32>,

    /// Seed of the random number generator
    #[arg(long, value_name = "S", default_value_t = 1, help_heading = RUN)]
    seed: u64,

    /// Number of threads, which does not affect the results [default: one per core]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=256), help_heading = RUN)]
    threads: Option<u16>,

    /// Run all situations of election, and fail if an acceptance limit is missed
    #[arg(long, conflicts_with_all = ["clients", "params", "set", "show_params", "out"], help_heading = RUN)]
    all: bool,
}

const INPUT: &str = "Scenario options";
const RUN: &str = "Run options";

fn scenario_names() -> PossibleValuesParser {
    Scenario::ALL.map(|(name, about)| PossibleValue::new(name).help(about)).into()
}

fn policy_help() -> String {
    let strategies: Vec<_> = LAB_STRATEGIES.iter().map(|(name, _)| *name).collect();
    format!(
        "Policies to compare, separated by commas: a policy of the file, a preset, or a strategy of the lab ({}); for \
         election an algorithm ({}) [default: those of the scenario]",
        strategies.join(", "),
        Algorithm::NAMES.join(", ")
    )
}

pub(crate) fn run(args: &SimArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or_else(cores, usize::from);
    if args.all {
        return all::run(args, threads, global.json);
    }
    let scenario = params::scenario(args)?;
    if args.show_params {
        write!(std::io::stdout(), "{}{}", params::text(&scenario)?, params::absent(&scenario))?;
        return Ok(ExitCode::SUCCESS);
    }
    let set = config::load_policies(global.config.as_deref())?;
    let usual = || scenario.usual_strategies().iter().map(ToString::to_string).collect();
    let named: Vec<String> = if args.policies.is_empty() { usual() } else { args.policies.clone() };
    let mut names = Vec::new();
    for name in named {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let resolve = |name: &String| match scenario {
        Scenario::Election(_) => algorithm(name),
        _ => strategy(&set, name),
    };
    let strategies = names.iter().map(resolve).collect::<Result<_, _>>()?;
    let clients = if args.clients.is_empty() { &[scenario.clients()] } else { args.clients.as_slice() };
    let clients: BTreeSet<u32> = clients.iter().copied().collect();
    let clients: Vec<u32> = clients.into_iter().collect();
    for number in &clients {
        params::check(&scenario.clone().with_clients(*number))?;
    }
    // Every thread holds a whole simulation in memory.
    let largest = clients.last().copied().unwrap_or(1).max(1);
    let affordable = usize::try_from(MAX_CONCURRENT_CLIENTS / largest).unwrap_or(1).max(1);
    let threads = threads.min(affordable);
    let plan =
        Plan { scenario, strategies, clients, runs: args.runs.unwrap_or(RUNS), seed: args.seed, threads };
    if plan.total_runs() > MAX_RUNS {
        return Err(CommandError::Usage(format!(
            "{} runs in total exceed the limit of {MAX_RUNS}; reduce --runs, --clients or --policy",
            plan.total_runs()
        )));
    }
    let rows = run_with_progress(&plan);
    if let Some(folder) = &args.out {
        output::write_files(folder, &plan, &rows)?;
    }
    if global.json {
        output::print_json(&rows)?;
    } else {
        output::print_table(&plan, &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The default number of runs per result.
const RUNS: u32 = 100;

/// The maximum number of runs, whose results are kept in memory.
const MAX_RUNS: u64 = 10_000_000;

/// The maximum number of clients in concurrent simulations, over all threads.
const MAX_CONCURRENT_CLIENTS: u32 = 40_000_000;

/// Resolves a strategy by name: a policy of the file or a preset first, then one of the lab's strategies.
fn strategy(set: &PolicySet, name: &str) -> Result<Strategy, CommandError> {
    if let Some(policy) = set.policy(name) {
        if LAB_STRATEGIES.iter().any(|(lab, _)| *lab == name) {
            note!("note: {name} is the policy of the configuration file, not the strategy of the lab");
        }
        return Ok(Strategy::policy(name, (**policy).clone()));
    }
    Strategy::named(name).ok_or_else(|| {
        let lab = LAB_STRATEGIES.iter().map(|(name, _)| *name);
        let known: Vec<&str> = set.policies().keys().map(String::as_str).chain(lab).collect();
        CommandError::Usage(format!("unknown policy {name}; {}", config::hint(name, &known)))
    })
}

/// Resolves an election algorithm by name.
fn algorithm(name: &str) -> Result<Strategy, CommandError> {
    let unknown = || {
        CommandError::Usage(format!(
            "unknown election algorithm {name}; {}",
            config::hint(name, &Algorithm::NAMES)
        ))
    };
    Algorithm::named(name).map(Strategy::election).ok_or_else(unknown)
}

/// Runs the plan. On a terminal, a bar shows the progress.
fn run_with_progress(plan: &Plan) -> Vec<ResultRow> {
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
