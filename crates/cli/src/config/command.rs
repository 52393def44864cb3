//! `holdoff config show | check | schema`

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Config, Origin, load_config, settings};
use crate::api_client;
use crate::args::GlobalArgs;
use crate::error::CommandError;
use crate::output::{self, Table, warn};
use crate::serve::ServeArgs;

#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// Show every active value and its origin: a flag, an environment variable, the file or the default
    Show(ServeArgs),

    /// Check the file, the environment variables and the flags, and report all errors at once
    Check(ServeArgs),

    /// Print the JSON schema of the file
    Schema,
}

pub(crate) fn run(command: &ConfigCommand, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let file = global.config.as_deref();
    match command {
        ConfigCommand::Schema => writeln!(std::io::stdout(), "{:#}", holdoff_policy::schema())?,
        ConfigCommand::Show(serve) => show(&load_config(file, serve.flag_values())?, global.json)?,
        ConfigCommand::Check(serve) => {
            warn_about_unknown_variables();
            check(&load_config(file, serve.flag_values())?, global.json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(config: &Config, json: bool) -> Result<(), CommandError> {
    let mut out = output::stdout();
    let values = settings::values(&config.settings);
    if json {
        let shown: Vec<Value> = values
            .iter()
            .map(|(path, value)| as_json(path, value.as_deref(), &config.origin(path)))
            .collect();
        return Ok(writeln!(out, "{}", json!(shown))?);
    }
    let mut table = Table::new(["key", "value", "origin"]);
    for (path, value) in &values {
        let value = value.clone().unwrap_or_else(|| "–".to_owned());
        table.row([(*path).to_owned(), value, config.origin(path).to_string()]);
    }
    table.print(&mut out)?;
    Ok(())
}

fn as_json(path: &str, value: Option<&str>, origin: &Origin) -> Value {
    let (layer, source) = match origin {
        Origin::Default => ("default", None),
        Origin::File(file) => ("file", Some(file.as_str())),
        Origin::Variable(name) => ("environment", Some(name.as_str())),
        Origin::Flag(flag) => ("flag", Some(*flag)),
    };
    json!({ "key": path, "value": value, "origin": layer, "source": source })
}

fn check(config: &Config, json: bool) -> Result<(), CommandError> {
    config.settings.work.check_policies(&config.settings.policies).map_err(CommandError::failed)?;
    let mut out = output::stdout();
    if json {
        return Ok(writeln!(out, "{}", json!({ "ok": true, "file": config.file }))?);
    }
    let checked = match &config.file {
        Some(file) => format!("{}, the environment variables and the flags are valid", file.display()),
        None => "the environment variables and the flags are valid; there is no holdoff.toml here".to_owned(),
    };
    Ok(writeln!(out, "{checked}")?)
}

/// Warns of unknown `HOLDOFF_` variables whose names resemble a known variable. They are no error, because other
/// programs may use the same prefix.
fn warn_about_unknown_variables() {
    let known: Vec<String> = settings::all().iter().map(settings::Key::variable).collect();
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let is_known = |name: &String| known.contains(name) || api_client::VARIABLES.contains(&name.as_str());
    for name in names.filter(|name| name.starts_with("HOLDOFF_") && !is_known(name)) {
        let Some(near) = holdoff_policy::nearest(&name, known.iter().map(String::as_str)) else { continue };
        warn(&format!("${name} is not a setting; did you mean ${near}?"));
    }
}
