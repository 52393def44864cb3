//! The tables `[policies.NAME]`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use toml::de::DeTable;

use super::growth::{self, Place};
use super::reader::{Reader, Value};
use super::values::Values;
use crate::{Crowd, Invalid, Policy, PolicyBuilder, PolicySet, RetryAfter};

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

/// Reads all policies into the set, each parent before the policies that extend it.
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

/// The policy that another policy extends.
enum Parent {
    /// The policy extends nothing.
    None,
    /// The policy extends one that does not exist or has problems of its own.
    Missing,
    Policy(Arc<Policy>),
}

/// Reads each policy after its parent.
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
        let parent = match table.get("extends") {
            Some(value) => self.parent(reader, name, value, set).map_or(Parent::Missing, Parent::Policy),
            None => Parent::None,
        };
        self.under_way.pop();
        self.done.insert(name);
        match read_policy(reader, &Place { policy: name, span, table }, parent) {
            Some(policy) => set.define(name, policy),
            None => reader.note_broken(name),
        }
    }

    /// Returns the policy to extend: another policy of the file, or a preset.
    fn parent(
        &mut self,
        reader: &mut Reader<'_>,
        name: &str,
        value: &'a Value<'_>,
        set: &mut PolicySet,
    ) -> Option<Arc<Policy>> {
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
fn read_policy(reader: &mut Reader<'_>, place: &Place<'_, '_>, parent: Parent) -> Option<Policy> {
    let problems_before = reader.count();
    reader.refuse_unknown_keys(&format!("in [policies.{}]", place.policy), place.table, KEYS);
    let values = Values::read(reader, place.table);
    let parent = match parent {
        Parent::Missing => return None,
        Parent::None => None,
        Parent::Policy(parent) => Some(parent),
    };
    let has_all_values = reader.count() == problems_before;
    let growth = growth::build(reader, place, &values, parent.as_deref().map(Policy::growth));
    let crowd = crowd(reader, place, &values, parent.as_deref().and_then(Policy::crowd));
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
    builder = crowd.into_iter().fold(builder, PolicyBuilder::crowd);
    let inherited = parent.as_deref().map(Policy::retry_after).unwrap_or_default();
    let built = builder.retry_after(retry_after(&values, inherited)).build();
    built
        .map_err(|invalid| {
            let span = span_of(&invalid, place.table).unwrap_or_else(|| place.span.clone());
            reader.problem(span, format!("policy `{}`: {invalid}", place.policy));
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

fn crowd(
    reader: &mut Reader<'_>,
    place: &Place<'_, '_>,
    values: &Values,
    inherited: Option<Crowd>,
) -> Option<Crowd> {
    let value = place.table.get("crowd")?;
    let slot = values.slot.or(inherited.map(|inherited| inherited.slot));
    let names_a_slot = value.get_ref().as_table().is_some_and(|table| table.contains_key("slot"));
    if slot.is_none() && !names_a_slot {
        reader.problem(value.span(), "crowd has no `slot`").expected("crowd = { slot = \"15ms\" }");
    }
    let limit = inherited.map_or(Crowd::DEFAULT_LIMIT, |inherited| inherited.limit);
    Some(Crowd { slot: slot?, limit: values.crowd_limit.unwrap_or(limit) })
}

/// Returns the span of the value that caused the error.
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
