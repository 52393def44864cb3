//! `holdoff demo`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;
use holdoff_policy::parse_duration;

/// The shortest and the longest run. In the shortest, every event of the plan still occurs; during the longest,
/// nothing is forgotten before the summary.
const RUNS: std::ops::RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(600);

#[derive(clap::Args, Debug)]
pub(crate) struct DemoArgs {
    /// Run for a short while, wait for what is under way, print a summary, and check that it adds up
    #[arg(long)]
    pub(crate) once: bool,

    /// How long there is traffic before the summary
    #[arg(long = "for", value_name = "TIME", requires = "once", default_value = "15s", value_parser = run_time)]
    pub(crate) lasts: Duration,

    /// Where to listen: a loopback address [default: 127.0.0.1:7070, or any port that is free if that is taken]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,

    /// Keep the store in this directory, which must have none yet [default: one that is removed at the end]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) data: Option<PathBuf>,

    /// What all chance follows from
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Print the demo's own holdoff.toml, and run nothing
    #[arg(long)]
    pub(crate) print_config: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct DemoWorkerArgs {
    /// The daemon
    pub(crate) url: String,
}

fn run_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if RUNS.contains(&time) { Ok(time) } else { Err("expected 5s to 10m".to_owned()) }
}
