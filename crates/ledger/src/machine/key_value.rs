//! Values by key, and commands over them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::coded::{self, Coded};
use super::failed::shown;
use super::limits::{ANSWER_BYTES, COMMANDS, KEY_BYTES};
use super::table::{Ran, Rules, Table};
use super::value::sent_as_text;
use super::{BadValue, Failed, Value, View};

/// Values by key.
pub type KeyValue = Table<KeyValueRules>;

/// What a value is found by: a text that is neither empty nor long.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(String);

/// One thing to do with one key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Command {
    /// Says what is there. Answers with it.
    Get(Key),
    /// Puts a value there. Answers with what was there before.
    Put(Key, Value),
    /// Takes away what is there, if anything is. Answers with what was there before.
    Delete(Key),
    /// Puts something or nothing there, if there is what is expected; else everything fails. Answers with what was there
    /// before.
    CompareAndSet {
        /// Where.
        key: Key,
        /// What must be there; nothing, if none.
        expected: Option<Value>,
        /// What to put there; nothing, if none.
        new: Option<Value>,
    },
    /// Adds to the integer that is there, or to zero if nothing is. Answers with the sum.
    Increment(Key, i64),
}

/// Commands in their order, each of which sees what those before it did. All of them happen, or none.
pub type Commands = Vec<Command>;

/// What each command answers.
pub type Values = Vec<Option<Value>>;

/// How commands change values.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KeyValueRules;

impl Rules for KeyValueRules {
    const KIND: &'static str = "key-value";
    type Key = Key;
    type Value = Value;
    type Goal = Commands;
    type Answer = Values;

    fn run(view: View<'_, Key, Value>, commands: &Commands) -> Result<Ran<Self>, Failed> {
        if commands.len() > COMMANDS {
            return Err(Failed::too_much("commands", COMMANDS));
        }
        let mut wanted = BTreeMap::new();
        let mut answers = Vec::new();
        let mut bytes = 0;
        for command in commands {
            let key = command.key();
            let now = match wanted.get(key) {
                Some(changed) => Option::<Value>::clone(changed),
                None => view.get(key).cloned(),
            };
            let (after, answer) = command.run(now)?;
            bytes += answer.as_ref().map_or(0, Value::size);
            if bytes > ANSWER_BYTES {
                return Err(Failed::too_much("bytes of answers", ANSWER_BYTES));
            }
            wanted.insert(key.clone(), after);
            answers.push(answer);
        }
        Ok((wanted, answers))
    }
}

impl Command {
    fn key(&self) -> &Key {
        match self {
            Self::Get(key)
            | Self::Put(key, _)
            | Self::Delete(key)
            | Self::CompareAndSet { key, .. }
            | Self::Increment(key, _) => key,
        }
    }

    /// What is there afterwards, and the answer.
    fn run(&self, now: Option<Value>) -> Result<(Option<Value>, Option<Value>), Failed> {
        match self {
            Self::Get(_) => Ok((now.clone(), now)),
            Self::Put(_, value) => Ok((Some(value.clone()), now)),
            Self::Delete(_) => Ok((None, now)),
            Self::CompareAndSet { expected, new, .. } if now == *expected => Ok((new.clone(), now)),
            Self::CompareAndSet { key, .. } => {
                let found = now.map_or("has no value".to_owned(), |value| format!("is {}", shown(&value)));
                Err(Failed::Differs { key: shown(key), found })
            }
            Self::Increment(_, by) => {
                let before = match now {
                    None => 0,
                    Some(Value::Integer(number)) => number,
                    Some(other) => return Err(Failed::NotAnInteger(shown(&other))),
                };
                let sum = before.checked_add(*by);
                let sum = sum.ok_or_else(|| Failed::NoResult(format!("{before} + {by}")))?;
                Ok((Some(sum.into()), Some(sum.into())))
            }
        }
    }
}

impl Key {
    /// This key.
    pub fn new(key: impl Into<String>) -> Result<Self, BadValue> {
        let key = key.into();
        if (1..=KEY_BYTES).contains(&key.len()) { Ok(Self(key)) } else { Err(BadValue::Key(key.len())) }
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

sent_as_text!(Key);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Coded for Key {
    fn encode(&self, into: &mut Vec<u8>) {
        coded::put_text(&self.0, into);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        Self::new(coded::take_text(from)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Machine, Overlay};
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    fn run(table: &mut KeyValue, commands: &[Command]) -> Result<Values, String> {
        let done = table.execute(&Overlay::default(), &commands.to_vec());
        let (diff, answer) = done.map_err(|failed| failed.to_string())?;
        table.apply(&diff).unwrap();
        Ok(answer)
    }

    #[test]
    fn each_command_sees_what_those_before_it_did() {
        let mut table = KeyValue::default();
        let a = || key("a");
        let commands = [
            Command::Get(a()),
            Command::Increment(a(), 5),
            Command::Put(a(), Value::Integer(7)),
            Command::Increment(a(), -2),
            Command::Get(a()),
            Command::Delete(a()),
            Command::Get(a()),
            Command::Increment(a(), 1),
        ];
        let said = [None, Some(5), Some(5), Some(5), Some(5), Some(5), None, Some(1)];
        assert_eq!(run(&mut table, &commands), Ok(said.map(|number| number.map(Value::from)).to_vec()));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn whoever_expects_something_else_changes_nothing() {
        let mut table = KeyValue::default();
        let set = |expected: Option<i64>, new: Option<i64>| Command::CompareAndSet {
            key: key("a"),
            expected: expected.map(Value::from),
            new: new.map(Value::from),
        };
        assert_eq!(run(&mut table, &[set(None, Some(1))]), Ok(vec![None]));
        let before = table.clone();
        let why = run(&mut table, &[Command::Put(key("b"), 1.into()), set(Some(2), Some(3))]);
        assert_eq!(why, Err("`a` is 1: read it again, and decide anew".to_owned()));
        assert_eq!(table, before);
        assert_eq!(run(&mut table, &[set(Some(1), None)]), Ok(vec![Some(1.into())]));
        let why = run(&mut table, &[set(Some(1), None)]);
        assert_eq!(why, Err("`a` has no value: read it again, and decide anew".to_owned()));
    }

    #[test]
    fn sums_that_do_not_fit_and_words_that_are_no_numbers_fail() {
        let mut table = KeyValue::default();
        let most = Command::Put(key("a"), i64::MAX.into());
        let why = run(&mut table, &[most, Command::Increment(key("a"), 1)]);
        assert_eq!(why, Err("9223372036854775807 + 1 has no result in 64 bits".to_owned()));
        let word = Command::Put(key("a"), Value::symbol("word").unwrap());
        let why = run(&mut table, &[word, Command::Increment(key("a"), 1)]);
        assert_eq!(why, Err("word is no integer: only integers can be calculated with".to_owned()));
        assert!(table.is_empty());
    }

    #[test]
    fn what_would_be_too_much_fails() {
        let mut table = KeyValue::default();
        let many = vec![Command::Get(key("a")); COMMANDS + 1];
        assert_eq!(
            run(&mut table, &many),
            Err("it takes more than 64 commands: ask for less at once".to_owned())
        );
        assert!(Key::new("").is_err() && Key::new("k".repeat(KEY_BYTES + 1)).is_err());
    }
}
