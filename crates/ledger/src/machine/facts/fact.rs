//! Facts, and the answer of a goal over them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::machine::codec::{self, Codec};
use crate::machine::limits::ARGUMENTS;
use crate::machine::{BadValue, Diff, Symbol, Value};

/// A name and values. Facts are ordered by their name, then by their values from left to right.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "(Symbol, Vec<Value>)", into = "(Symbol, Vec<Value>)")]
pub struct Fact {
    name: Symbol,
    arguments: Vec<Value>,
}

impl Fact {
    /// Creates a fact, or returns an error if it has too many arguments.
    pub fn new(name: Symbol, arguments: Vec<Value>) -> Result<Self, BadValue> {
        if arguments.len() > ARGUMENTS {
            return Err(BadValue::Arguments(arguments.len()));
        }
        Ok(Self { name, arguments })
    }

    /// Returns the name.
    pub fn name(&self) -> &Symbol {
        &self.name
    }

    /// Returns the values.
    pub fn arguments(&self) -> &[Value] {
        &self.arguments
    }

    /// Returns true if this fact has the name of `start` and begins with its values.
    pub(super) fn begins_with(&self, start: &Self) -> bool {
        self.name == start.name && self.arguments.starts_with(&start.arguments)
    }
}

impl TryFrom<(Symbol, Vec<Value>)> for Fact {
    type Error = BadValue;

    fn try_from((name, arguments): (Symbol, Vec<Value>)) -> Result<Self, BadValue> {
        Self::new(name, arguments)
    }
}

impl From<Fact> for (Symbol, Vec<Value>) {
    fn from(fact: Fact) -> Self {
        (fact.name, fact.arguments)
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        super::goal::call(f, &self.name, &self.arguments)
    }
}

/// Formats one line for each added or removed fact.
impl fmt::Display for Diff<Fact, ()> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, change) in self.iter().enumerate() {
            let line = if index > 0 { "\n" } else { "" };
            let sign = if change.after.is_some() { '+' } else { '-' };
            write!(f, "{line}{sign} {}", change.key)?;
        }
        Ok(())
    }
}

impl Codec for Fact {
    fn encode(&self, into: &mut Vec<u8>) {
        self.name.encode(into);
        codec::put_length(self.arguments.len(), into);
        self.arguments.iter().for_each(|value| value.encode(into));
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        let name = Symbol::decode(from)?;
        let count = codec::take_length(from).filter(|count| *count <= ARGUMENTS)?;
        let arguments = (0..count).map(|_| Value::decode(from)).collect::<Option<_>>()?;
        Some(Self { name, arguments })
    }
}

/// The values of a goal's variables, for each match that the goal took.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bindings {
    /// The variables, in the order in which the goal names them.
    pub variables: Vec<Symbol>,
    /// Their values in each match, in the order of the matches.
    pub matches: Vec<Vec<Value>>,
}

/// Formats one line for each match: `?a = 1, ?b = 2`. Without variables the text is empty.
impl fmt::Display for Bindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.variables.is_empty() {
            return Ok(());
        }
        for (index, values) in self.matches.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            for (column, (variable, value)) in self.variables.iter().zip(values).enumerate() {
                write!(f, "{}?{variable} = {value}", if column > 0 { ", " } else { "" })?;
            }
        }
        Ok(())
    }
}
