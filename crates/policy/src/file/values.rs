//! The values of one policy table: durations, numbers, growth and jitter.

use std::ops::Range;
use std::time::Duration;

use toml::de::DeTable;

use super::reader::{Reader, SpannedValue, quoted};
use crate::{Beyond, Growth, Jitter, Policy};

const GROWTHS: &[&str] = &["exponential", "linear", "fibonacci", "constant", "list"];
pub(super) const RETRY_AFTER_KEYS: &[&str] = &["spread", "limit", "beyond"];
pub(super) const CONTENTION_KEYS: &[&str] = &["slot", "limit"];

/// The values of a policy's table. An unreadable value is absent here, and the reader has reported its
/// problem.
#[derive(Default)]
pub(super) struct Values {
    pub(super) growth: Option<&'static str>,
    pub(super) base: Option<Duration>,
    pub(super) factor: Option<f64>,
    pub(super) max_exponent: Option<u32>,
    pub(super) step: Option<Duration>,
    pub(super) delay: Option<Duration>,
    pub(super) delays: Option<Vec<Duration>>,
    pub(super) cap: Option<Duration>,
    pub(super) attempts: Option<u32>,
    pub(super) deadline: Option<Duration>,
    pub(super) jitter: Option<Jitter>,
    pub(super) spread: Option<Duration>,
    pub(super) retry_after_limit: Option<Duration>,
    pub(super) beyond: Option<Beyond>,
    pub(super) slot: Option<Duration>,
    pub(super) contention_limit: Option<Duration>,
}

impl Values {
    /// Reads every key, so that the reader reports every problem.
    pub(super) fn read(reader: &mut Reader<'_>, table: &DeTable<'_>) -> Self {
        let mut values = Self {
            growth: table.get("growth").and_then(|value| growth_word(reader, value)),
            factor: table.get("factor").and_then(|value| reader.number(value, "factor")),
            delays: table.get("delays").and_then(|value| delays(reader, value)),
            attempts: table.get("attempts").and_then(|value| attempts(reader, value)),
            jitter: table.get("jitter").and_then(|value| read_jitter(reader, value)),
            ..Self::default()
        };
        let count = |value| reader.whole_number(value, "max_exponent", "a whole number");
        values.max_exponent = table.get("max_exponent").and_then(count);
        let mut duration = |key: &str| table.get(key).and_then(|value| reader.duration(value, key));
        (values.base, values.step, values.delay) = (duration("base"), duration("step"), duration("delay"));
        (values.cap, values.deadline) = (duration("cap"), duration("deadline"));
        values.read_retry_after(reader, table);
        values.read_contention(reader, table);
        values
    }

    fn read_retry_after(&mut self, reader: &mut Reader<'_>, table: &DeTable<'_>) {
        let Some(value) = table.get("retry_after") else { return };
        let Some(table) = reader.table(value, "retry_after") else { return };
        reader.refuse_unknown_keys("in retry_after", table, RETRY_AFTER_KEYS);
        self.spread = table.get("spread").and_then(|value| reader.duration(value, "retry_after.spread"));
        self.retry_after_limit =
            table.get("limit").and_then(|value| reader.duration(value, "retry_after.limit"));
        let words = Beyond::ALL.map(Beyond::name);
        let word = table.get("beyond").and_then(|value| reader.word(value, "retry_after.beyond", &words));
        self.beyond = word.and_then(|word| Beyond::ALL.into_iter().find(|beyond| beyond.name() == word));
    }

    fn read_contention(&mut self, reader: &mut Reader<'_>, table: &DeTable<'_>) {
        let Some(value) = table.get("contention") else { return };
        let Some(table) = reader.table(value, "contention") else { return };
        reader.refuse_unknown_keys("in contention", table, CONTENTION_KEYS);
        self.slot = table.get("slot").and_then(|value| reader.duration(value, "contention.slot"));
        self.contention_limit =
            table.get("limit").and_then(|value| reader.duration(value, "contention.limit"));
    }
}

fn growth_word(reader: &mut Reader<'_>, value: &SpannedValue<'_>) -> Option<&'static str> {
    let word = reader.word(value, "growth", GROWTHS)?;
    GROWTHS.iter().find(|known| **known == word).copied()
}

fn delays(reader: &mut Reader<'_>, value: &SpannedValue<'_>) -> Option<Vec<Duration>> {
    let Some(array) = value.get_ref().as_array() else {
        reader.wrong_type(value, "delays", "a list of durations, such as [\"1s\", \"5s\"]");
        return None;
    };
    let read: Vec<_> = array.iter().map(|delay| reader.duration(delay, "an entry of delays")).collect();
    read.into_iter().collect()
}

fn attempts(reader: &mut Reader<'_>, value: &SpannedValue<'_>) -> Option<u32> {
    const EXPECTED: &str = "a whole number from 1 up, or \"unlimited\"";
    if let Some(word) = value.get_ref().as_str() {
        if word == "unlimited" {
            return Some(Policy::UNLIMITED);
        }
        let message = format!("attempts cannot be \"{word}\"");
        reader.problem(value.span(), message).expected(EXPECTED).nearest(word, ["unlimited"]);
        return None;
    }
    let attempts: u32 = reader.whole_number(value, "attempts", EXPECTED)?;
    if attempts == 0 {
        reader.problem(value.span(), "attempts is 0, but the first attempt counts").expected(EXPECTED);
    }
    Some(attempts).filter(|attempts| *attempts > 0)
}

/// The keys that only some kinds of growth have.
const GROWTH_KEYS: &[&str] = &["base", "factor", "max_exponent", "step", "delay", "delays"];

/// One policy's table and its position.
pub(super) struct PolicyTable<'a, 'd> {
    pub(super) name: &'a str,
    pub(super) span: &'a Range<usize>,
    pub(super) table: &'a DeTable<'d>,
}

/// Builds the growth; a missing value is inherited if the parent's growth has it.
pub(super) fn build_growth(
    reader: &mut Reader<'_>,
    policy: &PolicyTable<'_, '_>,
    values: &Values,
    inherited: Option<&Growth>,
) -> Option<Growth> {
    let kind = values.growth.unwrap_or_else(|| inherited.map_or("exponential", Growth::name));
    refuse_keys_of_other_growths(reader, policy.table, kind);
    let inherited_base = inherited.filter(|growth| growth.natural_top().is_none()).map(Growth::first);
    let base = values.base.or(inherited_base);
    let needed = |reader: &mut Reader<'_>, value: Option<Duration>, key: &str| {
        if value.is_none() {
            missing(reader, policy, key, "\"100ms\"");
        }
        value
    };
    match (kind, inherited) {
        ("linear", _) => {
            let base = needed(reader, base, "base")?;
            let inherited_step = match inherited {
                Some(Growth::Linear { step, .. }) => *step,
                _ => base,
            };
            Some(Growth::Linear { base, step: values.step.unwrap_or(inherited_step) })
        }
        ("fibonacci", _) => Some(Growth::Fibonacci { base: needed(reader, base, "base")? }),
        ("constant", Some(Growth::Constant { delay })) => {
            Some(Growth::Constant { delay: values.delay.unwrap_or(*delay) })
        }
        ("constant", _) => Some(Growth::Constant { delay: needed(reader, values.delay, "delay")? }),
        ("list", _) => {
            let delays = values.delays.clone().map(|delays| Growth::List { delays });
            let inherited = inherited.filter(|growth| matches!(growth, Growth::List { .. })).cloned();
            if delays.is_none() && inherited.is_none() {
                missing(reader, policy, "delays", "[\"1s\", \"5s\"]");
            }
            delays.or(inherited)
        }
        _ => {
            let (factor, max_exponent) = match inherited {
                Some(Growth::Exponential { factor, max_exponent, .. }) => (*factor, *max_exponent),
                _ => (2.0, None),
            };
            Some(Growth::Exponential {
                base: needed(reader, base, "base")?,
                factor: values.factor.unwrap_or(factor),
                max_exponent: values.max_exponent.or(max_exponent),
            })
        }
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
        if GROWTH_KEYS.contains(&written) && !own.contains(&written) {
            reader
                .problem(key.span(), format!("`{written}` has no meaning with growth = \"{kind}\""))
                .expected(format!("{}, or another growth", own.join(", ")));
        }
    }
}

fn missing(reader: &mut Reader<'_>, policy: &PolicyTable<'_, '_>, key: &str, example: &str) {
    // An unreadable value has been reported already.
    if policy.table.contains_key(key) {
        return;
    }
    let instead = if policy.table.contains_key("growth") { "" } else { ", or extends = \"standard\"" };
    let message = format!("policy `{}` has no `{key}`", policy.name);
    reader.problem(policy.span.clone(), message).expected(format!("{key} = {example}{instead}"));
}

/// The jitters without parameters, then the jitters with parameters.
const JITTERS: &[&str] = &["none", "full", "equal", "decorrelated"];
const JITTERS_WITH_NUMBERS: &[&str] = &["proportional", "scaled", "additive"];

fn read_jitter(reader: &mut Reader<'_>, value: &SpannedValue<'_>) -> Option<Jitter> {
    if let Some(table) = value.get_ref().as_table() {
        return read_jitter_with_numbers(reader, value, table);
    }
    let word = reader.string(value, "jitter", "a word such as \"full\", or { proportional = 0.1 }")?;
    Some(match word {
        "none" => Jitter::None,
        "full" => Jitter::Full,
        "equal" => Jitter::Equal,
        "decorrelated" => Jitter::Decorrelated,
        "proportional" | "scaled" | "additive" => {
            let example = if word == "scaled" { "[0.5, 1.5]" } else { "0.1" };
            let message = format!("jitter \"{word}\" needs a number");
            reader.problem(value.span(), message).expected(format!("jitter = {{ {word} = {example} }}"));
            return None;
        }
        other => {
            let known: Vec<_> = JITTERS.iter().chain(JITTERS_WITH_NUMBERS).copied().collect();
            reader
                .problem(value.span(), format!("jitter cannot be \"{other}\""))
                .expected(format!("one of {}", quoted(&known)))
                .nearest(other, known);
            return None;
        }
    })
}

fn read_jitter_with_numbers(
    reader: &mut Reader<'_>,
    value: &SpannedValue<'_>,
    table: &DeTable<'_>,
) -> Option<Jitter> {
    reader.refuse_unknown_keys("in jitter", table, JITTERS_WITH_NUMBERS);
    let mut entries = table.iter();
    let (Some((key, share)), None) = (entries.next(), entries.next()) else {
        reader
            .problem(value.span(), format!("jitter has {} entries", table.len()))
            .expected("exactly one, such as { proportional = 0.1 }");
        return None;
    };
    match key.get_ref().as_ref() {
        "proportional" => Some(Jitter::Proportional(reader.number(share, "the proportional jitter")?)),
        "additive" => Some(Jitter::Additive(reader.number(share, "the additive jitter")?)),
        "scaled" => {
            let Some([low, high]) = share.get_ref().as_array().and_then(|array| array.get(..)) else {
                let expected = "two shares of the ceiling, such as [0.5, 1.5]";
                reader.wrong_type(share, "the scaled jitter", expected);
                return None;
            };
            let low = reader.number(low, "the jitter's low share")?;
            Some(Jitter::Scaled { low, high: reader.number(high, "the jitter's high share")? })
        }
        _ => None,
    }
}
