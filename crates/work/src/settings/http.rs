//! `[http]`, `[http.destination]` and `[http.destinations."HOST"]`

use std::time::Duration;

use holdoff_policy::file::{DeTable, Reader, Section, Value};

use super::{DAY, Destination, HttpSettings, MAX_BYTES, address};

pub(super) const KEYS: &[&str] =
    &["deny_private", "timeout", "max_response", "max_redirects", "destination", "destinations"];
pub(super) const DESTINATION_KEYS: &[&str] = &["concurrency", "rate", "budget", "breaker"];
pub(super) const BUDGET_KEYS: &[&str] = &["ratio", "burst"];
pub(super) const BREAKER_KEYS: &[&str] = &["failure_ratio", "min_calls", "window", "probes"];

const MILLISECOND: Duration = Duration::from_millis(1);

pub(super) fn read(reader: &mut Reader<'_>, table: &DeTable<'_>, http: &mut HttpSettings) {
    let section = Section::new(reader, "[http]", table, KEYS);
    if let Some((value, what)) = section.get("deny_private") {
        http.deny_private = reader.truth(value, &what).unwrap_or_default();
    }
    section.duration(reader, "timeout", MILLISECOND..=DAY, &mut http.timeout);
    section.size(reader, "max_response", 1..=MAX_BYTES, &mut http.max_response);
    section.count(reader, "max_redirects", 0..=20, &mut http.max_redirects);
    if let Some(value) = table.get("destination")
        && let Some(own) = reader.table(value, "[http.destination]")
    {
        http.destination = read_destination(reader, "[http.destination]", own, &http.destination);
    }
    if let Some(value) = table.get("destinations")
        && let Some(destinations) = reader.table(value, "[http.destinations]")
    {
        read_destinations(reader, destinations, http);
    }
}

fn read_destinations(reader: &mut Reader<'_>, destinations: &DeTable<'_>, http: &mut HttpSettings) {
    for (name, value) in destinations {
        let host = name.get_ref().as_ref();
        let place = format!("[http.destinations.\"{host}\"]");
        let Some(table) = reader.table(value, &place) else { continue };
        if refuse_unquoted(reader, host, value, table) {
            continue;
        }
        if let Err((message, right)) = address::check_destination(host) {
            let problem = reader.problem(name.span(), message);
            problem.expected("a host such as \"api.example.com\", or a host and a port");
            problem.suggestion = right;
        }
        let destination = read_destination(reader, &place, table, &http.destination);
        http.destinations.insert(host.to_owned(), destination);
    }
}

/// `[http.destinations.api.example.com]` without quotes is a table `api` with a table `example` in it.
fn refuse_unquoted(reader: &mut Reader<'_>, host: &str, value: &Value<'_>, table: &DeTable<'_>) -> bool {
    let is_known = |key: &str| DESTINATION_KEYS.contains(&key);
    let deeper = table.iter().find(|(key, deeper)| !is_known(key.get_ref()) && deeper.get_ref().is_table());
    let Some((key, mut deeper)) = deeper.filter(|_| !reader.is_inline(value)) else { return false };
    let mut full = format!("{host}.{}", key.get_ref());
    while let Some((key, next)) = deeper.get_ref().as_table().and_then(|table| {
        table.iter().find(|(key, next)| !is_known(key.get_ref()) && next.get_ref().is_table())
    }) {
        full = format!("{full}.{}", key.get_ref());
        deeper = next;
    }
    reader
        .problem(key.span(), format!("`{full}` needs quotes, because it has a dot"))
        .expected(format!("[http.destinations.\"{full}\"]"));
    true
}

/// Reads a destination; a key that is absent is inherited.
fn read_destination(
    reader: &mut Reader<'_>,
    place: &str,
    table: &DeTable<'_>,
    inherited: &Destination,
) -> Destination {
    let mut destination = inherited.clone();
    let section = Section::new(reader, place, table, DESTINATION_KEYS);
    section.count(reader, "concurrency", 1..=100_000, &mut destination.concurrency);
    if table.contains_key("rate") {
        let mut rate = 1.0;
        section.number(reader, "rate", 0.001..=1_000_000.0, &mut rate);
        destination.rate = Some(rate);
    }
    if let Some(budget) = Section::inside(reader, table, "budget", "budget.", BUDGET_KEYS) {
        budget.number(reader, "ratio", 0.0..=1000.0, &mut destination.budget.ratio);
        budget.count(reader, "burst", 0..=1_000_000, &mut destination.budget.burst);
    }
    if let Some(section) = Section::inside(reader, table, "breaker", "breaker.", BREAKER_KEYS) {
        let breaker = &mut destination.breaker;
        section.number(reader, "failure_ratio", 0.0..=1.0, &mut breaker.failure_ratio);
        section.count(reader, "min_calls", 1..=1_000_000, &mut breaker.min_calls);
        section.duration(reader, "window", MILLISECOND..=DAY, &mut breaker.window);
        section.count(reader, "probes", 1..=1000, &mut breaker.probes);
    }
    destination
}
