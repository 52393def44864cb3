//! Builds the growth from a policy's values.

use std::ops::Range;
use std::time::Duration;

use toml::de::DeTable;

use super::reader::Reader;
use super::values::Values;
use crate::Growth;

/// The keys that only some kinds of growth have.
const ALL_KEYS: &[&str] = &["base", "factor", "max_exponent", "step", "delay", "delays"];

/// One policy's table and its position.
pub(super) struct Place<'a, 'd> {
    pub(super) policy: &'a str,
    pub(super) span: &'a Range<usize>,
    pub(super) table: &'a DeTable<'d>,
}

/// Builds the growth; a missing value is inherited if the parent's growth has it.
pub(super) fn build(
    reader: &mut Reader<'_>,
    place: &Place<'_, '_>,
    values: &Values,
    inherited: Option<&Growth>,
) -> Option<Growth> {
    let kind = values.growth.unwrap_or_else(|| inherited.map_or("exponential", Growth::name));
    refuse_keys_of_other_growths(reader, place.table, kind);
    let inherited_base = inherited.filter(|growth| growth.natural_top().is_none()).map(Growth::first);
    let base = values.base.or(inherited_base);
    let needed = |reader: &mut Reader<'_>, value: Option<Duration>, key: &str| {
        if value.is_none() {
            missing(reader, place, key, "\"100ms\"");
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
                missing(reader, place, "delays", "[\"1s\", \"5s\"]");
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
        if ALL_KEYS.contains(&written) && !own.contains(&written) {
            reader
                .problem(key.span(), format!("`{written}` has no meaning with growth = \"{kind}\""))
                .expected(format!("{}, or another growth", own.join(", ")));
        }
    }
}

fn missing(reader: &mut Reader<'_>, place: &Place<'_, '_>, key: &str, example: &str) {
    // An unreadable value has been reported already.
    if place.table.contains_key(key) {
        return;
    }
    let instead = if place.table.contains_key("growth") { "" } else { ", or extends = \"standard\"" };
    let message = format!("policy `{}` has no `{key}`", place.policy);
    reader.problem(place.span.clone(), message).expected(format!("{key} = {example}{instead}"));
}
