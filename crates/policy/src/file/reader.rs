//! Reading typed values out of a parsed document, noting problems on the way.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::duration::parse_duration;
use super::problem::{Problem, Problems};

/// A value and where it stands.
pub(super) type Value<'d> = Spanned<DeValue<'d>>;

/// Collects problems while values are read.
pub(super) struct Reader<'t> {
    text: &'t str,
    problems: Vec<Problem>,
    /// Policies that have problems of their own; nobody is blamed for naming them.
    broken: BTreeSet<String>,
    /// Takes what is said once there are too many problems.
    spill: Option<Problem>,
}

impl<'t> Reader<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, problems: Vec::new(), broken: BTreeSet::new(), spill: None }
    }

    /// How many problems there are so far.
    pub(super) fn count(&self) -> usize {
        self.problems.len() + usize::from(self.spill.is_some())
    }

    pub(super) fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    pub(super) fn into_problems(self) -> Problems {
        Problems::new(self.problems)
    }

    pub(super) fn note_broken(&mut self, policy: &str) {
        self.broken.insert(policy.to_owned());
    }

    pub(super) fn is_broken(&self, policy: &str) -> bool {
        self.broken.contains(policy)
    }

    /// Notes a problem; the caller may add what was expected.
    pub(super) fn problem(&mut self, span: Range<usize>, message: impl Into<String>) -> &mut Problem {
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

    /// Notes every key that is not among the known ones.
    pub(super) fn refuse_unknown_keys(&mut self, place: &str, table: &DeTable<'_>, known: &[&str]) {
        for key in table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let written = key.get_ref();
            self.problem(key.span(), format!("unknown key `{written}` {place}"))
                .expected(format!("one of {}", known.join(", ")))
                .nearest(written, known.iter().copied());
        }
    }

    /// Whether a table is written in braces.
    pub(super) fn is_inline(&self, value: &Value<'_>) -> bool {
        self.text.get(value.span().start..).is_some_and(|text| text.starts_with('{'))
    }

    /// The table under this key; notes a problem if something else is there.
    pub(super) fn table_in<'a, 'd>(&mut self, table: &'a DeTable<'d>, key: &str) -> Option<&'a DeTable<'d>> {
        self.table(table.get(key)?, &format!("[{key}]"))
    }

    pub(super) fn table<'a, 'd>(&mut self, value: &'a Value<'d>, what: &str) -> Option<&'a DeTable<'d>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.wrong_type(value, what, "a table");
        }
        table
    }

    pub(super) fn string<'a>(&mut self, value: &'a Value<'_>, what: &str, expected: &str) -> Option<&'a str> {
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.wrong_type(value, what, expected);
        }
        text
    }

    /// One of a few words.
    pub(super) fn word<'a>(&mut self, value: &'a Value<'_>, what: &str, known: &[&str]) -> Option<&'a str> {
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

    pub(super) fn duration(&mut self, value: &Value<'_>, what: &str) -> Option<Duration> {
        let expected = "a duration in quotes, such as \"250ms\", \"1.5s\" or \"2m\"";
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

    pub(super) fn number(&mut self, value: &Value<'_>, what: &str) -> Option<f64> {
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

    pub(super) fn whole_number(&mut self, value: &Value<'_>, what: &str, expected: &str) -> Option<u32> {
        if let DeValue::Integer(number) = value.get_ref() {
            if let Ok(count) = u32::from_str_radix(number.as_str(), number.radix()) {
                return Some(count);
            }
            self.problem(value.span(), format!("{what} is {}", number.as_str())).expected(expected);
            return None;
        }
        self.wrong_type(value, what, expected);
        None
    }

    pub(super) fn wrong_type(&mut self, value: &Value<'_>, what: &str, expected: &str) {
        let found = value.get_ref().type_str();
        let article = if found.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
        self.problem(value.span(), format!("{what} is {article} {found}")).expected(expected);
    }
}

/// `"a", "b", "c"`
pub(super) fn quoted(words: &[&str]) -> String {
    let each: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    each.join(", ")
}
