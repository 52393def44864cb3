//! The value `jitter = …` of a policy.

use toml::de::DeTable;

use super::reader::{Reader, Value, quoted};
use crate::Jitter;

/// The jitters without parameters, then the jitters with parameters.
const PLAIN: &[&str] = &["none", "full", "equal", "decorrelated"];
const WITH_NUMBERS: &[&str] = &["proportional", "scaled", "additive"];

pub(super) fn read(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<Jitter> {
    if let Some(table) = value.get_ref().as_table() {
        return read_with_numbers(reader, value, table);
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
            let known: Vec<_> = PLAIN.iter().chain(WITH_NUMBERS).copied().collect();
            reader
                .problem(value.span(), format!("jitter cannot be \"{other}\""))
                .expected(format!("one of {}", quoted(&known)))
                .nearest(other, known);
            return None;
        }
    })
}

fn read_with_numbers(reader: &mut Reader<'_>, value: &Value<'_>, table: &DeTable<'_>) -> Option<Jitter> {
    reader.refuse_unknown_keys("in jitter", table, WITH_NUMBERS);
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
