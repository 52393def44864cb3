//! `holdoff policy …`

mod delay;
mod deploy;
mod describe;
mod explain;
mod lint;
mod list;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Subcommand, ValueHint};
use holdoff_policy::{Policy, PolicySet};

use crate::args::{GlobalArgs, StoreArgs};
use crate::config::{find_policy, load_policies};
use crate::error::CommandError;
use crate::output;

#[derive(Subcommand, Debug)]
pub(crate) enum PolicyCommand {
    /// List all policies and their purposes
    List,

    /// Show a policy as TOML
    Show {
        /// Name of the policy
        name: String,
    },

    /// Show the delay window after each attempt, its mean and the total delay
    Explain(explain::ExplainArgs),

    /// Show the policy of an operation
    For {
        /// Operation
        operation: String,

        /// Namespace of the operation
        #[arg(long, default_value = PolicySet::DEFAULT_NAMESPACE)]
        namespace: String,
    },

    /// Check a policy file for errors and risky settings
    Lint {
        /// Policy file [default: the configuration file]
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },

    /// Compute the delay and the decision after a failed attempt
    Delay(delay::DelayArgs),

    /// List the failure class of each status and error code
    Classes,

    /// Show the changes of a policy file and deploy it to every node on a store
    Deploy(deploy::DeployArgs),

    /// List the policy versions deployed to a store
    Versions(StoreArgs),
}

pub(crate) fn run(command: &PolicyCommand, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let json = global.json;
    let set = || load_policies(global.config.as_deref());
    match command {
        PolicyCommand::List => list::run(&set()?, json)?,
        PolicyCommand::Show { name } => show(name, find_policy(&set()?, name)?, json)?,
        PolicyCommand::Explain(args) => explain::run(args, &set()?, json)?,
        PolicyCommand::For { operation, namespace } => show_selected(&set()?, namespace, operation, json)?,
        PolicyCommand::Lint { file } => {
            return lint::run(file.as_deref().or(global.config.as_deref()), json);
        }
        PolicyCommand::Delay(args) => delay::run(args, &set()?, json)?,
        PolicyCommand::Classes => list::classes(set()?.classes(), json)?,
        PolicyCommand::Deploy(args) => block_on(deploy::deploy(args, global))?,
        PolicyCommand::Versions(args) => block_on(deploy::versions(args, global))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a command that needs a store.
fn block_on(command: impl Future<Output = Result<(), CommandError>>) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(command))
}

/// Prints the policy that an operation uses.
fn show_selected(set: &PolicySet, namespace: &str, operation: &str, json: bool) -> Result<(), CommandError> {
    let (name, policy) = set.policy_for(namespace, operation);
    let mut out = output::stdout();
    if json {
        let answer = serde_json::json!({ "operation": operation, "namespace": namespace, "policy": name });
        writeln!(out, "{answer}")?;
    } else {
        writeln!(out, "{name}: {}", describe::sentence(policy))?;
    }
    Ok(())
}

fn show(name: &str, policy: &Policy, json: bool) -> Result<(), CommandError> {
    let mut out = output::stdout();
    if json {
        // The canonical text is already JSON.
        writeln!(
            out,
            "{{\"policy\":{},\"id\":\"{}\",\"compiled\":{}}}",
            serde_json::json!(name),
            policy.id(),
            policy.canonical()
        )?;
    } else {
        let mut set = PolicySet::default();
        set.define(name, policy.clone());
        writeln!(out, "# id {}\n{}", policy.id(), set.to_toml().trim_end())?;
    }
    Ok(())
}
