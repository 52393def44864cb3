//! Values by key, and commands over them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use holdoff_policy::is_unprintable;
use serde::{Deserialize, Serialize};

use super::codec::{self, Codec};
use super::limits::{ANSWER_BYTES, COMMANDS, KEY_BYTES, LISTED, LISTED_BYTES};
use super::shown;
use super::table::{Execution, Rules, Table};
use super::value::sent_as_text;
use super::{BadValue, GoalError, TableView, Value};

/// A table of values by key.
pub type KeyValue = Table<KeyValueRules>;

/// The key of a value: a non-empty text of limited length.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(Arc<str>);

/// One operation on one key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Command {
    /// Reads the value. Answers with it.
    Get(Key),
    /// Sets the value. Answers with the previous value.
    Put(Key, Value),
    /// Deletes the value, if there is one. Answers with the previous value.
    Delete(Key),
    /// Sets or deletes the value if the current value is the expected one; otherwise the whole goal fails. Answers
    /// with the previous value.
    CompareAndSet {
        /// The key.
        key: Key,
        /// The required value; `None` if the key must have no value.
        expected: Option<Value>,
        /// The new value; `None` to delete the value.
        new: Option<Value>,
    },
    /// Adds to the integer value, or to zero if there is no value. Answers with the sum.
    Increment(Key, i64),
    /// Lists the keys with a prefix and their values, in the order of the keys. Answers with each key and its value,
    /// and then with `None`. If the list would be too long, the answer is shorter but has at least one row: repeat the
    /// command with the last key as `after`.
    List {
        /// The prefix of the keys; `None` for all keys.
        prefix: Option<Key>,
        /// Only keys after this one are listed.
        after: Option<Key>,
        /// The maximum number of rows.
        most: u32,
    },
}

/// Commands in their order. Each command sees the changes of the earlier ones. Either all commands take effect, or
/// none.
pub type Commands = Vec<Command>;

/// The answers of the commands: one value or `None` each, except for a list.
pub type Values = Vec<Option<Value>>;

/// The rules by which commands change values.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KeyValueRules;

impl Rules for KeyValueRules {
    const KIND: &'static str = "key-value";
    type Key = Key;
    type Value = Value;
    type Goal = Commands;
    type Answer = Values;

    fn run(view: TableView<'_, Key, Value>, commands: &Commands) -> Result<Execution<Self>, GoalError> {
        if commands.len() > COMMANDS {
            return Err(GoalError::too_much("commands", COMMANDS));
        }
        let mut rows = Rows { view, wanted: BTreeMap::new() };
        let mut answers = Vec::new();
        let mut bytes = 0;
        for command in commands {
            let answer = command.run(&mut rows)?;
            bytes += answer.iter().flatten().map(Value::size).sum::<usize>();
            if bytes > ANSWER_BYTES {
                return Err(GoalError::too_much("bytes of answers", ANSWER_BYTES));
            }
            answers.extend(answer);
        }
        Ok((rows.wanted, answers))
    }
}

/// The rows after the commands that have run so far.
struct Rows<'a> {
    view: TableView<'a, Key, Value>,
    wanted: BTreeMap<Key, Option<Value>>,
}

impl Rows<'_> {
    fn get(&self, key: &Key) -> Option<Value> {
        match self.wanted.get(key) {
            Some(changed) => changed.clone(),
            None => self.view.get(key).cloned(),
        }
    }

    /// Sets or deletes a value and returns the previous value.
    fn put(&mut self, key: &Key, value: Option<Value>) -> Option<Value> {
        let before = self.get(key);
        self.wanted.insert(key.clone(), value);
        before
    }

    /// Returns this row and all later rows, in order.
    fn starting_at<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = (&'a Key, &'a Value)> {
        let mut rows = self.view.starting_at(key).peekable();
        let mut wanted = self.wanted.range(key..).peekable();
        std::iter::from_fn(move || {
            loop {
                let Some((changed, _)) = wanted.peek() else { return rows.next() };
                match rows.peek().map(|(row, _)| row.cmp(changed)) {
                    Some(Ordering::Less) => return rows.next(),
                    Some(Ordering::Equal) => drop(rows.next()),
                    Some(Ordering::Greater) | None => {}
                }
                if let Some((key, Some(value))) = wanted.next() {
                    return Some((key, value));
                }
            }
        })
    }

    fn list(&self, prefix: &str, after: Option<&Key>, most: usize) -> Values {
        let first = Key(prefix.into());
        let first = after.filter(|after| **after > first).unwrap_or(&first);
        let has_prefix = |(key, _): &(&Key, &Value)| key.0.starts_with(prefix);
        let is_after = |(key, _): &(&Key, &Value)| Some(*key) != after;
        let mut rows = Vec::new();
        let mut bytes = 0;
        for (key, value) in self.starting_at(first).take_while(has_prefix).filter(is_after).take(most) {
            bytes += key.0.len() + value.size();
            if bytes > LISTED_BYTES && !rows.is_empty() {
                break;
            }
            // A key is never longer than the limit of a text.
            rows.extend([Value::text(key.as_str()).ok(), Some(value.clone())]);
        }
        rows.push(None);
        rows
    }
}

impl Command {
    /// Executes the command and returns its answer.
    fn run(&self, rows: &mut Rows<'_>) -> Result<Values, GoalError> {
        let answer = match self {
            Self::Get(key) => rows.get(key),
            Self::Put(key, value) => rows.put(key, Some(value.clone())),
            Self::Delete(key) => rows.put(key, None),
            Self::CompareAndSet { key, expected, new } => {
                let before = rows.put(key, new.clone());
                if before != *expected {
                    let found = before.map_or("has no value".to_owned(), |it| format!("is {}", shown(&it)));
                    return Err(GoalError::Differs { key: shown(key), found });
                }
                before
            }
            Self::Increment(key, by) => {
                let before = match rows.get(key) {
                    None => 0,
                    Some(Value::Integer(number)) => number,
                    Some(other) => return Err(GoalError::NotAnInteger(shown(&other))),
                };
                let sum = before.checked_add(*by);
                let sum = sum.ok_or_else(|| GoalError::NoResult(format!("{before} + {by}")))?;
                rows.put(key, Some(sum.into()));
                Some(sum.into())
            }
            Self::List { prefix, after, most } => {
                let most = usize::try_from(*most).unwrap_or(usize::MAX);
                if most > LISTED {
                    return Err(GoalError::too_much("rows of a list", LISTED));
                }
                return Ok(rows.list(prefix.as_ref().map_or("", Key::as_str), after.as_ref(), most));
            }
        };
        Ok(vec![answer])
    }
}

impl Key {
    /// Creates a key, or returns an error if its length or a character is not valid.
    pub fn new(key: impl Into<String>) -> Result<Self, BadValue> {
        let key = key.into();
        match key.chars().find(|character| is_unprintable(*character)) {
            _ if !(1..=KEY_BYTES).contains(&key.len()) => Err(BadValue::Key(key.len())),
            Some(character) => Err(BadValue::Unprintable(character)),
            None => Ok(Self(key.into())),
        }
    }

    /// Returns the text of the key.
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

impl Codec for Key {
    fn encode(&self, into: &mut Vec<u8>) {
        codec::put_text(&self.0, into);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        Self::new(codec::take_text(from)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::TEXT_BYTES;
    use super::super::{Overlay, StateMachine};
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
    fn each_command_sees_the_changes_of_earlier_commands() {
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
        let expected = [None, Some(5), Some(5), Some(5), Some(5), Some(5), None, Some(1)];
        assert_eq!(run(&mut table, &commands), Ok(expected.map(|number| number.map(Value::from)).to_vec()));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn compare_and_set_with_another_value_changes_nothing() {
        let mut table = KeyValue::default();
        let set = |expected: Option<i64>, new: Option<i64>| Command::CompareAndSet {
            key: key("a"),
            expected: expected.map(Value::from),
            new: new.map(Value::from),
        };
        assert_eq!(run(&mut table, &[set(None, Some(1))]), Ok(vec![None]));
        let before = table.clone();
        let why = run(&mut table, &[Command::Put(key("b"), 1.into()), set(Some(2), Some(3))]);
        assert_eq!(why, Err("`a` is 1: read it again and retry".to_owned()));
        assert_eq!(table, before);
        assert_eq!(run(&mut table, &[set(Some(1), None)]), Ok(vec![Some(1.into())]));
        let why = run(&mut table, &[set(Some(1), None)]);
        assert_eq!(why, Err("`a` has no value: read it again and retry".to_owned()));
    }

    #[test]
    fn increment_fails_on_overflow_and_on_values_that_are_not_integers() {
        let mut table = KeyValue::default();
        let most = Command::Put(key("a"), i64::MAX.into());
        let why = run(&mut table, &[most, Command::Increment(key("a"), 1)]);
        assert_eq!(why, Err("9223372036854775807 + 1 has no result in 64 bits".to_owned()));
        let word = Command::Put(key("a"), Value::symbol("word").unwrap());
        let why = run(&mut table, &[word, Command::Increment(key("a"), 1)]);
        assert_eq!(why, Err("word is not an integer: calculations need integers".to_owned()));
        assert!(table.is_empty());
    }

    /// Returns the listed keys with their integers.
    fn listed(answers: &[Option<Value>]) -> Vec<(String, i64)> {
        let rows = answers.split(Option::is_none).next().unwrap();
        let row = |row: &[Option<Value>]| match row {
            [Some(Value::Text(key)), Some(Value::Integer(number))] => (key.as_str().to_owned(), *number),
            other => panic!("{other:?}"),
        };
        rows.chunks(2).map(row).collect()
    }

    fn list(prefix: Option<&str>, after: Option<&str>, most: u32) -> Command {
        Command::List { prefix: prefix.map(key), after: after.map(key), most }
    }

    #[test]
    fn a_list_of_a_prefix_includes_the_changes_of_earlier_commands() {
        let mut table = KeyValue::default();
        let put = |name: &str, number: i64| Command::Put(key(name), number.into());
        run(&mut table, &["a", "a/1", "a/2", "a/4", "b"].map(|name| put(name, 0))).unwrap();
        let row = |name: &str, number| (name.to_owned(), number);
        let names = |commands: &[Command]| {
            let answers = run(&mut table.clone(), commands).unwrap();
            listed(&answers[commands.len() - 1..])
        };
        let changes = [put("a/3", 3), Command::Delete(key("a/2")), put("a/4", 4)];
        let all = [row("a/1", 0), row("a/3", 3), row("a/4", 4)];
        let changed = |last| [&changes[..], &[last]].concat();
        assert_eq!(names(&changed(list(Some("a/"), None, 10))), all);
        assert_eq!(names(&changed(list(Some("a/"), None, 2))), all[..2]);
        assert_eq!(names(&changed(list(Some("a/"), Some("a/1"), 2))), all[1..]);
        assert_eq!(
            names(&changed(list(Some("a/"), Some("a/2"), 2))),
            all[1..],
            "the key before the first listed row need not exist"
        );
        assert_eq!(names(&[list(Some("a/"), Some("b"), 10)]), []);
        assert_eq!(names(&[list(Some("c"), Some("a"), 10)]), []);
        assert_eq!(names(&[list(None, Some("a/4"), 10)]), [row("b", 0)]);
        assert_eq!(names(&[list(None, None, 10)]).len(), 5);
        let answers = run(&mut table, &[list(Some("b"), None, 1), Command::Get(key("b"))]).unwrap();
        let b = Some(Value::text("b").unwrap());
        assert_eq!(
            answers,
            [b, Some(0.into()), None, Some(0.into())],
            "the answer of the next command follows the end of the list"
        );
    }

    #[test]
    fn a_long_list_continues_after_its_last_key() {
        let mut table = KeyValue::default();
        let long = Value::text("x".repeat(TEXT_BYTES)).unwrap();
        for number in 10..50 {
            run(&mut table, &[Command::Put(key(&number.to_string()), long.clone())]).unwrap();
        }
        let (mut found, mut last) = (Vec::new(), None);
        loop {
            let list = Command::List { prefix: None, after: last.clone(), most: 100 };
            let answers = run(&mut table, &[list]).unwrap();
            let keys = answers.into_iter().step_by(2).flatten().map(|name| match name {
                Value::Text(name) => name.as_str().to_owned(),
                other => panic!("{other:?}"),
            });
            let before = found.len();
            found.extend(keys);
            if found.len() == before {
                break;
            }
            assert!(found.len() - before <= LISTED_BYTES / TEXT_BYTES);
            last = found.last().map(|name| key(name));
        }
        assert_eq!(found, (10..50).map(|number| number.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn goals_beyond_the_limits_fail() {
        let mut table = KeyValue::default();
        let many = vec![Command::Get(key("a")); COMMANDS + 1];
        assert_eq!(
            run(&mut table, &many),
            Err("the goal exceeds the limit of 64 commands: split it".to_owned())
        );
        assert_eq!(
            run(&mut table, &[list(None, None, 1001)]),
            Err("the goal exceeds the limit of 1000 rows of a list: split it".to_owned())
        );
        assert_eq!(Key::new("a\u{1b}"), Err(BadValue::Unprintable('\u{1b}')));
        assert!(Key::new("").is_err() && Key::new("k".repeat(KEY_BYTES + 1)).is_err());
    }
}
