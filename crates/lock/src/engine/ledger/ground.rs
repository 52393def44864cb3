//! The one row that all tokens stand on: the era, and the highest token that was ever forgotten.

use holdoff_ledger::machine::{Command, Key, Value};
use serde::{Deserialize, Serialize};

use super::table::trouble;
use crate::Token;
use crate::row::Ground;
use crate::store::Result;

/// Where it stands: not among the locks.
const NAME: &str = "holdoff/locks";

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Written {
    era: u64,
    floor: Token,
}

pub(super) fn key() -> Result<Key> {
    Key::new(NAME).map_err(|error| trouble(false, error))
}

/// What the row says; before anybody wrote it, the first era.
pub(super) fn read(value: Option<&Value>) -> Result<Ground> {
    let Written { era, floor } = match value {
        None => Written { era: 0, floor: Token::new(0) },
        Some(Value::Text(text)) => serde_json::from_str(text.as_str())
            .map_err(|error| trouble(false, format!("the row {NAME} cannot be read: {error}")))?,
        Some(_) => return Err(trouble(false, format!("the row {NAME} is no text"))),
    };
    Ok(Ground { era, floor })
}

/// Lets a transaction happen only on this ground, and leaves it as it is.
pub(super) fn is_still(value: Option<Value>) -> Result<Command> {
    Ok(Command::CompareAndSet { key: key()?, expected: value.clone(), new: value })
}

/// Puts another ground in the place of this one.
pub(super) fn becomes(before: Option<Value>, Ground { era, floor }: Ground) -> Result<Command> {
    let text = serde_json::to_string(&Written { era, floor }).map_err(|error| trouble(false, error))?;
    let new = Value::text(text).map_err(|error| trouble(false, error))?;
    Ok(Command::CompareAndSet { key: key()?, expected: before, new: Some(new) })
}
