//! Reads typed values from a parsed document, and collects the problems.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, Problems, likely_connections, likely_secrets};
use super::units::{format_duration, format_size, parse_duration, parse_size};

/// A value and its position in the text.
pub type SpannedValue<'d> = Spanned<DeValue<'d>>;

/// Collects problems while values are read: each method returns the value, or reports a problem and returns
/// `None`.
///
/// `what` is the name of the value in messages, usually its key; `expected` completes "expected …".
#[derive(Debug)]
pub struct Reader<'t> {
    text: &'t str,
    problems: Vec<Problem>,
    /// Policies that have problems of their own; a reference to them is not a further problem.
    broken: BTreeSet<String>,
    /// Receives the details of problems beyond the limit, which are then dropped.
    spill: Option<Problem>,
    /// The spans that no problem may show.
    concealed: Vec<Range<usize>>,
}

impl<'t> Reader<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, problems: Vec::new(), broken: BTreeSet::new(), spill: None, concealed: Vec::new() }
    }

    /// Returns the number of problems so far.
    pub(super) fn count(&self) -> usize {
        self.problems.len() + usize::from(self.spill.is_some())
    }

    pub(super) fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    pub(super) fn into_problems(mut self) -> Problems {
        self.concealed.extend(likely_connections(self.text));
        if !self.concealed.is_empty() {
            self.problems.iter_mut().for_each(|problem| problem.conceal(self.text, &self.concealed));
        }
        Problems::new(self.problems)
    }

    /// Hides a part of the text from every problem, because it is or may be a secret.
    ///
    /// The reader shortens only the excerpts that it shows. The caller must keep secrets out of its messages.
    pub fn conceal(&mut self, span: Range<usize>) {
        self.concealed.push(span);
    }

    /// Hides everything that may be a secret, for a text that cannot be parsed.
    pub(super) fn conceal_likely_secrets(&mut self) {
        self.concealed.extend(likely_secrets(self.text));
    }

    pub(super) fn note_broken(&mut self, policy: &str) {
        self.broken.insert(policy.to_owned());
    }

    pub(super) fn is_broken(&self, policy: &str) -> bool {
        self.broken.contains(policy)
    }

    /// Reports a problem; the caller may add the expected value.
    pub fn problem(&mut self, span: Range<usize>, message: impl Into<String>) -> &mut Problem {
        let problem = Problem::at(self.text, &span, message.into());
        if self.problems.len() >= Problems::MOST {
            return self.spill.insert(problem);
        }
        self.problems.push(problem);
        let last = self.problems.len() - 1;
        match self.problems.get_mut(last) {
            Some(problem) => problem,
            None => self.spill.insert(Problem::at(self.text, &span, String::new())),
        }
    }

    /// Reports every key that is not known.
    pub fn refuse_unknown_keys(&mut self, place: &str, table: &DeTable<'_>, known: &[&str]) {
        for key in table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let written = key.get_ref();
            self.problem(key.span(), format!("unknown key `{written}` {place}"))
                .expected(format!("one of {}", known.join(", ")))
                .nearest(written, known.iter().copied());
        }
    }

    /// Returns whether a table is written in braces.
    pub fn is_inline(&self, value: &SpannedValue<'_>) -> bool {
        self.text.get(value.span().start..).is_some_and(|text| text.starts_with('{'))
    }

    /// Returns the table under this key; reports a problem if the value is not a table.
    pub fn table_in<'a, 'd>(&mut self, table: &'a DeTable<'d>, key: &str) -> Option<&'a DeTable<'d>> {
        self.table(table.get(key)?, &format!("[{key}]"))
    }

    /// Reads a table.
    pub fn table<'a, 'd>(&mut self, value: &'a SpannedValue<'d>, what: &str) -> Option<&'a DeTable<'d>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.wrong_type(value, what, "a table");
        }
        table
    }

    /// Reads a text.
    pub fn string<'a>(&mut self, value: &'a SpannedValue<'_>, what: &str, expected: &str) -> Option<&'a str> {
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.wrong_type(value, what, expected);
        }
        text
    }

    /// Reads a text that must be one of the known words.
    pub fn word<'a>(&mut self, value: &'a SpannedValue<'_>, what: &str, known: &[&str]) -> Option<&'a str> {
        let expected = format!("one of {}", quoted(known));
        let word = self.string(value, what, &expected)?;
        if known.contains(&word) {
            return Some(word);
        }
        self.problem(value.span(), format!("{what} cannot be \"{word}\""))
            .expected(expected)
            .nearest(word, known.iter().copied());
        None
    }

    /// Reads a duration, written as a text with a unit.
    pub fn duration(&mut self, value: &SpannedValue<'_>, what: &str) -> Option<Duration> {
        let expected = "a duration, such as \"250ms\", \"1.5s\" or \"2m\"";
        if let DeValue::Integer(number) = value.get_ref() {
            self.problem(value.span(), format!("{what} is a bare number, without a unit"))
                .expected(format!("a duration in quotes, such as \"{0}ms\" or \"{0}s\"", number.as_str()));
            return None;
        }
        let text = self.string(value, what, expected)?;
        match parse_duration(text) {
            Ok(duration) => Some(duration),
            Err(why) => {
                self.problem(value.span(), format!("{what} \"{text}\" is not a duration: {why}"))
                    .expected(expected);
                None
            }
        }
    }

    /// Reads `true` or `false`.
    pub fn boolean(&mut self, value: &SpannedValue<'_>, what: &str) -> Option<bool> {
        let boolean = value.get_ref().as_bool();
        if boolean.is_none() {
            self.wrong_type(value, what, "true or false");
        }
        boolean
    }

    /// Reads a number, with or without a fraction.
    pub fn number(&mut self, value: &SpannedValue<'_>, what: &str) -> Option<f64> {
        let number = match value.get_ref() {
            DeValue::Float(number) => number.as_str().parse().ok(),
            #[expect(clippy::cast_precision_loss, reason = "the ranges that validate are small")]
            DeValue::Integer(number) => {
                i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number as f64)
            }
            _ => None,
        };
        if number.is_none() {
            self.wrong_type(value, what, "a number");
        }
        number
    }

    /// Reads a whole number that is not negative and fits into `N`.
    pub fn whole_number<N: TryFrom<u64>>(
        &mut self,
        value: &SpannedValue<'_>,
        what: &str,
        expected: &str,
    ) -> Option<N> {
        if let DeValue::Integer(number) = value.get_ref() {
            let count = u64::from_str_radix(number.as_str(), number.radix()).ok();
            if let Some(count) = count.and_then(|count| N::try_from(count).ok()) {
                return Some(count);
            }
            self.problem(value.span(), format!("{what} is {}", number.as_str())).expected(expected);
            return None;
        }
        self.wrong_type(value, what, expected);
        None
    }

    /// Reports that a value has another type than expected.
    pub fn wrong_type(&mut self, value: &SpannedValue<'_>, what: &str, expected: &str) {
        let found = value.get_ref().type_str();
        let article = if found.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
        self.problem(value.span(), format!("{what} is {article} {found}")).expected(expected);
    }
}

/// Formats words as `"a", "b", "c"`.
pub(super) fn quoted(words: &[&str]) -> String {
    let each: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    each.join(", ")
}

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
    pub fn get(&self, key: &str) -> Option<(&'a SpannedValue<'d>, String)> {
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
            Some(text) => match parse_size(text) {
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
        if put(reader, (value, &what), found, &range, |size| format_size(*size), &mut size) {
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
    (value, what): (&SpannedValue<'_>, &str),
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
