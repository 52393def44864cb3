//! `holdoff config show | check | schema`

use std::io::Write;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::layers::{self, Origin};
use super::{keys, values};
use crate::args::{Args, ConfigCommand};
use crate::daemon;
use crate::failure::Failure;
use crate::output::Table;

pub(crate) fn run(command: &ConfigCommand, args: &Args) -> Result<ExitCode, Failure> {
    let named = args.config.as_deref();
    match command {
        ConfigCommand::Schema => writeln!(std::io::stdout(), "{:#}", holdoff_policy::schema())?,
        ConfigCommand::Show(serve) => show(&layers::load(named, serve.given())?, args.json)?,
        ConfigCommand::Check(serve) => {
            warn_of_unknown_variables();
            let config = layers::load(named, serve.given())?;
            let waits = config.whole.work.check_policies(&config.whole.policies);
            waits.map_err(|waits| Failure::Failed(waits.to_string()))?;
            let said = match &config.file {
                Some(file) => format!("{}, the variables and the flags are right", file.display()),
                None => "the variables and the flags are right; there is no holdoff.toml here".to_owned(),
            };
            let mut out = anstream::stdout();
            if args.json {
                writeln!(out, "{}", json!({ "ok": true, "file": config.file }))?;
            } else {
                writeln!(out, "{said}")?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(config: &layers::Config, json: bool) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    let values = values::values(&config.whole);
    if json {
        let shown: Vec<Value> = values
            .iter()
            .map(|(path, value)| as_json(path, value.as_deref(), &config.origin(path)))
            .collect();
        return Ok(writeln!(out, "{}", json!(shown))?);
    }
    let mut table = Table::new(["value", "is", "from"]);
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

/// Warns of unknown `HOLDOFF_` variables whose names resemble a known variable. They are no error, because other
/// programs may use the same prefix.
fn warn_of_unknown_variables() {
    let known: Vec<String> = keys::all().iter().map(keys::Key::variable).collect();
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let is_known = |name: &String| known.contains(name) || daemon::VARIABLES.contains(&name.as_str());
    for name in names.filter(|name| name.starts_with("HOLDOFF_") && !is_known(name)) {
        let Some(near) = holdoff_policy::nearest(&name, known.iter().map(String::as_str)) else { continue };
        anstream::eprintln!("${name} is read by nobody; did you mean ${near}?");
    }
}
