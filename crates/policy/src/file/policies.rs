//! `[policies.NAME]`

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use toml::de::DeTable;

use super::reader::{Reader, Value};
use super::{growth, jitter};
use crate::{Beyond, Crowd, Invalid, Policy, PolicySet, RetryAfter};

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
        let policy =
            if is_orphan { None } else { read_policy(reader, name, span.clone(), table, parent.as_ref()) };
        match policy {
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
        // A policy may take a preset's name and extend the preset.
        let parent =
            if wanted == name { Policy::preset(wanted) } else { set.policy(wanted).map(|p| (**p).clone()) };
        if parent.is_none() && !reader.is_broken(wanted) {
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
    let growth = growth::read(reader, name, &span, table, parent.map(Policy::growth))?;
    let mut builder = match parent {
        Some(parent) => parent.to_builder().growth(growth),
        None => Policy::builder(growth),
    };
    if let Some(jitter) = table.get("jitter") {
        builder = builder.jitter(jitter::read(reader, jitter)?);
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
