//! The answer of a goal.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::machine::{Symbol, Value};

/// The values of a goal's variables, for each match that the goal took.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The variables, in the order in which the goal names them.
    pub variables: Vec<Symbol>,
    /// Their values in each match, in the order of the matches.
    pub matches: Vec<Vec<Value>>,
}

/// Formats one line for each match: `?a = 1, ?b = 2`. Without variables the text is empty.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.variables.is_empty() {
            return Ok(());
        }
        for (index, values) in self.matches.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            for (place, (variable, value)) in self.variables.iter().zip(values).enumerate() {
                write!(f, "{}?{variable} = {value}", if place > 0 { ", " } else { "" })?;
            }
        }
        Ok(())
    }
}
