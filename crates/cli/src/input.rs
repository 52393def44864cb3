//! Input: text from the command line, a file or stdin, and confirmations.

use std::io::{BufRead, IsTerminal, Read, Write};

use serde_json::value::RawValue;

use crate::error::CommandError;
use crate::output;

/// A limit above the maximum size of a payload.
const MAX_BYTES: u64 = 17 << 20;

/// Returns the text itself, the content of `@FILE`, or stdin for `-`.
pub(crate) fn read_text(argument: &str) -> Result<String, CommandError> {
    let cannot =
        |name: &str, why: &dyn std::fmt::Display| CommandError::Failed(format!("cannot read {name}: {why}"));
    let (name, source): (&str, Box<dyn Read>) = match argument.strip_prefix('@') {
        Some(file) => (file, Box::new(std::fs::File::open(file).map_err(|error| cannot(file, &error))?)),
        None if argument == "-" => ("stdin", Box::new(std::io::stdin())),
        None => return Ok(argument.to_owned()),
    };
    let mut text = String::new();
    source.take(MAX_BYTES).read_to_string(&mut text).map_err(|error| cannot(name, &error))?;
    Ok(text)
}

/// Reads an argument like [`read_text`] and parses it as JSON, whose text stays unchanged.
pub(crate) fn read_json(option: &str, argument: &str) -> Result<Box<RawValue>, CommandError> {
    let text = read_text(argument)?;
    serde_json::from_str(&text).map_err(|error| {
        CommandError::Usage(format!(
            "{option}: invalid JSON: {error}; a JSON string has double quotes, as in '\"text\"'"
        ))
    })
}

/// Asks the user to confirm an action. Without a terminal it fails and names `--yes`.
pub(crate) fn confirm(action: &str) -> Result<bool, CommandError> {
    if !std::io::stdin().is_terminal() {
        return Err(CommandError::Usage(format!("this would {action}; add --yes to confirm")));
    }
    let mut err = output::stderr();
    write!(err, "This will {action}. Continue? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
