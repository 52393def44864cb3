//! The retry decision, computed by the database itself.
//!
//! A rescue of expired leases changes thousands of steps in one statement, so the store computes their next attempts
//! from the compiled policies it holds. Both engines return the same microsecond as
//! [`Compiled::decide`](holdoff_policy::Compiled::decide); the tests beside this file compare all three.

#[cfg(test)]
#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod tests;

/// Defines `holdoff.delay_us` and `holdoff.next_due`. The statements may be run repeatedly. The schema `holdoff` must
/// exist, and before the first call a table `holdoff.policies` with an `id` and a `compiled` policy as `jsonb`.
#[cfg(feature = "postgres")]
pub(crate) const POSTGRES: &str = include_str!("next_due/postgres.sql");

/// Returns the SQL expression that computes a delay in microseconds, or null if there is no further attempt.
///
/// The arguments are SQL expressions too: columns, parameters, subqueries. Each is evaluated once. `compiled` is the
/// canonical text, `last_delay` and `retry_after` are microseconds or null, and `roll` is a number drawn from the whole
/// range of `u32`. A policy that is null or of another version is an error (`malformed JSON`).
///
/// `random() & 4294967295` is a valid roll. It is drawn for each row if another argument is a column of that row.
/// Otherwise SQLite evaluates the whole expression once and gives all rows the same delay.
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
