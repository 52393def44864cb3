//! The JSON representation of values, commands and answers.

use holdoff_ledger::machine::{BadValue, Bindings, Command, GoalError, Key, Value};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The prefix of the rows that are reserved for daemons.
const OWN: &str = "holdoff/";

/// Returns whether a row is reserved for daemons: it holds a lock, and the proof of its ownership.
pub(crate) fn is_own_key(key: &Key) -> bool {
    key.as_str().starts_with(OWN)
}

/// Parses a key that callers may name. The error is the reason why it is none.
pub(crate) fn read_key(text: String) -> Result<Key, String> {
    let key = Key::new(text).map_err(|why| why.to_string())?;
    if is_own_key(&key) {
        return Err(format!("keys that begin with `{OWN}` are reserved for daemons; locks are at /v1/locks"));
    }
    Ok(key)
}

/// A value: an integer, a string, or a symbol such as `{"symbol": "paid"}`.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = LedgerValue)]
#[serde(untagged, expecting = "expected an integer, a string, or {\"symbol\": \"word\"}")]
pub(crate) enum ValueView {
    Integer(i64),
    Text(String),
    Symbol(SymbolView),
}

/// A symbol.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = LedgerSymbol)]
#[serde(deny_unknown_fields)]
pub(crate) struct SymbolView {
    #[schema(pattern = "^[A-Za-z][A-Za-z0-9_]{0,127}$")]
    symbol: String,
}

/// A command on one key: `get`, `put` with a `value`, `delete`, `increment` with `by`, or `compare_and_set` with
/// `expected` and `new`. An absent `expected` or `new` means "no value".
#[derive(Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = LedgerCommand)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandView {
    #[schema(min_length = 1, max_length = 1024, nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    get: Option<String>,
    #[schema(min_length = 1, max_length = 1024, nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    put: Option<String>,
    #[schema(min_length = 1, max_length = 1024, nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    delete: Option<String>,
    #[schema(min_length = 1, max_length = 1024, nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    increment: Option<String>,
    #[schema(min_length = 1, max_length = 1024, nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    compare_and_set: Option<String>,
    /// The value of `put`.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<ValueView>,
    /// The increment; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<i64>,
    /// The expected value of `compare_and_set`.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<ValueView>,
    /// The new value of `compare_and_set`.
    #[serde(skip_serializing_if = "Option::is_none")]
    new: Option<ValueView>,
}

/// The result: for a goal, its variables and their values in each match; for commands, the value of each.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerAnswer)]
#[serde(untagged)]
pub(crate) enum AnswerView {
    Facts(MatchesView),
    Values(Vec<Option<ValueView>>),
}

/// The result of a goal or of commands, or the reason of its failure.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = LedgerResult)]
pub(crate) struct ResultView {
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<AnswerView>,
    /// The reason of the failure.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The variables of a goal, and their values in each match.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerMatches)]
pub(crate) struct MatchesView {
    variables: Vec<String>,
    matches: Vec<Vec<ValueView>>,
}

impl ResultView {
    pub(crate) fn answered(answer: impl Into<AnswerView>) -> Self {
        Self { result: Some(answer.into()), reason: None }
    }

    pub(crate) fn failed(why: &GoalError) -> Self {
        Self { result: None, reason: Some(why.to_string()) }
    }
}

impl CommandView {
    /// Parses the command. The error is the reason why it is invalid.
    pub(crate) fn read(self) -> Result<Command, String> {
        const VERBS: &str = "expected one of get, put, delete, increment and compare_and_set, with a key";
        let Self { get, put, delete, increment, compare_and_set, value, by, expected, new } = self;
        let read =
            |value: Option<ValueView>| value.map(Value::try_from).transpose().map_err(|why| why.to_string());
        let besides = [
            ("value", value.is_some() && put.is_none()),
            ("by", by.is_some() && increment.is_none()),
            ("expected", expected.is_some() && compare_and_set.is_none()),
            ("new", new.is_some() && compare_and_set.is_none()),
        ];
        if let Some((name, _)) = besides.iter().find(|(_, is_strange)| *is_strange) {
            return Err(format!("`{name}` does not belong to this command"));
        }
        match (get, put, delete, increment, compare_and_set) {
            (Some(get), None, None, None, None) => Ok(Command::Get(read_key(get)?)),
            (None, Some(put), None, None, None) => {
                let value = read(value)?.ok_or("`value` is missing: `put` needs a value")?;
                Ok(Command::Put(read_key(put)?, value))
            }
            (None, None, Some(delete), None, None) => Ok(Command::Delete(read_key(delete)?)),
            (None, None, None, Some(increment), None) => {
                Ok(Command::Increment(read_key(increment)?, by.unwrap_or(1)))
            }
            (None, None, None, None, Some(at)) => {
                Ok(Command::CompareAndSet { key: read_key(at)?, expected: read(expected)?, new: read(new)? })
            }
            _ => Err(VERBS.to_owned()),
        }
    }
}

impl From<&Command> for CommandView {
    fn from(command: &Command) -> Self {
        let (text, none) = (|key: &Key| Some(key.as_str().to_owned()), Self::default());
        match command {
            Command::Get(key) => Self { get: text(key), ..none },
            Command::Put(key, value) => Self { put: text(key), value: Some(value.into()), ..none },
            Command::Delete(key) => Self { delete: text(key), ..none },
            Command::Increment(key, by) => Self { increment: text(key), by: Some(*by), ..none },
            Command::CompareAndSet { key, expected, new } => Self {
                compare_and_set: text(key),
                expected: expected.as_ref().map(Into::into),
                new: new.as_ref().map(Into::into),
                ..none
            },
            _ => none,
        }
    }
}

impl From<&Value> for ValueView {
    fn from(value: &Value) -> Self {
        match value {
            Value::Integer(number) => Self::Integer(*number),
            Value::Text(text) => Self::Text(text.as_str().to_owned()),
            Value::Symbol(symbol) => Self::Symbol(SymbolView { symbol: symbol.as_str().to_owned() }),
        }
    }
}

impl TryFrom<ValueView> for Value {
    type Error = BadValue;

    fn try_from(shown: ValueView) -> Result<Self, BadValue> {
        match shown {
            ValueView::Integer(number) => Ok(number.into()),
            ValueView::Text(text) => Self::text(text),
            ValueView::Symbol(SymbolView { symbol }) => Self::symbol(symbol),
        }
    }
}

impl From<&Bindings> for MatchesView {
    fn from(answer: &Bindings) -> Self {
        let shown = |values: &Vec<Value>| values.iter().map(Into::into).collect();
        Self {
            variables: answer.variables.iter().map(ToString::to_string).collect(),
            matches: answer.matches.iter().map(shown).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Command, String> {
        serde_json::from_str::<CommandView>(text).map_err(|why| why.to_string())?.read()
    }

    #[test]
    fn commands_survive_a_round_trip() {
        for text in [
            r#"{"get":"a"}"#,
            r#"{"put":"a","value":1}"#,
            r#"{"put":"a","value":"text"}"#,
            r#"{"put":"a","value":{"symbol":"word"}}"#,
            r#"{"delete":"a"}"#,
            r#"{"increment":"a","by":-2}"#,
            r#"{"compare_and_set":"a","expected":1,"new":2}"#,
            r#"{"compare_and_set":"a"}"#,
        ] {
            let command = read(text).unwrap();
            assert_eq!(serde_json::to_string(&CommandView::from(&command)).unwrap(), text);
        }
        assert_eq!(read(r#"{"increment":"a"}"#), read(r#"{"increment":"a","by":1}"#));
    }

    #[test]
    fn invalid_commands_are_rejected() {
        for (text, part) in [
            ("{}", "expected one of get, put"),
            (r#"{"get":"a","put":"a","value":1}"#, "expected one of get, put"),
            (r#"{"put":"a"}"#, "`value` is missing"),
            (r#"{"get":"a","value":1}"#, "`value` does not belong"),
            (r#"{"get":""}"#, "a key has 1 to"),
            (r#"{"get":"holdoff/locks"}"#, "reserved for daemons"),
            (r#"{"compare_and_set":"holdoff/lock/00"}"#, "reserved for daemons"),
            (r#"{"put":"a","value":1.5}"#, "expected an integer, a string"),
            (r#"{"put":"a","value":{"symbol":"1"}}"#, "a symbol is a letter"),
            (r#"{"got":"a"}"#, "unknown field"),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.contains(part), "{text}: {found}");
        }
    }
}
