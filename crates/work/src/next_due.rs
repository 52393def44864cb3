//! The one decision, made by the database itself.
//!
//! A rescue of expired leases touches thousands of steps in one statement, so the store works out their next
//! tries from the compiled policies it holds. Both engines give the microsecond that
//! [`Compiled::decide`](holdoff_policy::Compiled::decide) gives; the tests beside this file ask all three.

#[cfg(test)]
#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod tests;

/// Defines `holdoff.delay_us` and `holdoff.next_due`; may be run again. The schema `holdoff` must be there, and
/// by the time of the first call a table `holdoff.policies` with an `id` and a `compiled` policy as `jsonb`.
#[cfg(feature = "postgres")]
pub(crate) const POSTGRES: &str = include_str!("next_due/postgres.sql");

/// The expression that works out a delay in microseconds; null if there is no further try.
///
/// The arguments are expressions in their turn: columns, parameters, subqueries. Each is worked out once.
/// `compiled` is the canonical text, `last_delay` and `retry_after` are microseconds or null, `roll` is a number
/// drawn from all of `u32`. A policy that is null or of another version is an error (`malformed JSON`).
///
/// `random() & 4294967295` is a roll, drawn for each row as long as another argument is a column of that row;
/// without any, SQLite would work the whole expression out once and give all rows the same delay.
#[cfg(feature = "sqlite")]
pub(crate) fn sqlite(
    compiled: &str,
    attempt: &str,
    last_delay: &str,
    roll: &str,
    retry_after: &str,
) -> String {
    let places = [
        ("{compiled}", compiled),
        ("{attempt}", attempt),
        ("{last_delay}", last_delay),
        ("{roll}", roll),
        ("{retry_after}", retry_after),
    ];
    let template = include_str!("next_due/sqlite.sql").to_owned();
    places.iter().fold(template, |text, (place, expression)| text.replace(place, expression))
}
