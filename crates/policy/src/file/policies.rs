//! `[policies.NAME]`

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use toml::de::DeTable;

use super::reader::{Reader, Value};
use super::{growth, jitter};
use crate::{Beyond, Crowd, Invalid, Policy, PolicyBuilder, PolicySet, RetryAfter};

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
pub(super) const RETRY_AFTER_KEYS: &[&str] = &["spread", "limit", "beyond"];
pub(super) const CROWD_KEYS: &[&str] = &["slot", "limit"];

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
        let is_orphan = table.contains_key("extends") && parent.is_none();
        // An orphan is read as if it extended the standard, so that its other problems are found too.
        let parent = if is_orphan { Some(Policy::standard()) } else { parent };
        let policy = read_policy(reader, name, span.clone(), table, parent.as_ref());
        match policy.filter(|_| !is_orphan) {
            Some(policy) => set.define(name, policy),
            None => reader.note_broken(name),
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
        set.note_parent(name, wanted);
        // A policy may take a preset's name and extend the preset.
        let parent =
            if wanted == name { Policy::preset(wanted) } else { set.policy(wanted).map(|p| (**p).clone()) };
        if parent.is_none() && wanted == name {
            reader.problem(value.span(), format!("policy `{name}` cannot extend itself"));
        } else if parent.is_none() && !reader.is_broken(wanted) {
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

/// Reads every key, so that every problem is found, then builds if there was none.
fn read_policy(
    reader: &mut Reader<'_>,
    name: &str,
    span: Range<usize>,
    table: &DeTable<'_>,
    parent: Option<&Policy>,
) -> Option<Policy> {
    let problems_before = reader.count();
    reader.refuse_unknown_keys(&format!("in [policies.{name}]"), table, KEYS);
    let growth = growth::read(reader, name, &span, table, parent.map(Policy::growth));
    let jitter = table.get("jitter").and_then(|value| jitter::read(reader, value));
    let cap = table.get("cap").and_then(|value| reader.duration(value, "cap"));
    let attempts = table.get("attempts").and_then(|value| read_attempts(reader, value));
    let deadline = table.get("deadline").and_then(|value| reader.duration(value, "deadline"));
    let inherited_rule = parent.map(Policy::retry_after).unwrap_or_default();
    let rule = table.get("retry_after").and_then(|value| read_retry_after(reader, value, inherited_rule));
    let inherited_crowd = parent.and_then(Policy::crowd);
    let crowd = table.get("crowd").and_then(|value| read_crowd(reader, value, inherited_crowd));
    if reader.count() > problems_before {
        return None;
    }
    let growth = growth?;
    let mut builder = match parent {
        Some(parent) => parent.to_builder().growth(growth),
        None => Policy::builder(growth),
    };
    builder = jitter.into_iter().fold(builder, PolicyBuilder::jitter);
    builder = cap.into_iter().fold(builder, PolicyBuilder::cap);
    builder = attempts.into_iter().fold(builder, PolicyBuilder::attempts);
    builder = deadline.into_iter().fold(builder, PolicyBuilder::deadline);
    builder = rule.into_iter().fold(builder, PolicyBuilder::retry_after);
    builder = crowd.into_iter().fold(builder, PolicyBuilder::crowd);
    match builder.build() {
        Ok(policy) => Some(policy),
        Err(invalid) => {
            reader.problem(span_of(&invalid, table).unwrap_or(span), format!("policy `{name}`: {invalid}"));
            None
        }
    }
}

fn read_attempts(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<u32> {
    match value.get_ref().as_str() {
        Some("unlimited") => Some(Policy::UNLIMITED),
        Some(other) => {
            reader
                .problem(value.span(), format!("attempts cannot be \"{other}\""))
                .expected("a whole number from 1 up, or \"unlimited\"")
                .nearest(other, ["unlimited"]);
            None
        }
        None => match reader.whole_number(value, "attempts", "a whole number from 1 up, or \"unlimited\"") {
            Some(0) => {
                reader
                    .problem(value.span(), "attempts is 0, but the first try counts")
                    .expected("a whole number from 1 up, or \"unlimited\"");
                None
            }
            attempts => attempts,
        },
    }
}

fn read_retry_after(reader: &mut Reader<'_>, value: &Value<'_>, inherited: RetryAfter) -> Option<RetryAfter> {
    let table = reader.table(value, "retry_after")?;
    reader.refuse_unknown_keys("in retry_after", table, RETRY_AFTER_KEYS);
    let spread = table.get("spread").and_then(|value| reader.duration(value, "retry_after.spread"));
    let limit = table.get("limit").and_then(|value| reader.duration(value, "retry_after.limit"));
    let words = Beyond::ALL.map(Beyond::name);
    let word = table.get("beyond").and_then(|value| reader.word(value, "retry_after.beyond", &words));
    let beyond = word.and_then(|word| Beyond::ALL.into_iter().find(|beyond| beyond.name() == word));
    Some(RetryAfter {
        spread: spread.unwrap_or(inherited.spread),
        limit: limit.unwrap_or(inherited.limit),
        beyond: beyond.unwrap_or(inherited.beyond),
    })
}

fn read_crowd(reader: &mut Reader<'_>, value: &Value<'_>, inherited: Option<Crowd>) -> Option<Crowd> {
    let table = reader.table(value, "crowd")?;
    reader.refuse_unknown_keys("in crowd", table, CROWD_KEYS);
    let slot = table.get("slot").and_then(|value| reader.duration(value, "crowd.slot"));
    let limit = table.get("limit").and_then(|value| reader.duration(value, "crowd.limit"));
    let inherited_slot = inherited.map(|inherited| inherited.slot);
    if !table.contains_key("slot") && inherited_slot.is_none() {
        reader.problem(value.span(), "crowd has no `slot`").expected("crowd = { slot = \"15ms\" }");
    }
    let limit = limit.unwrap_or(inherited.map_or(Crowd::DEFAULT_LIMIT, |inherited| inherited.limit));
    Some(Crowd { slot: slot.or(inherited_slot)?, limit })
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
