//! `[policies.NAME]`

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use toml::de::DeTable;

use super::reader::{Reader, Value};
use crate::{Beyond, Crowd, Growth, Invalid, Jitter, Policy, PolicySet, RetryAfter};

/// The keys of a policy.
pub(super) const KEYS: &[&str] = &[
    "extends",
    "growth",
    "base",
    "factor",
    "max_exponent",
    "step",
    "delay",
    "delays",
    "cap",
    "attempts",
    "deadline",
    "jitter",
    "retry_after",
    "crowd",
];
pub(super) const GROWTHS: &[&str] = &["exponential", "linear", "fibonacci", "constant", "list"];
pub(super) const PLAIN_JITTERS: &[&str] = &["none", "full", "equal", "decorrelated"];
pub(super) const JITTERS_WITH_NUMBERS: &[&str] = &["proportional", "scaled", "additive"];
pub(super) const RETRY_AFTER_KEYS: &[&str] = &["spread", "limit", "beyond"];
pub(super) const CROWD_KEYS: &[&str] = &["slot", "limit"];
/// The keys that only some growths have.
const GROWTH_KEYS: &[&str] = &["base", "factor", "max_exponent", "step", "delay", "delays"];

/// Reads all policies into the set, parents before those that extend them.
pub(super) fn read(reader: &mut Reader<'_>, policies: &DeTable<'_>, set: &mut PolicySet) {
    let mut tables = BTreeMap::new();
    for (name, value) in policies {
        let name = name.get_ref().as_ref();
        if let Some(table) = reader.table(value, &format!("policy `{name}`")) {
            tables.insert(name, (value.span(), table));
        }
    }
    let mut family = Family { tables: &tables, done: BTreeSet::new(), under_way: Vec::new() };
    for name in tables.keys() {
        family.read(reader, name, set);
    }
}

/// Reads each policy after the one it extends.
struct Family<'a, 'd> {
    tables: &'a BTreeMap<&'a str, (Range<usize>, &'a DeTable<'d>)>,
    done: BTreeSet<&'a str>,
    under_way: Vec<&'a str>,
}

impl<'a> Family<'a, '_> {
    fn read(&mut self, reader: &mut Reader<'_>, name: &'a str, set: &mut PolicySet) {
        let Some((span, table)) = self.tables.get(name) else { return };
        if self.done.contains(name) {
            return;
        }
        self.under_way.push(name);
        let parent = table.get("extends").and_then(|value| self.parent(reader, name, value, set));
        self.under_way.pop();
        self.done.insert(name);
        if let Some(policy) = read_policy(reader, name, span.clone(), table, parent.as_ref()) {
            set.define(name, policy);
        }
    }

    /// The policy that is extended: another of the file, or a preset.
    fn parent(
        &mut self,
        reader: &mut Reader<'_>,
        name: &str,
        value: &'a Value<'_>,
        set: &mut PolicySet,
    ) -> Option<Policy> {
        let wanted = reader.string(value, "extends", "the name of a policy in quotes")?;
        if wanted != name && self.under_way.contains(&wanted) {
            let path = self.under_way.join(" → ");
            reader
                .problem(value.span(), format!("policies extend each other in a circle: {path} → {wanted}"));
            return None;
        }
        if wanted != name {
            self.read(reader, wanted, set);
        }
        // A policy may take a preset's name and extend the preset.
        let parent =
            if wanted == name { Policy::preset(wanted) } else { set.policy(wanted).map(|p| (**p).clone()) };
        let has_problems_of_its_own = self.tables.contains_key(wanted) && wanted != name;
        if parent.is_none() && !has_problems_of_its_own {
            let known = self.tables.keys().copied().filter(|known| *known != name);
            let known: Vec<_> = known.chain(crate::PRESETS.iter().map(|(preset, _)| *preset)).collect();
            reader
                .problem(value.span(), format!("there is no policy `{wanted}` to extend"))
                .expected(format!("one of {}", known.join(", ")))
                .nearest(wanted, known);
        }
        parent
    }
}

fn read_policy(
    reader: &mut Reader<'_>,
    name: &str,
    span: Range<usize>,
    table: &DeTable<'_>,
    parent: Option<&Policy>,
) -> Option<Policy> {
    reader.refuse_unknown_keys(&format!("in [policies.{name}]"), table, KEYS);
    let growth = read_growth(reader, name, span.clone(), table, parent)?;
    let mut builder = match parent {
        Some(parent) => parent.to_builder().growth(growth),
        None => Policy::builder(growth),
    };
    if let Some(jitter) = table.get("jitter") {
        builder = builder.jitter(read_jitter(reader, jitter)?);
    }
    if let Some(cap) = table.get("cap") {
        builder = builder.cap(reader.duration(cap, "cap")?);
    }
    if let Some(attempts) = table.get("attempts") {
        builder = builder.attempts(read_attempts(reader, attempts)?);
    }
    if let Some(deadline) = table.get("deadline") {
        builder = builder.deadline(reader.duration(deadline, "deadline")?);
    }
    if let Some(rule) = table.get("retry_after") {
        let inherited = parent.map(Policy::retry_after).unwrap_or_default();
        builder = builder.retry_after(read_retry_after(reader, rule, inherited)?);
    }
    if let Some(crowd) = table.get("crowd") {
        builder = builder.crowd(read_crowd(reader, crowd, parent.and_then(Policy::crowd))?);
    }
    match builder.build() {
        Ok(policy) => Some(policy),
        Err(invalid) => {
            reader.problem(span_of(&invalid, table).unwrap_or(span), format!("policy `{name}`: {invalid}"));
            None
        }
    }
}

fn read_growth(
    reader: &mut Reader<'_>,
    name: &str,
    span: Range<usize>,
    table: &DeTable<'_>,
    parent: Option<&Policy>,
) -> Option<Growth> {
    let inherited = parent.map(Policy::growth);
    let kind = match table.get("growth") {
        Some(value) => reader.word(value, "growth", GROWTHS)?,
        None => inherited.map_or("exponential", Growth::name),
    };
    let needed = keys_of(kind);
    for (key, _) in table.iter().filter(|(key, _)| GROWTH_KEYS.contains(&key.get_ref().as_ref())) {
        let written = key.get_ref().as_ref();
        if !needed.contains(&written) {
            reader
                .problem(key.span(), format!("`{written}` has no meaning with growth = \"{kind}\""))
                .expected(format!("{}, or another growth", needed.join(", ")));
        }
    }
    let missing = |reader: &mut Reader<'_>, key: &str, example: &str| {
        reader
            .problem(span.clone(), format!("policy `{name}` has no `{key}`"))
            .expected(format!("{key} = {example}, or extends = \"standard\""));
    };
    let duration = |reader: &mut Reader<'_>, key: &str, default: Option<Duration>| match table.get(key) {
        Some(value) => reader.duration(value, key),
        None => {
            if default.is_none() {
                missing(reader, key, "\"100ms\"");
            }
            default
        }
    };
    let inherited_base = inherited.filter(|growth| growth.natural_top().is_none()).map(Growth::first);
    Some(match kind {
        "linear" => {
            let inherited_step = match inherited {
                Some(Growth::Linear { step, .. }) => Some(*step),
                _ => None,
            };
            let base = duration(reader, "base", inherited_base)?;
            Growth::Linear { base, step: duration(reader, "step", inherited_step.or(Some(base)))? }
        }
        "fibonacci" => Growth::Fibonacci { base: duration(reader, "base", inherited_base)? },
        "constant" => {
            let inherited =
                inherited.filter(|growth| matches!(growth, Growth::Constant { .. })).map(Growth::first);
            Growth::Constant { delay: duration(reader, "delay", inherited)? }
        }
        "list" => match (table.get("delays"), inherited) {
            (Some(value), _) => Growth::List { delays: read_delays(reader, value)? },
            (None, Some(inherited @ Growth::List { .. })) => inherited.clone(),
            (None, _) => {
                missing(reader, "delays", "[\"1s\", \"5s\"]");
                return None;
            }
        },
        _ => {
            let (inherited_factor, inherited_exponent) = match inherited {
                Some(Growth::Exponential { factor, max_exponent, .. }) => (*factor, *max_exponent),
                _ => (2.0, None),
            };
            let base = duration(reader, "base", inherited_base)?;
            let factor = match table.get("factor") {
                Some(value) => reader.number(value, "factor")?,
                None => inherited_factor,
            };
            let max_exponent = match table.get("max_exponent") {
                Some(value) => Some(reader.count(value, "max_exponent")?),
                None => inherited_exponent,
            };
            Growth::Exponential { base, factor, max_exponent }
        }
    })
}

fn keys_of(growth: &str) -> &'static [&'static str] {
    match growth {
        "linear" => &["base", "step"],
        "fibonacci" => &["base"],
        "constant" => &["delay"],
        "list" => &["delays"],
        _ => &["base", "factor", "max_exponent"],
    }
}

fn read_delays(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<Vec<Duration>> {
    let Some(array) = value.get_ref().as_array() else {
        reader.wrong_type(value, "delays", "a list of durations, such as [\"1s\", \"5s\"]");
        return None;
    };
    array.iter().map(|delay| reader.duration(delay, "an entry of delays")).collect()
}

fn read_attempts(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<u32> {
    match value.get_ref().as_str() {
        Some("unlimited") => Some(Policy::UNLIMITED),
        Some(other) => {
            reader
                .problem(value.span(), format!("attempts cannot be \"{other}\""))
                .expected("a whole number, or \"unlimited\"")
                .nearest(other, ["unlimited"]);
            None
        }
        None => reader.count(value, "attempts"),
    }
}

fn read_jitter(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<Jitter> {
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
            let known: Vec<_> = PLAIN_JITTERS.iter().chain(JITTERS_WITH_NUMBERS).copied().collect();
            reader
                .problem(value.span(), format!("jitter cannot be \"{other}\""))
                .expected(format!("one of {}", super::reader::quoted(&known)))
                .nearest(other, known);
            return None;
        }
    })
}

fn read_jitter_with_numbers(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
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

fn read_retry_after(reader: &mut Reader<'_>, value: &Value<'_>, mut rule: RetryAfter) -> Option<RetryAfter> {
    let table = reader.table(value, "retry_after")?;
    reader.refuse_unknown_keys("in retry_after", table, RETRY_AFTER_KEYS);
    if let Some(spread) = table.get("spread") {
        rule.spread = reader.duration(spread, "retry_after.spread")?;
    }
    if let Some(limit) = table.get("limit") {
        rule.limit = reader.duration(limit, "retry_after.limit")?;
    }
    if let Some(beyond) = table.get("beyond") {
        let word = reader.word(beyond, "retry_after.beyond", &Beyond::ALL.map(Beyond::name))?;
        rule.beyond = Beyond::ALL.into_iter().find(|beyond| beyond.name() == word)?;
    }
    Some(rule)
}

fn read_crowd(reader: &mut Reader<'_>, value: &Value<'_>, inherited: Option<Crowd>) -> Option<Crowd> {
    let table = reader.table(value, "crowd")?;
    reader.refuse_unknown_keys("in crowd", table, CROWD_KEYS);
    let slot = match (table.get("slot"), inherited) {
        (Some(slot), _) => reader.duration(slot, "crowd.slot")?,
        (None, Some(inherited)) => inherited.slot,
        (None, None) => {
            reader.problem(value.span(), "crowd has no `slot`").expected("crowd = { slot = \"15ms\" }");
            return None;
        }
    };
    let limit = match table.get("limit") {
        Some(limit) => reader.duration(limit, "crowd.limit")?,
        None => inherited.map_or(Crowd::DEFAULT_LIMIT, |inherited| inherited.limit),
    };
    Some(Crowd { slot, limit })
}

/// The value that is to blame.
fn span_of(invalid: &Invalid, table: &DeTable<'_>) -> Option<Range<usize>> {
    let blamed: &[&str] = match invalid {
        Invalid::NoAttempts => &["attempts"],
        Invalid::Factor(_) | Invalid::TooSlow { .. } => &["factor", "base"],
        Invalid::Share { .. } | Invalid::Swapped { .. } => &["jitter"],
        Invalid::BaseAboveCap { .. } => &["base", "delay", "delays", "cap"],
        Invalid::ListLength(_) => &["delays"],
        Invalid::Zero(what) | Invalid::TooFine { what, .. } | Invalid::TooLong { what, .. } => {
            let key = what.split('.').next().unwrap_or(what);
            let key = if key == "an entry of the list" { "delays" } else { key };
            return table.get(key).map(Value::span);
        }
        Invalid::Compiled(_) => &[],
    };
    blamed.iter().find_map(|key| table.get(*key)).map(Value::span)
}
