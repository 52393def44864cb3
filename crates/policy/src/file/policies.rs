//! The tables `[policies.NAME]`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use toml::de::DeTable;

use super::reader::{Reader, SpannedValue};
use super::values::{PolicyTable, Values, build_growth};
use crate::{Contention, InvalidPolicy, Policy, PolicyBuilder, PolicySet, RetryAfter};

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
    "contention",
];

/// Reads all policies into the set, each parent before the policies that extend it.
pub(super) fn read(reader: &mut Reader<'_>, policies: &DeTable<'_>, set: &mut PolicySet) {
    let mut tables = BTreeMap::new();
    for (name, value) in policies {
        let name = name.get_ref().as_ref();
        if let Some(table) = reader.table(value, &format!("policy `{name}`")) {
            tables.insert(name, (value.span(), table));
        }
    }
    let mut inheritance = Inheritance { tables: &tables, done: BTreeSet::new(), in_progress: Vec::new() };
    for name in tables.keys() {
        inheritance.read(reader, name, set);
    }
}

/// The policy that another policy extends.
enum Parent {
    /// The policy extends nothing.
    None,
    /// The policy extends one that does not exist or has problems of its own.
    Missing,
    Policy(Arc<Policy>),
}

/// Reads each policy after its parent.
struct Inheritance<'a, 'd> {
    tables: &'a BTreeMap<&'a str, (Range<usize>, &'a DeTable<'d>)>,
    done: BTreeSet<&'a str>,
    in_progress: Vec<&'a str>,
}

impl<'a> Inheritance<'a, '_> {
    fn read(&mut self, reader: &mut Reader<'_>, name: &'a str, set: &mut PolicySet) {
        let Some((span, table)) = self.tables.get(name) else { return };
        if self.done.contains(name) {
            return;
        }
        self.in_progress.push(name);
        let parent = match table.get("extends") {
            Some(value) => self.parent(reader, name, value, set).map_or(Parent::Missing, Parent::Policy),
            None => Parent::None,
        };
        self.in_progress.pop();
        self.done.insert(name);
        match read_policy(reader, &PolicyTable { name, span, table }, parent) {
            Some(policy) => set.define(name, policy),
            None => reader.note_broken(name),
        }
    }

    /// Returns the policy to extend: another policy of the file, or a preset.
    fn parent(
        &mut self,
        reader: &mut Reader<'_>,
        name: &str,
        value: &'a SpannedValue<'_>,
        set: &mut PolicySet,
    ) -> Option<Arc<Policy>> {
        let wanted = reader.string(value, "extends", "the name of a policy in quotes")?;
        if wanted != name && self.in_progress.contains(&wanted) {
            let path = self.in_progress.join(" → ");
            reader
                .problem(value.span(), format!("policies extend each other in a circle: {path} → {wanted}"));
            return None;
        }
        if wanted != name {
            self.read(reader, wanted, set);
        }
        set.note_parent(name, wanted);
        // A policy may have a preset's name and extend that preset.
        let preset = || Policy::preset(wanted).map(Arc::new);
        let parent = if wanted == name { preset() } else { set.policy(wanted).cloned() };
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

/// Reads every value first, so that the reader reports every problem, then builds the policy if there was
/// none.
///
/// A policy whose parent is missing cannot be built, but its values are still checked.
fn read_policy(reader: &mut Reader<'_>, policy: &PolicyTable<'_, '_>, parent: Parent) -> Option<Policy> {
    let problems_before = reader.count();
    reader.refuse_unknown_keys(&format!("in [policies.{}]", policy.name), policy.table, KEYS);
    let values = Values::read(reader, policy.table);
    let parent = match parent {
        Parent::Missing => return None,
        Parent::None => None,
        Parent::Policy(parent) => Some(parent),
    };
    let has_all_values = reader.count() == problems_before;
    let growth = build_growth(reader, policy, &values, parent.as_deref().map(Policy::growth));
    let contention = contention(reader, policy, &values, parent.as_deref().and_then(Policy::contention));
    if !has_all_values || reader.count() > problems_before {
        return None;
    }
    let growth = growth?;
    let mut builder = match &parent {
        Some(parent) => parent.to_builder().growth(growth),
        None => Policy::builder(growth),
    };
    builder = values.jitter.into_iter().fold(builder, PolicyBuilder::jitter);
    builder = values.cap.into_iter().fold(builder, PolicyBuilder::cap);
    builder = values.attempts.into_iter().fold(builder, PolicyBuilder::attempts);
    builder = values.deadline.into_iter().fold(builder, PolicyBuilder::deadline);
    builder = contention.into_iter().fold(builder, PolicyBuilder::contention);
    let inherited = parent.as_deref().map(Policy::retry_after).unwrap_or_default();
    let built = builder.retry_after(retry_after(&values, inherited)).build();
    built
        .map_err(|invalid| {
            let span = span_of(&invalid, policy.table).unwrap_or_else(|| policy.span.clone());
            reader.problem(span, format!("policy `{}`: {invalid}", policy.name));
        })
        .ok()
}

fn retry_after(values: &Values, inherited: RetryAfter) -> RetryAfter {
    RetryAfter {
        spread: values.spread.unwrap_or(inherited.spread),
        limit: values.retry_after_limit.unwrap_or(inherited.limit),
        beyond: values.beyond.unwrap_or(inherited.beyond),
    }
}

fn contention(
    reader: &mut Reader<'_>,
    policy: &PolicyTable<'_, '_>,
    values: &Values,
    inherited: Option<Contention>,
) -> Option<Contention> {
    let value = policy.table.get("contention")?;
    let slot = values.slot.or(inherited.map(|inherited| inherited.slot));
    let names_a_slot = value.get_ref().as_table().is_some_and(|table| table.contains_key("slot"));
    if slot.is_none() && !names_a_slot {
        reader.problem(value.span(), "contention has no `slot`").expected("contention = { slot = \"15ms\" }");
    }
    let limit = inherited.map_or(Contention::DEFAULT_LIMIT, |inherited| inherited.limit);
    Some(Contention { slot: slot?, limit: values.contention_limit.unwrap_or(limit) })
}

/// Returns the span of the value that caused the error.
fn span_of(invalid: &InvalidPolicy, table: &DeTable<'_>) -> Option<Range<usize>> {
    let blamed: &[&str] = match invalid {
        InvalidPolicy::NoAttempts => &["attempts"],
        InvalidPolicy::Factor(_) | InvalidPolicy::TooSlow { .. } => &["factor", "base"],
        InvalidPolicy::Share { .. } | InvalidPolicy::Swapped { .. } => &["jitter"],
        InvalidPolicy::BaseAboveCap { .. } => &["base", "delay", "delays", "cap"],
        InvalidPolicy::ListLength(_) => &["delays"],
        InvalidPolicy::Zero(what)
        | InvalidPolicy::TooFine { what, .. }
        | InvalidPolicy::TooLong { what, .. } => {
            let key = what.split('.').next().unwrap_or(what);
            let key = if key == "an entry of the list" { "delays" } else { key };
            return table.get(key).map(SpannedValue::span);
        }
        InvalidPolicy::Compiled(_) => &[],
    };
    blamed.iter().find_map(|key| table.get(*key)).map(SpannedValue::span)
}
