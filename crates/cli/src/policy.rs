//! `holdoff policy …`

mod apply;
mod classes;
mod delay;
mod describe;
mod explain;
mod lint;
mod list;
mod plot;

use std::io::Write;
use std::process::ExitCode;

use holdoff_policy::PolicySet;

use crate::args::{Args, PolicyCommand};
use crate::config;
use crate::failure::Failure;

pub(crate) fn run(command: &PolicyCommand, args: &Args) -> Result<ExitCode, Failure> {
    if let PolicyCommand::Lint { file } = command {
        return lint::run(file.as_deref().or(args.config.as_deref()), args.json);
    }
    if let PolicyCommand::Apply(apply) = command {
        return in_store(apply::apply(apply, args));
    }
    if let PolicyCommand::Versions(place) = command {
        return in_store(apply::versions(place, args));
    }
    let set = config::load(args.config.as_deref())?;
    match command {
        PolicyCommand::List => list::run(&set, args.json)?,
        PolicyCommand::Show { name } => show(name, config::policy(&set, name)?, args.json)?,
        PolicyCommand::Explain { name, plot } => {
            let policy = config::policy(&set, name)?;
            explain::run(name, policy, args.json)?;
            if let Some(file) = plot {
                plot::run(name, policy, file)?;
            }
        }
        PolicyCommand::For { operation, namespace } => policy_for(&set, namespace, operation, args.json)?,
        PolicyCommand::Delay(delay) => delay::run(delay, config::policy(&set, &delay.name)?, args.json)?,
        PolicyCommand::Classes => classes::run(set.classes(), args.json)?,
        PolicyCommand::Lint { .. } | PolicyCommand::Apply(_) | PolicyCommand::Versions(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a command that needs a store.
fn in_store(done: impl Future<Output = Result<(), Failure>>) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(done))?;
    Ok(ExitCode::SUCCESS)
}

fn policy_for(set: &PolicySet, namespace: &str, operation: &str, json: bool) -> Result<(), Failure> {
    let (name, policy) = set.policy_for(namespace, operation);
    let mut out = anstream::stdout();
    if json {
        let answer = serde_json::json!({ "operation": operation, "namespace": namespace, "policy": name });
        writeln!(out, "{answer}")?;
    } else {
        writeln!(out, "{name}: {}", describe::sentence(policy))?;
    }
    Ok(())
}

fn show(name: &str, policy: &holdoff_policy::Policy, json: bool) -> Result<(), Failure> {
    let mut out = anstream::stdout();
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
