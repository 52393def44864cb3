//! One table of the file, and typed access to its values by key.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::DeTable;

use super::reader::{Reader, Value};
use super::{format_duration, size};

/// One table of the file. Each method stores the value of a key in `into` if the key is present and its value
/// is valid.
#[derive(Debug)]
pub struct Section<'a, 'd> {
    table: &'a DeTable<'d>,
    /// The prefix of a key in messages.
    prefix: &'a str,
}

impl<'a, 'd> Section<'a, 'd> {
    /// Opens the table `[name]`, whose keys appear in messages without a prefix, and rejects unknown keys.
    pub fn new(reader: &mut Reader<'_>, name: &str, table: &'a DeTable<'d>, keys: &[&str]) -> Self {
        reader.refuse_unknown_keys(&format!("in {name}"), table, keys);
        Self::of(table)
    }

    /// Wraps a table whose keys the caller has already checked.
    pub fn of(table: &'a DeTable<'d>) -> Self {
        Self { table, prefix: "" }
    }

    /// Opens an inline table inside another table, such as `budget = { … }`.
    pub fn inside(
        reader: &mut Reader<'_>,
        outer: &'a DeTable<'d>,
        key: &str,
        prefix: &'a str,
        keys: &[&str],
    ) -> Option<Self> {
        let table = reader.table(outer.get(key)?, key)?;
        reader.refuse_unknown_keys(&format!("in {key}"), table, keys);
        Some(Self { table, prefix })
    }

    /// Returns the value of this key and the name that messages use for it.
    pub fn get(&self, key: &str) -> Option<(&'a Value<'d>, String)> {
        Some((self.table.get(key)?, format!("{}{key}", self.prefix)))
    }

    /// Reads a duration.
    pub fn duration(
        &self,
        reader: &mut Reader<'_>,
        key: &str,
        range: RangeInclusive<Duration>,
        into: &mut Duration,
    ) {
        let Some((value, what)) = self.get(key) else { return };
        let Some(found) = reader.duration(value, &what) else { return };
        let shown = |duration: &Duration| format_duration(*duration);
        put(reader, (value, &what), found, &range, shown, into);
    }

    /// Reads a size in bytes, or with a unit.
    pub fn size(&self, reader: &mut Reader<'_>, key: &str, range: RangeInclusive<u64>, into: &mut usize) {
        const EXPECTED: &str = "a number of bytes, or a size such as \"256KiB\" or \"1MiB\"";
        let Some((value, what)) = self.get(key) else { return };
        let found = match value.get_ref().as_str() {
            Some(text) => match size::parse(text) {
                Ok(size) => Some(size),
                Err(why) => {
                    let message = format!("{what} \"{text}\" is not a size: {why}");
                    reader.problem(value.span(), message).expected(EXPECTED);
                    None
                }
            },
            None => reader.whole_number(value, &what, EXPECTED),
        };
        let Some(found) = found else { return };
        let mut size = 0;
        if put(reader, (value, &what), found, &range, |size| size::format(*size), &mut size) {
            // The ranges are far below the address space of any machine.
            *into = usize::try_from(size).unwrap_or(usize::MAX);
        }
    }

    /// Reads a whole number.
    pub fn count<N>(&self, reader: &mut Reader<'_>, key: &str, range: RangeInclusive<N>, into: &mut N)
    where
        N: TryFrom<u64> + PartialOrd + Display + Copy,
    {
        let Some((value, what)) = self.get(key) else { return };
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let Some(found) = reader.whole_number(value, &what, &expected) else { return };
        put(reader, (value, &what), found, &range, N::to_string, into);
    }

    /// Reads a number, with or without a fraction.
    pub fn number(&self, reader: &mut Reader<'_>, key: &str, range: RangeInclusive<f64>, into: &mut f64) {
        let Some((value, what)) = self.get(key) else { return };
        let Some(found) = reader.number(value, &what) else { return };
        put(reader, (value, &what), found, &range, f64::to_string, into);
    }

    /// Reads an address and a port.
    pub fn address(&self, reader: &mut Reader<'_>, key: &str, example: &str, into: &mut SocketAddr) {
        let Some((value, what)) = self.get(key) else { return };
        let expected = format!("an address and a port in quotes, such as \"{example}\"");
        let Some(text) = reader.string(value, &what, &expected) else { return };
        match text.parse() {
            Ok(address) => *into = address,
            Err(_) => {
                reader.problem(value.span(), format!("{what} \"{text}\" is no address")).expected(expected);
            }
        }
    }

    /// Reads a text that is not empty.
    pub fn text(&self, reader: &mut Reader<'_>, key: &str, example: &str) -> Option<String> {
        let (value, what) = self.get(key)?;
        let expected = format!("a text in quotes, such as \"{example}\"");
        let text = reader.string(value, &what, &expected)?;
        if text.is_empty() {
            reader.problem(value.span(), format!("{what} is empty")).expected(expected);
            return None;
        }
        Some(text.to_owned())
    }
}

/// Stores a value in `into` if it is in range; otherwise reports a problem and returns `false`.
fn put<T: PartialOrd>(
    reader: &mut Reader<'_>,
    (value, what): (&Value<'_>, &str),
    found: T,
    range: &RangeInclusive<T>,
    shown: impl Fn(&T) -> String,
    into: &mut T,
) -> bool {
    let is_in_range = range.contains(&found);
    if is_in_range {
        *into = found;
    } else {
        reader.problem(value.span(), format!("{what} is {}", shown(&found))).expected(format!(
            "a value from {} to {}",
            shown(range.start()),
            shown(range.end())
        ));
    }
    is_in_range
}
