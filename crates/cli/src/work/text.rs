//! Text from the command line, a file or stdin.

use std::io::Read;

use serde_json::value::RawValue;

use crate::failure::Failure;

/// A limit above the maximum size of a payload.
const MOST_BYTES: u64 = 17 << 20;

/// Returns the text itself, the content of `@FILE`, or stdin for `-`.
pub(crate) fn read(argument: &str) -> Result<String, Failure> {
    let cannot =
        |name: &str, why: &dyn std::fmt::Display| Failure::Failed(format!("cannot read {name}: {why}"));
    let (name, source): (&str, Box<dyn Read>) = match argument.strip_prefix('@') {
        Some(file) => (file, Box::new(std::fs::File::open(file).map_err(|error| cannot(file, &error))?)),
        None if argument == "-" => ("stdin", Box::new(std::io::stdin())),
        None => return Ok(argument.to_owned()),
    };
    let mut text = String::new();
    source.take(MOST_BYTES).read_to_string(&mut text).map_err(|error| cannot(name, &error))?;
    Ok(text)
}

/// Reads an argument like [`read`] and parses it as JSON, whose text stays unchanged.
pub(crate) fn read_json(option: &str, argument: &str) -> Result<Box<RawValue>, Failure> {
    let text = read(argument)?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::Usage(format!("{option} is no JSON: {error}; text needs quotes inside, as in '\"text\"'"))
    })
}
