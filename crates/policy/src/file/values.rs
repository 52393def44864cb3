//! Reads the values of one policy's table, each independently of the others.

use std::time::Duration;

use toml::de::DeTable;

use super::jitter;
use super::reader::{Reader, Value};
use crate::{Beyond, Jitter, Policy};

const GROWTHS: &[&str] = &["exponential", "linear", "fibonacci", "constant", "list"];
pub(super) const RETRY_AFTER_KEYS: &[&str] = &["spread", "limit", "beyond"];
pub(super) const CROWD_KEYS: &[&str] = &["slot", "limit"];

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
    pub(super) crowd_limit: Option<Duration>,
}

impl Values {
    /// Reads every key, so that the reader reports every problem.
    pub(super) fn read(reader: &mut Reader<'_>, table: &DeTable<'_>) -> Self {
        let mut values = Self {
            growth: table.get("growth").and_then(|value| growth_word(reader, value)),
            factor: table.get("factor").and_then(|value| reader.number(value, "factor")),
            delays: table.get("delays").and_then(|value| delays(reader, value)),
            attempts: table.get("attempts").and_then(|value| attempts(reader, value)),
            jitter: table.get("jitter").and_then(|value| jitter::read(reader, value)),
            ..Self::default()
        };
        let count = |value| reader.whole_number(value, "max_exponent", "a whole number");
        values.max_exponent = table.get("max_exponent").and_then(count);
        let mut duration = |key: &str| table.get(key).and_then(|value| reader.duration(value, key));
        (values.base, values.step, values.delay) = (duration("base"), duration("step"), duration("delay"));
        (values.cap, values.deadline) = (duration("cap"), duration("deadline"));
        values.read_retry_after(reader, table);
        values.read_crowd(reader, table);
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

    fn read_crowd(&mut self, reader: &mut Reader<'_>, table: &DeTable<'_>) {
        let Some(value) = table.get("crowd") else { return };
        let Some(table) = reader.table(value, "crowd") else { return };
        reader.refuse_unknown_keys("in crowd", table, CROWD_KEYS);
        self.slot = table.get("slot").and_then(|value| reader.duration(value, "crowd.slot"));
        self.crowd_limit = table.get("limit").and_then(|value| reader.duration(value, "crowd.limit"));
    }
}

fn growth_word(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<&'static str> {
    let word = reader.word(value, "growth", GROWTHS)?;
    GROWTHS.iter().find(|known| **known == word).copied()
}

fn delays(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<Vec<Duration>> {
    let Some(array) = value.get_ref().as_array() else {
        reader.wrong_type(value, "delays", "a list of durations, such as [\"1s\", \"5s\"]");
        return None;
    };
    let read: Vec<_> = array.iter().map(|delay| reader.duration(delay, "an entry of delays")).collect();
    read.into_iter().collect()
}

fn attempts(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<u32> {
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
        reader.problem(value.span(), "attempts is 0, but the first try counts").expected(EXPECTED);
    }
    Some(attempts).filter(|attempts| *attempts > 0)
}
