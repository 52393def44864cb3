//! `growth = …` and the keys that go with it

use std::ops::Range;
use std::time::Duration;

use toml::de::DeTable;

use super::reader::{Reader, Value};
use crate::Growth;

const GROWTHS: &[&str] = &["exponential", "linear", "fibonacci", "constant", "list"];
/// The keys that only some growths have.
const ALL_KEYS: &[&str] = &["base", "factor", "max_exponent", "step", "delay", "delays"];

/// Reads a growth; what is not said is inherited, where the inherited growth has it.
pub(super) fn read(
    reader: &mut Reader<'_>,
    policy: &str,
    span: &Range<usize>,
    table: &DeTable<'_>,
    inherited: Option<&Growth>,
) -> Option<Growth> {
    let kind = match table.get("growth") {
        Some(value) => reader.word(value, "growth", GROWTHS)?,
        None => inherited.map_or("exponential", Growth::name),
    };
    refuse_keys_of_other_growths(reader, table, kind);
    let mut keys = Keys { reader, policy, span, table };
    let base = inherited.filter(|growth| growth.natural_top().is_none()).map(Growth::first);
    match kind {
        "linear" => {
            let base = keys.duration("base", base)?;
            let step = match inherited {
                Some(Growth::Linear { step, .. }) => *step,
                _ => base,
            };
            Some(Growth::Linear { base, step: keys.duration("step", Some(step))? })
        }
        "fibonacci" => Some(Growth::Fibonacci { base: keys.duration("base", base)? }),
        "constant" => {
            let inherited = inherited.filter(|growth| matches!(growth, Growth::Constant { .. }));
            Some(Growth::Constant { delay: keys.duration("delay", inherited.map(Growth::first))? })
        }
        "list" => keys.list(inherited),
        _ => keys.exponential(base, inherited),
    }
}

fn refuse_keys_of_other_growths(reader: &mut Reader<'_>, table: &DeTable<'_>, kind: &str) {
    let own: &[&str] = match kind {
        "linear" => &["base", "step"],
        "fibonacci" => &["base"],
        "constant" => &["delay"],
        "list" => &["delays"],
        _ => &["base", "factor", "max_exponent"],
    };
    for key in table.keys() {
        let written = key.get_ref().as_ref();
        if ALL_KEYS.contains(&written) && !own.contains(&written) {
            reader
                .problem(key.span(), format!("`{written}` has no meaning with growth = \"{kind}\""))
                .expected(format!("{}, or another growth", own.join(", ")));
        }
    }
}

/// The keys of one policy's growth.
struct Keys<'r, 't, 'd> {
    reader: &'r mut Reader<'t>,
    policy: &'r str,
    span: &'r Range<usize>,
    table: &'r DeTable<'d>,
}

impl Keys<'_, '_, '_> {
    fn duration(&mut self, key: &str, inherited: Option<Duration>) -> Option<Duration> {
        if let Some(value) = self.table.get(key) {
            return self.reader.duration(value, key);
        }
        if inherited.is_none() {
            self.missing(key, "\"100ms\"");
        }
        inherited
    }

    fn exponential(&mut self, base: Option<Duration>, inherited: Option<&Growth>) -> Option<Growth> {
        let (mut factor, mut max_exponent) = match inherited {
            Some(Growth::Exponential { factor, max_exponent, .. }) => (*factor, *max_exponent),
            _ => (2.0, None),
        };
        let base = self.duration("base", base);
        if let Some(value) = self.table.get("factor") {
            factor = self.reader.number(value, "factor").unwrap_or(factor);
        }
        if let Some(value) = self.table.get("max_exponent") {
            max_exponent = self.reader.whole_number(value, "max_exponent", "a whole number");
        }
        Some(Growth::Exponential { base: base?, factor, max_exponent })
    }

    fn list(&mut self, inherited: Option<&Growth>) -> Option<Growth> {
        match (self.table.get("delays"), inherited) {
            (Some(value), _) => Some(Growth::List { delays: self.delays(value)? }),
            (None, Some(inherited @ Growth::List { .. })) => Some(inherited.clone()),
            (None, _) => {
                self.missing("delays", "[\"1s\", \"5s\"]");
                None
            }
        }
    }

    fn delays(&mut self, value: &Value<'_>) -> Option<Vec<Duration>> {
        let Some(array) = value.get_ref().as_array() else {
            self.reader.wrong_type(value, "delays", "a list of durations, such as [\"1s\", \"5s\"]");
            return None;
        };
        let read: Vec<_> =
            array.iter().map(|delay| self.reader.duration(delay, "an entry of delays")).collect();
        read.into_iter().collect()
    }

    fn missing(&mut self, key: &str, example: &str) {
        let message = format!("policy `{}` has no `{key}`", self.policy);
        let instead = if self.table.contains_key("growth") { "" } else { ", or extends = \"standard\"" };
        let expected = format!("{key} = {example}{instead}");
        self.reader.problem(self.span.clone(), message).expected(expected);
    }
}
