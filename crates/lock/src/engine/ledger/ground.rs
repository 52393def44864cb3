//! The token base: one row with the fencing epoch, and the highest token of all pruned locks.

use holdoff_ledger::machine::{Command, Key, Value};
use serde::{Deserialize, Serialize};

use super::table::trouble;
use crate::Token;
use crate::row::Ground;
use crate::store::Result;

/// The name of the row. It is not among the names of locks.
const NAME: &str = "holdoff/locks";

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Written {
    era: u64,
    floor: Token,
}

pub(super) fn key() -> Result<Key> {
    Key::new(NAME).map_err(|error| trouble(false, error))
}

/// Reads the row. Before the first write, it is the first fencing epoch.
pub(super) fn read(value: Option<&Value>) -> Result<Ground> {
    let Written { era, floor } = match value {
        None => Written { era: 0, floor: Token::new(0) },
        Some(Value::Text(text)) => serde_json::from_str(text.as_str())
            .map_err(|error| trouble(false, format!("the row {NAME} cannot be read: {error}")))?,
        Some(_) => return Err(trouble(false, format!("the row {NAME} is no text"))),
    };
    Ok(Ground { era, floor })
}

/// Returns the command that makes a transaction conditional on an unchanged token base.
pub(super) fn is_still(value: Option<Value>) -> Result<Command> {
    Ok(Command::CompareAndSet { key: key()?, expected: value.clone(), new: value })
}

/// Returns the command that replaces the token base.
pub(super) fn becomes(before: Option<Value>, Ground { era, floor }: Ground) -> Result<Command> {
    let text = serde_json::to_string(&Written { era, floor }).map_err(|error| trouble(false, error))?;
    let new = Value::text(text).map_err(|error| trouble(false, error))?;
    Ok(Command::CompareAndSet { key: key()?, expected: before, new: Some(new) })
}
